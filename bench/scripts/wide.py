"""What `Comet()` finds, and whom it blames, as a table gets wider around the same faults.

    python bench/scripts/wide.py [plants] [servers] [--pooling N] [--seeds N] [--widths N ...] [--data-dir DIR]

A plant of 24 variables has its faults in the same sensors at every width: the other variables belong to a neighboring
plant without faults. Servers are those of ASD on the half that choices are made on, alone and with 250 more columns:
noise, or redundant ones: mixes of 8 slow factors of their own, which meet in the test part as they never did before.

*Found* is the share of faults in which an alert starts at the default budget, one per 1,000 readings, *chance* the same
for these alerts at random times, *false* alerts per 1,000 normal readings. *First* is the share of faults of a single
variable whose explanation has it first, *rank* its mean rank. The baseline is the residual of each variable given all
others at the same time (a ridge regression), in deviations; its score is the mean of the three largest.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from alert_tables.judged import DEFAULT, Scores, judged, worth
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import synthetic_plant
from cometad.metrics import auc_pr
from threshold_tables.shared import anomalies, chosen, far_from, head, row

CORE = 24  # variables that may be faulty
TRAINING, TEST = 6_000, 12_000  # readings
MOST_CELLS = 4_000_000  # of the training part: a wider plant has fewer readings
ADDED, FACTORS = 250, 8
RIDGE, TOP = 0.1, 3
COLUMNS = (
    "found",
    "chance",
    "false",
    "alert AUC-PR",
    "ranking AUC-PR",
    "first",
    "rank",
    "fit s",
    "reading us",
    "explain s",
)


class Residual:
    """Each variable's residual given all others at the same time, in training deviations."""

    def fit(self, train: np.ndarray) -> "Residual":
        self.center, self.unit = train.mean(axis=0), np.where(train.std(axis=0) > 0, train.std(axis=0), 1.0)
        rows = (train - self.center) / self.unit
        self.precision = np.linalg.inv(rows.T @ rows / len(rows) + RIDGE * np.eye(train.shape[1]))
        self.spread = (rows @ self.precision).std(axis=0) + 1e-9
        return self

    def variables(self, values: np.ndarray) -> np.ndarray:
        return np.abs((values - self.center) / self.unit @ self.precision / self.spread)

    def scores(self, values: np.ndarray) -> np.ndarray:
        return np.sort(self.variables(values), axis=1)[:, -TOP:].mean(axis=1)


