"""Feed cometad inputs that nobody meant to write, and count what happens: `python bench/scripts/fuzz.py --models`."""

import argparse
import importlib
import sys

PARTS = {
    "models": "fuzzing.models",
    "tables": "fuzzing.tables",
    "requests": "fuzzing.requests",
}  # flag: module with `run(cases, seed)`


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    wrong = 0
    for part, module in PARTS.items():
        if getattr(chosen, part):
            counts = importlib.import_module(module).run(chosen.cases, chosen.seed)
            print(f"{part}: {chosen.cases:,} cases")
            for outcome, count in counts.items():
                print(f"{count:8,}  {outcome}")
                wrong += count if outcome.endswith("wrong") else 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
