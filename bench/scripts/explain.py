"""Accuracy of explanations: hit rates on the interpretation labels of SMD, as Markdown tables.

    python bench/scripts/explain.py [--data-dir DIR] [--models DIR] [--machine NAME ...] [--network]
                                 [--results bench/results/explain.jsonl]

For each machine, detectors are fitted on the training part. Each labeled anomaly of the test part is then explained,
and the variables ranked by share are compared with the labeled ones. Combinations of machine and method that are
already in the results file are skipped, so the command can be interrupted and resumed; `--models` also keeps the fitted
detectors. `--network` adds the detectors with a trained network, a minute or more for each machine.

References are chance (the average over random rankings), the mean squared scaled reading of the event, the largest
absolute reading, and its rise above the median of the 500 readings before. docs/explanations.md says how shares were
chosen, at first on the machines of SELECT only. The second table compares event by event: the mean difference, its 95 %
bootstrap interval over machines, and the p value of a two-sided Wilcoxon test over events.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import wilcoxon

from cometad import Comet, Detector, NetworkComet
from cometad import load as load_detector
from cometad.data.prepare import fit_scaling
from cometad.datasets.dataset import Dataset
from cometad.network import NoAdaptation
from cometad_bench.datasets.readers import load

SELECT = (  # the two machines used in development before, and those with an even sha1 of their name
    *("machine-1-2", "machine-2-4", "machine-1-4", "machine-1-8", "machine-2-7", "machine-3-8", "machine-3-11"),
)
MACHINES = (  # as in the experiment with one model per entity
    *SELECT,
    *("machine-1-6", "machine-2-2", "machine-2-9", "machine-3-3", "machine-3-5"),
)
PERCENTS = (100, 150)
SEED = 0
DRAWS = 10_000  # bootstrap samples per interval
BEFORE = 500  # readings before an event

Rows = dict[tuple[str, str], dict]  # by machine and method
Ranking = Callable[[int, int], np.ndarray]  # start and stop of an anomaly -> weight of each variable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--models", type=Path, help="Keep the fitted detectors in this folder.")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="Run only this machine; may be repeated.")
    parser.add_argument("--network", action="store_true", help="Also run the detectors with a trained network.")
    parser.add_argument("--results", type=Path, default=Path("bench/results/explain.jsonl"))
    arguments = parser.parse_args()
    done = read(arguments.results)
    names = [name for name in METHODS if arguments.network or name not in SLOW]
    wanted = [(machine, name) for machine in arguments.machine or MACHINES for name in names]
    if any(pair not in done for pair in wanted):
        machines = {dataset.entity: dataset for dataset in load("SMD", arguments.data_dir)}
        for machine, name in wanted:
            if (machine, name) not in done:
                row = measured(machines[machine], name, arguments.models)
                with arguments.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print_tables(read(arguments.results))


def read(path: Path) -> Rows:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["machine"], row["method"]): row for row in rows}


def measured(dataset: Dataset, name: str, models: Path | None) -> dict:
    begin = time.perf_counter()
    ranking = METHODS[name](dataset, models)
    rates = [list(rates_of(ranking, *cause, len(dataset.names))) for cause in dataset.causes]
    return {
        "machine": dataset.entity,
        "fingerprint": dataset.fingerprint,
        "method": name,
        "seed": SEED,
        "causes": [len(variables) for _, variables in dataset.causes],
        "hit_rates": {str(percent): [rate[i] for rate in rates] for i, percent in enumerate(PERCENTS)},
        "seconds": round(time.perf_counter() - begin, 1),
    }


def rates_of(
    ranking: Ranking | None, stretch: tuple[int, int], causes: tuple[int, ...], variables: int
) -> Iterator[float]:
    if ranking is None:
        yield from (round(chance_hit_rate(variables, len(causes), percent), 6) for percent in PERCENTS)
        return
    order = np.argsort(-ranking(*stretch), kind="stable").tolist()
    yield from (round(hit_rate(order, causes, percent), 6) for percent in PERCENTS)


def hit_rate(ranking: Sequence[int], causes: Collection[int], percent: float) -> float:
    """The share of the causes found among the top variables of a ranking: a percentage of the number of causes.

    From OmniAnomaly (Su et al., 2019).
    """
    top = ranking[: considered(len(causes), percent)]
    return len(set(top) & set(causes)) / len(causes)


def chance_hit_rate(variables: int, causes: int, percent: float) -> float:
    return min(considered(causes, percent), variables) / variables


def considered(causes: int, percent: float) -> int:
    return math.floor(causes * percent / 100 + 1e-9)  # keeps 150 % of 2 at 3 when the float falls just short


def scaled(dataset: Dataset) -> np.ndarray:
    return fit_scaling("standard", dataset.train)(dataset.test)


def chance(dataset: Dataset, models: Path | None) -> None:
    return None


def squared_norm(dataset: Dataset, models: Path | None) -> Ranking:
    values = scaled(dataset).astype(np.float64)
    return lambda start, stop: (values[start:stop] ** 2).mean(axis=0)


def largest_reading(dataset: Dataset, models: Path | None) -> Ranking:
    values = np.abs(scaled(dataset))
    return lambda start, stop: values[start:stop].max(axis=0)


def rise_of_reading(dataset: Dataset, models: Path | None) -> Ranking:
    values = np.abs(scaled(dataset))

    def rise(start: int, stop: int) -> np.ndarray:
        before = values[max(start - BEFORE, 0) : start]
        return values[start:stop].max(axis=0) - (np.median(before, axis=0) if len(before) else 0.0)

    return rise


def network() -> NetworkComet:
    return NetworkComet(seed=SEED)


def explained(name: str, make: Callable[[], Detector]) -> Callable[[Dataset, Path | None], Ranking]:
    def ranking(dataset: Dataset, models: Path | None) -> Ranking:
        explain = fitted(dataset, make, kept(models, dataset, name)).explainer(dataset.test)

        def share(start: int, stop: int) -> np.ndarray:
            reasons = explain((start, stop), 0).reasons
            shares = {reason.variable: reason.share for reason in reasons}
            return np.array([shares[name] for name in dataset.names])

        return share

    return ranking


def own_scores(dataset: Dataset, models: Path | None) -> Ranking:
    detector = fitted(dataset, network, kept(models, dataset, "network"))
    stream = detector.stream(adaptation=NoAdaptation())
    scores = np.concatenate([stream.update_many(dataset.test).variables, stream.finish().variables])
    return lambda start, stop: scores[start:stop].max(axis=0)


def kept(models: Path | None, dataset: Dataset, name: str) -> Path | None:
    return None if models is None else models / f"{dataset.entity}.{name}"


def fitted(dataset: Dataset, make: Callable[[], Detector], path: Path | None) -> Detector:
    if path is not None and path.exists():
        return load_detector(path)
    detector = make().fit(dataset.train)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        detector.save(path)
    return detector


METHODS: dict[str, Callable[[Dataset, Path | None], Ranking | None]] = {
    "chance": chance,
    "squared norm": squared_norm,
    "largest reading": largest_reading,
    "rise of reading": rise_of_reading,
    "comet-paper": explained("comet-paper", lambda: Comet.paper(seed=SEED)),
    "network": explained("network", network),
    "network scores": own_scores,
    "comet": explained("comet", lambda: Comet(seed=SEED)),
}
SLOW = ("comet-paper", "network", "network scores")
TITLES = {
    "chance": "chance",
    "squared norm": "squared scaled reading, mean over the event",
    "largest reading": "absolute scaled reading, largest in the event",
    "rise of reading": "absolute scaled reading, its rise",
    "comet-paper": "`Comet.paper()`, shares",
    "network": "`NetworkComet()`, shares",
    "network scores": "`NetworkComet()`, each variable's own score, highest in the event",
    "comet": "`Comet()`, shares",
}


def print_tables(rows: Rows) -> None:
    complete = [machine for machine in MACHINES if all((machine, name) in rows for name in METHODS if name not in SLOW)]
    groups = {
        "select": [machine for machine in complete if machine in SELECT],
        "held out": [machine for machine in complete if machine not in SELECT],
        "all": complete,
    }
    shown = [name for name in TITLES if all((machine, name) in rows for machine in complete)]
    heads = [f"{title} @{percent} %" for title in groups for percent in PERCENTS]
    print(f"| ranked by | {' | '.join(heads)} |")
    print("|---" * (len(heads) + 1) + "|")
    for name in shown:
        cells = [mean(rates(rows, group, name, percent)) for group in groups.values() for percent in PERCENTS]
        print(f"| {TITLES[name]} | {' | '.join(cells)} |")
    counts = [str(sum(len(rows[machine, "chance"]["causes"]) for machine in group)) for group in groups.values()]
    print(f"| anomalies | {' | '.join(count for count in counts for _ in PERCENTS)} |")
    print(f"| machines | {' | '.join(str(len(group)) for group in groups.values() for _ in PERCENTS)} |")
    if groups["held out"]:
        print()
        print_differences(rows, {title: groups[title] for title in ("held out", "all")})


def print_differences(rows: Rows, groups: dict[str, list[str]]) -> None:
    heads = [f"{title} @{percent} %" for title in groups for percent in PERCENTS]
    print(f"| `Comet()` minus | {' | '.join(heads)} |")
    print("|---" * (len(heads) + 1) + "|")
    for name in ("squared norm", "largest reading", "rise of reading"):
        cells = [
            difference(rates(rows, machines, "comet", percent), rates(rows, machines, name, percent))
            for machines in groups.values()
            for percent in PERCENTS
        ]
        print(f"| {TITLES[name]} | {' | '.join(cells)} |")


def rates(rows: Rows, machines: list[str], name: str, percent: int) -> list[np.ndarray]:
    """The hit rates (anomaly,) of each machine."""
    return [np.array(rows[machine, name]["hit_rates"][str(percent)]) for machine in machines]


def mean(of_machines: list[np.ndarray]) -> str:
    return f"{np.concatenate(of_machines).mean():.3f}" if of_machines else "-"


def difference(left: list[np.ndarray], right: list[np.ndarray]) -> str:
    """The mean difference over anomalies, with its 95 % bootstrap interval over machines and the p value of a test."""
    differences = [a - b for a, b in zip(left, right, strict=True)]
    count, rng = len(differences), np.random.default_rng(0)
    means = [np.concatenate([differences[i] for i in rng.integers(count, size=count)]).mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    every = np.concatenate(differences)
    p = wilcoxon(every).pvalue if every.any() else 1.0
    return f"{every.mean():+.3f} ({low:+.3f} to {high:+.3f}), p = {p:.2g}"


if __name__ == "__main__":
    main()
