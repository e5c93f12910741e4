"""Found and false alerts for a range of budgets, by `Comet()` and by simple baselines with its calibration."""

from functools import partial
from zlib import crc32

import numpy as np

from alert_tables.judged import DEFAULT, Scores, Summary, Worth, budget_of, judged, summary, worth
from alert_tables.windows import WindowGaussian, WindowMeans
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad_bench.fair import FairBaseline
from threshold_tables.shared import DATASETS, chosen, each, head, row

BUDGETS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)  # alerts per 1,000 readings
GOALS = {0.6: 0.50, 1.0: 0.60}  # false alerts per 1,000 normal readings, and the share to find
BASELINES = ("sensor-range", "squared-norm", "pca", "window-pca", "forecast-error", "knn", "kmeans", "hbos")
COMET = "`Comet()`"
WORST = 12  # entities

Result = tuple[str, float, Scores, Worth]  # detector, budget (0: the default), and the worth of its alerts


def detectors(seed: int) -> dict[str, object]:
    """Comet and what it is compared with: nobody smooths, everybody is calibrated and pooled alike."""
    fair = {f"fair {name}": FairBaseline(baseline=name, smoothing=(), seed=seed) for name in BASELINES}
    return {COMET: Comet(), **fair, "k-means on windows": WindowMeans(seed), "Gaussian on windows": WindowGaussian()}


def results_of(entity: Dataset, only: str | None = None) -> list[Result]:
    found = []
    for name, detector in detectors(crc32(f"{entity.name} {entity.entity}".encode())).items():
        if only not in (None, name):
            continue
        with thread_count_of(1):
            scores = Scores.of(detector.fit(entity.train), entity)
        rules = {budget: budget_of(budget) for budget in BUDGETS} | {0.0: DEFAULT}
        small = scores._replace(training=np.empty(0), test=np.empty(len(scores.test)))  # what travels between processes
        found += [(name, budget, small, worth(scores, judged(scores, rule))) for budget, rule in rules.items()]
    return found


def curve(asked) -> None:
    """The whole curve of every detector."""
    results = list(each(results_of, chosen(DATASETS, asked.part, asked.data_dir), asked.workers))
    names = list(dict.fromkeys(result[0] for result in results))
    found = {name: [mean_of(results, name, budget) for budget in BUDGETS] for name in names}
    print(f"Comet(), {asked.part}:\n")
    head("budget per 1,000", "found", "chance", "false", "precision", "in alarm", "open", "events per anomaly found")
    for budget, one in [*zip(BUDGETS, found[COMET], strict=True), ("default", mean_of(results, COMET, 0.0))]:
        row(budget, *cells(one))
    print("\nFound (false) for each budget, and found at a number of false alerts:\n")
    head("detector", *map(str, BUDGETS), *(f"at {false:g}" for false in GOALS))
    for name in names:
        at = (np.interp(false, *sorted_curve(found[name]), left=np.nan) for false in GOALS)
        row(name, *(f"{one.found:.2f} ({one.false:.2f})" for one in found[name]), *(f"**{value:.2f}**" for value in at))
    print(f"\nThe goal: {', '.join(f'{share:.2f} found at {false:g}' for false, share in GOALS.items())}.\n")
    by_dataset(results)
    if asked.figure:
        draw(asked.figure, found)


def cells(one: Summary) -> list[str]:
    shares = [f"{100 * one.flagged:.1f} %", f"{100 * one.open:.1f} %"]
    return [*(f"{value:.2f}" for value in one[:4]), *shares, f"{one.per_anomaly:.2f}"]


def mean_of(results: list[Result], name: str, budget: float, families=DATASETS) -> Summary:
    return summary([(scores, own) for who, what, scores, own in results if (who, what) == (name, budget)], families)


def sorted_curve(found: list[Summary]) -> tuple[list[float], list[float]]:
    """False alerts in ascending order, and the shares found."""
    pairs = sorted((one.false, one.found) for one in found)
    return [false for false, _ in pairs], [share for _, share in pairs]


def by_dataset(results: list[Result]) -> None:
    """The default on each dataset, and the entities where it cries wolf."""
    print("The default by dataset:\n")
    columns = ("found", "chance", "false", "precision", "in alarm", "open", "events per anomaly found")
    head("dataset", *columns, "anomalies below the highest 5 % of normal readings")
    own = [(scores, value) for who, what, scores, value in results if (who, what) == (COMET, 0.0)]
    for family in DATASETS:
        hidden, labeled = np.sum([(v.hidden, v.labeled) for scores, v in own if scores.family == family], axis=0)
        row(family, *cells(mean_of(results, COMET, 0.0, (family,))), f"{hidden} of {labeled}")
    print("\nWhere it cries wolf:\n")
    head("entity", "false alerts", "normal readings", "per 1,000", "alerts", "found")
    for scores, value in sorted(own, key=lambda pair: -pair[1].false)[:WORST]:
        rate = 1000 * value.false / max(value.normal, 1)
        row(
            f"{scores.family} {scores.entity}",
            value.false,
            f"{value.normal:,}",
            f"{rate:.1f}",
            value.alerts,
            f"{value.found:.2f}",
        )


only_comet = partial(results_of, only=COMET)


def draw(path: str, found: dict[str, list[Summary]]) -> None:
    from matplotlib.figure import Figure

    from cometad.report.plots import save_figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, curve in found.items():
        strong = name == COMET
        axes.plot(*sorted_curve(curve), label=name.strip("`"), lw=2.5 if strong else 1, zorder=3 if strong else 2)
    axes.scatter(list(GOALS), list(GOALS.values()), marker="x", color="black", label="goal", zorder=4)
    axes.set(xlabel="false alerts per 1,000 normal readings", ylabel="anomalies in which an alert starts", xlim=(0, 3))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="lower right")
    save_figure(path, figure)
