"""What the nested choice is worth on entities of either part, from the results of `select` and `validate`.

    python bench/scripts/nested.py [--results DIR]

The choice is made on *select*, one family left out at a time. Its figure there is in bench/results/select.md; this
script adds the figure of the same choices on *validate*, which had no say at all, and on the entities of both parts.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cometad_bench.experiments import DEFAULT
from cometad_bench.frame import RANKED_BY, family_means, frame_of
from cometad_bench.nested import HEADLINE, nested_choice
from cometad_bench.results import Record, Results

SETTINGS = ("views", "pooling", "smoothing")


def settings(record: Record) -> str:
    return str([record["hyper_parameters"].get(name) for name in SETTINGS])


def figures(records: Sequence[Record], chosen: Mapping[str, str]) -> dict[str, list[float]]:
    """AUC-PR of each entity by family, with the settings chosen for that family; all from `Comet`."""
    found: dict[str, list[float]] = {family: [] for family in chosen}
    for record in records:
        alike = record["detector"] == DEFAULT.detector and settings(record) == chosen[record["dataset"]]
        if alike and record["error"] is None:
            found[record["dataset"]].append(100 * record["metrics"]["auc_pr"])
    return found


def line(what: str, by_family: Mapping[str, list[float]]) -> str:
    means = {family: float(np.mean(values)) for family, values in by_family.items()}
    each = ", ".join(f"{family} {mean:.1f} ({len(by_family[family])})" for family, mean in means.items())
    headline = np.mean([means[family] for family in HEADLINE])
    return f"{what}: {headline:.1f} over {', '.join(HEADLINE)}; {np.mean(list(means.values())):.1f} over all: {each}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("bench/results"))
    folder = parser.parse_args().results
    select, validate = (Results(folder / f"{name}.jsonl").read() for name in ("select", "validate"))
    choice = nested_choice(family_means(frame_of(select), RANKED_BY)).chosen
    of_arm = {record["arm"]: settings(record) for record in select}
    chosen = {family: of_arm[arm] for family, arm in choice.items()}
    print("chosen without the family:", ", ".join(f"{family}: {arm!r}" for family, arm in choice.items()))
    parts = [figures(records, chosen) for records in (select, validate)]
    both = {family: [*parts[0][family], *parts[1][family]] for family in chosen}
    for what, part in zip(("select", "validate", "both parts"), (*parts, both), strict=True):
        print(line(what, part))