def plant(width: int, seed: int) -> Dataset:
    rows = {"train_rows": min(TRAINING, MOST_CELLS // width), "test_rows": TEST}
    core = synthetic_plant(**rows, variables=CORE, seed=seed).as_dataset()
    if width == CORE:
        return core
    other = synthetic_plant(**rows, variables=width - CORE, faults_per_kind=0, seed=1_000 + seed)
    names = tuple(f"other_{name}" for name in other.names)
    return beside(core, other.train, other.test, names)


def beside(table: Dataset, train: np.ndarray, test: np.ndarray, names: tuple[str, ...]) -> Dataset:
    wide = (np.hstack([table.train, train]), np.hstack([table.test, test]))
    return replace(table, train=wide[0], test=wide[1], names=(*table.names, *names))


def server(table: Dataset, kind: str, rng: np.random.Generator) -> Dataset:
    rows, split = len(table.train) + len(table.test), len(table.train)
    added = rng.normal(size=(rows, ADDED))
    if kind == "redundant":
        steps = np.arange(rows)[:, None]
        slow = np.sin(2 * np.pi * (steps / rng.uniform(200, 2_000, FACTORS) + rng.random(FACTORS)))
        added = slow @ rng.normal(size=(FACTORS, ADDED)) + 0.1 * added
    return beside(table, added[:split], added[split:], tuple(f"{kind}_{i}" for i in range(ADDED)))


def figures(table: Dataset, detector: Comet) -> dict[str, np.ndarray]:
    """The figures of Comet and of the baseline, in the order of COLUMNS."""
    begun = time.perf_counter()
    detector.fit(table.train)
    seconds = time.perf_counter() - begun
    stream, times = detector.stream(), []
    for reading in table.test[:400]:
        begun = time.perf_counter()
        stream.update(reading)
        times.append(time.perf_counter() - begun)
    explain, found = detector.explainer(table.test), detector.step_scores(table.test)
    scores = Scores.of(detector, table)
    begun, stretches = time.perf_counter(), [stretch for stretch, _ in single(table)] or anomalies(table)[:3]
    ranked = [[reason.variable for reason in explain(stretch, 0).reasons] for stretch in stretches]
    explained = (time.perf_counter() - begun) / len(ranked)
    places = [names.index(detector.names_[i]) for names, (_, i) in zip(ranked, single(table), strict=False)]
    ours = [auc_pr(table.labels, found.scores), *blamed(places), seconds, 1e6 * float(np.median(times)), explained]
    baseline = Residual().fit(table.train)
    own, errors = baseline.scores(table.test), baseline.variables(table.test)
    plain = Scores(table.name, "", baseline.scores(table.train), own, anomalies(table), far_from(table.labels))
    places = [int((errors[a:b].max(axis=0) > errors[a:b, i].max()).sum()) for (a, b), i in single(table)]
    theirs = [auc_pr(table.labels, own), *blamed(places), np.nan, np.nan, np.nan]
    return {
        "Comet": np.array([*at_budget(table, scores), *ours]),
        "residual": np.array([*at_budget(table, plain), *theirs]),
    }


def single(table: Dataset) -> list[tuple[tuple[int, int], int]]:
    """The faults of one variable: their stretches and that variable."""
    return [(stretch, variables[0]) for stretch, variables in table.causes or () if len(variables) == 1]


def blamed(places: list[int]) -> list[float]:
    return [float(np.mean([place == 0 for place in places])), float(np.mean(places)) + 1] if places else [np.nan] * 2


def at_budget(table: Dataset, scores: Scores) -> list[float]:
    raised = worth(scores, judged(scores, DEFAULT))
    false = 1000 * raised.false / max(raised.normal, 1)
    return [raised.found, raised.chance, false, auc_pr(table.labels, scores.test)]


def plants(asked: Any) -> Iterator[tuple[str, list[Dataset]]]:
    for width in asked.widths:
        yield f"plant of {width}", [plant(width, seed) for seed in range(max(1, asked.seeds * 300 // max(width, 300)))]


def servers(asked: Any) -> Iterator[tuple[str, list[Dataset]]]:
    tables = sorted(chosen(("ASD",), "select", asked.data_dir), key=lambda table: table.entity)[: asked.seeds]
    for kind in ("", "noise", "redundant"):
        wide = [server(table, kind, np.random.default_rng(k)) if kind else table for k, table in enumerate(tables)]
        yield f"server{kind and f' + {ADDED} {kind}'}", wide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=["plants", "servers", []], help="default: both")
    parser.add_argument("--pooling", type=int, help="default: that of Comet()")
    parser.add_argument(
        "--seeds", type=int, default=4, help="plants of up to 300 variables, fewer of wider ones; or servers"
    )
    parser.add_argument("--widths", type=int, nargs="*", default=[24, 100, 300, 1_000])
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args()
    head("table", "detector", *COLUMNS)
    for make in [{"plants": plants, "servers": servers}[name] for name in asked.tables or ("plants", "servers")]:
        for name, tables in make(asked):
            with thread_count_of(1):
                changes = {} if asked.pooling is None else {"pooling": asked.pooling}
                found = [figures(table, Comet(**changes)) for table in tables]
            for who in found[0]:
                row(name, who, *(f"{value:.3g}" for value in np.mean([one[who] for one in found], axis=0)))


if __name__ == "__main__":
    main()
