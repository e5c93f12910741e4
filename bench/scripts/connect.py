"""Connectors against real servers: readings a second, kill -9, outages, poison messages.

    python bench/scripts/connect.py plant|prometheus|brokers|out [...]

Each part is a script in bench/scripts/connecting/, which says what it measures and takes; the rest of the words are
passed on. Without any word, all parts run, one after the other.
"""

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).with_name("connecting")
PARTS = sorted(file.stem for file in FOLDER.glob("*.py"))


def main(words: list[str]) -> None:
    """Run one part with its words, or all parts."""
    if words and words[0] not in PARTS:
        sys.exit(f"There is no part {words[0]!r}. Choose from {', '.join(PARTS)}.")
    for part in words[:1] or PARTS:
        print(f"== {part}", flush=True)
        sys.argv = [str(FOLDER / f"{part}.py"), *words[1:]]
        sys.path.insert(0, str(FOLDER))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
