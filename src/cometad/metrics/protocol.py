"""The nine metrics of the paper under one protocol, with no-skill references to compare them with."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cometad.arrays import Floats
from cometad.errors import InputError, unknown
from cometad.metrics.adjusted import best_adjusted, best_adjusted_f1
from cometad.metrics.affiliation import best_affiliation, ranked_best
from cometad.metrics.pointwise import auc_pr, auc_roc, average_precision, roc_area
from cometad.metrics.ranking import Ranked, checked_labels
from cometad.metrics.volume import range_auc, resolved_window, vus, window_areas
from cometad.parameters import check_integer

# Of TSB-AD's rule for the widest window: a period of the series, found in the autocorrelation of one variable.
ROWS = 20_000  # only the first readings count
LAGS = 400
SKIPPED = 3  # a peak at one of the first lags is noise
SHORTEST, LONGEST = 6, 303  # of a period that counts
DEFAULT_WINDOW = 125  # if there is none


@dataclass(frozen=True)
class Protocol:
    """The settings that range AUC and VUS values depend on; state them with every table.

    >>> from cometad.metrics import PROTOCOLS
    >>> PROTOCOLS["paper"].flavor
    'classic'
    """

    flavor: str
    window: int | str  # for the range AUC
    max_window: int | str  # for VUS
    ranks: int | None  # number of equally spaced ranks used as thresholds; None uses every distinct score


PROTOCOLS = {
    "paper": Protocol("classic", "median", "twice_median", ranks=None),
    "paper-250": Protocol("classic", "median", "twice_median", ranks=250),  # as published tables were computed
}


@dataclass(frozen=True)
class Metric:
    """A metric of `(labels, scores)`, and how to interpret its values.

    >>> from cometad.metrics import METRICS
    >>> METRICS["auc_roc"].function([0, 1], [0.2, 0.9]), METRICS["auc_roc"].floor
    (1.0, 0.5)
    """

    function: Callable[[object, object], float]
    title: str
    needs_oracle_threshold: bool  # the labels choose the best threshold
    floor: float | None  # roughly what random scores reach; None if that depends on the labels (see `reference`)
    higher_is_better: bool = True


METRICS = {
    "f1_k0": Metric(lambda labels, scores: best_adjusted_f1(labels, scores, k=0).f1, "F1 (K=0)", True, None),
    "f1_k100": Metric(lambda labels, scores: best_adjusted_f1(labels, scores, k=100).f1, "F1 (K=100)", True, None),
    "aff_f1": Metric(lambda labels, scores: best_affiliation(labels, scores).f1, "Aff-F1", True, 2 / 3),
    "auc_roc": Metric(auc_roc, "AUC-ROC", False, 0.5),
    "auc_pr": Metric(auc_pr, "AUC-PR", False, None),
    "r_auc_roc": Metric(lambda labels, scores: range_auc(labels, scores).roc, "R-AUC-ROC", False, None),
    "r_auc_pr": Metric(lambda labels, scores: range_auc(labels, scores).pr, "R-AUC-PR", False, None),
    "vus_roc": Metric(lambda labels, scores: vus(labels, scores).roc, "VUS-ROC", False, None),
    "vus_pr": Metric(lambda labels, scores: vus(labels, scores).pr, "VUS-PR", False, None),
}


def tsb_ad(window: int) -> Protocol:
    """The protocol of the TSB-AD benchmark for a series with this `sliding_window`.

    >>> from cometad.metrics import evaluate, tsb_ad
    >>> round(evaluate([0, 0, 1, 1, 0, 0], [0.1, 0.85, 0.9, 0.8, 0.2, 0.1], tsb_ad(2))["vus_pr"], 4)
    0.869
    """
    check_integer("window", window, 0)
    return Protocol("vus", window, window, ranks=250)


def sliding_window(readings: object) -> int:
    """Return the lag of the highest peak in the autocorrelation of one variable, or 125 if it lies outside 6 to 303.

    TSB-AD takes it from the first variable of the whole series. Of equal peaks, the last counts.

    >>> import numpy as np
    >>> from cometad.metrics import sliding_window
    >>> time = np.arange(1000)
    >>> sliding_window(np.sin(2 * np.pi * time / 40)), sliding_window(np.zeros(1000))
    (40, 125)
    """
    values = np.asarray(readings, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError(
            f"A sliding window needs the finite readings of one variable, got an array of shape {values.shape}. "
            "Pass one column without gaps."
        )
    correlation = _autocorrelation(values[:ROWS])[SKIPPED : LAGS + 1]
    inner = correlation[1:-1]
    peaks = 1 + np.flatnonzero((inner > correlation[:-2]) & (inner > correlation[2:]))
    if not len(peaks):
        return DEFAULT_WINDOW
    highest = peaks[correlation[peaks] == correlation[peaks].max()][-1]
    lag = SKIPPED + int(highest)
    return lag if SHORTEST <= lag <= LONGEST else DEFAULT_WINDOW


def _autocorrelation(values: Floats) -> Floats:
    """The autocorrelation at the lags 0, 1, ..., with the same divisor at all of them; empty for a constant."""
    from scipy.fft import next_fast_len  # imported where it is used

    centered = values - values.mean()
    # As long as TSB-AD's transform, whose rounding decides between peaks that are equal but for it.
    spectrum = np.fft.fft(centered, next_fast_len(2 * len(values) + 1, real=True))
    covariance = np.fft.ifft(spectrum * spectrum.conj())[: len(values)].real
    return covariance / covariance[0] if covariance[0] > 0 else covariance[:0]


def evaluate(labels: object, scores: object, protocol: str | Protocol = "paper") -> dict[str, float]:
    """The nine metrics of the paper, as fractions; `protocol` is a row of `PROTOCOLS` or a protocol of your own.

    >>> from cometad.metrics import evaluate
    >>> values = evaluate([0, 0, 1, 1, 0, 0], [0.1, 0.6, 0.9, 0.8, 0.2, 0.1])
    >>> values["f1_k100"], round(values["vus_pr"], 4)
    (1.0, 0.9951)
    """
    rules = _protocol(protocol)
    ranked = Ranked.of(labels, scores)
    values = {
        "f1_k0": best_adjusted(ranked, 0).f1,
        "f1_k100": best_adjusted(ranked, 100).f1,
        "aff_f1": ranked_best(ranked).f1,
        "auc_roc": roc_area(ranked),
        "auc_pr": average_precision(ranked),
    }
    window, max_window = resolved_window(ranked, rules.window), resolved_window(ranked, rules.max_window)
    roc, pr = window_areas(ranked, 0, max(window, max_window), rules.flavor, rules.ranks)
    values |= {
        "r_auc_roc": float(roc[window]),
        "r_auc_pr": float(pr[window]),
        "vus_roc": float(roc[: max_window + 1].mean()),
        "vus_pr": float(pr[: max_window + 1].mean()),
    }
    # The nine share one ranking; a metric added to the table is computed separately.
    added = {name: metric for name, metric in METRICS.items() if name not in values}
    return values | {name: metric.function(ranked.labels, ranked.scores) for name, metric in added.items()}


@dataclass(frozen=True)
class Reference:
    """No-skill references: the values of the nine metrics for random and for constant scores.

    >>> from cometad.metrics import reference
    >>> reference([0, 1, 0, 0]).all_positive["auc_roc"]
    0.5
    """

    random: dict[str, float]  # mean over several draws of uniform random scores
    all_positive: dict[str, float]  # constant scores, so every point is detected


def reference(labels: object, protocol: str | Protocol = "paper", draws: int = 10, seed: int = 0) -> Reference:
    """The values that random and constant scores reach on these labels. Compare every result with them.

    >>> from cometad.metrics import reference
    >>> round(reference([0, 1, 0, 0] * 50).random["auc_roc"], 1)
    0.5
    """
    check_integer("draws", draws, 1)
    truth = checked_labels(labels)
    rng = np.random.default_rng(seed)
    drawn = [evaluate(truth, rng.random(len(truth)), protocol) for _ in range(draws)]
    random = {name: float(np.mean([values[name] for values in drawn])) for name in METRICS}
    return Reference(random, evaluate(truth, np.zeros(len(truth)), protocol))


@dataclass(frozen=True)
class MetricValue:
    """The value of one metric, with its no-skill references.

    >>> from cometad.metrics import report
    >>> row = report([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1]).rows[3]
    >>> row.title, row.value, row.all_positive
    ('AUC-ROC', 1.0, 0.5)
    """

    name: str
    title: str
    value: float
    random: float
    all_positive: float
    higher_is_better: bool
    needs_oracle_threshold: bool


@dataclass(frozen=True)
class Evaluation:
    """The values of the nine metrics, with their references and the settings behind them.

    >>> from cometad.metrics import report
    >>> report([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1]).anomalous_points
    1
    """

    protocol: str
    flavor: str
    window: int
    max_window: int
    points: int
    anomalous_points: int
    segments: int
    rows: tuple[MetricValue, ...]

    def as_dict(self) -> dict[str, Any]:
        """The evaluation as plain dictionaries and lists, ready for JSON."""
        return asdict(self) | {"rows": [asdict(row) for row in self.rows]}


def report(labels: object, scores: object, protocol: str = "paper", draws: int = 10, seed: int = 0) -> Evaluation:
    """Evaluate scores by the nine metrics, with references, for a table or JSON.

    >>> from cometad.metrics import report
    >>> rows = report([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1]).rows
    >>> rows[0].title, rows[0].value, rows[0].needs_oracle_threshold
    ('F1 (K=0)', 1.0, True)
    """
    rules = _protocol(protocol)
    ranked = Ranked.of(labels, scores)
    values = evaluate(ranked.labels, ranked.scores, protocol)
    references = reference(ranked.labels, protocol, draws, seed)
    return Evaluation(
        protocol=protocol,
        flavor=rules.flavor,
        window=resolved_window(ranked, rules.window),
        max_window=resolved_window(ranked, rules.max_window),
        points=len(ranked),
        anomalous_points=ranked.anomalies,
        segments=len(ranked.segments.starts),
        rows=tuple(
            MetricValue(
                name=name,
                title=metric.title,
                value=values[name],
                random=references.random[name],
                all_positive=references.all_positive[name],
                higher_is_better=metric.higher_is_better,
                needs_oracle_threshold=metric.needs_oracle_threshold,
            )
            for name, metric in METRICS.items()
        ),
    )


def _protocol(given: str | Protocol) -> Protocol:
    if isinstance(given, Protocol):
        return given
    if given not in PROTOCOLS:
        raise unknown("protocol", given, PROTOCOLS)
    return PROTOCOLS[given]
