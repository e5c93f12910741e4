"""Compare the branch coverage of each room, a folder of src/cometad, with its floor in coverage_floor.json.

`python tests/coverage_floor.py REPORT` reads what `coverage json` wrote and exits with 1 if a room is below its floor.
With `--write` it records today's coverage as the floor. `make coverage` runs the suite and then this.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

FLOOR = Path(__file__).with_name("coverage_floor.json")
SLACK = 0.5  # percentage points: in threads, a branch may be taken in one run and not in the next
TOP = "(top level)"


def rooms(report: Path) -> dict[str, float]:
    """The branch coverage in percent of each room with branches."""
    covered, branches = Counter[str](), Counter[str]()
    for name, file in json.loads(report.read_text("utf-8"))["files"].items():
        inside = name.replace("\\", "/").partition("src/cometad/")[2]
        if inside:
            room = inside.partition("/")[0] if "/" in inside else TOP
            covered[room] += file["summary"]["covered_branches"]
            branches[room] += file["summary"]["num_branches"]
    return {room: round(100 * covered[room] / branches[room], 1) for room in sorted(branches) if branches[room]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare branch coverage per room with its floor.")
    parser.add_argument("report", type=Path, help="JSON report of coverage")
    parser.add_argument("--write", action="store_true", help="record the coverage of the report as the floor")
    given = parser.parse_args()
    found = rooms(given.report)
    if given.write:
        FLOOR.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        return 0
    floor = json.loads(FLOOR.read_text("utf-8"))
    low = [room for room, least in floor.items() if room in found and found[room] < least - SLACK]
    for room in sorted(found | floor):
        now = f"{found[room]:5.1f} %" if room in found else "   gone"
        least = f"floor {floor[room]:5.1f} %" if room in floor else "no floor yet"
        print(f"{room:12} {now}  {least}{'  BELOW' if room in low else ''}")
    return 1 if low else 0


if __name__ == "__main__":
    raise SystemExit(main())
