"""The drift experiment: detection before, during and after a controlled drift, with and without adaptation.

One fitted detector scores the same controlled series twice, once adapting and once as fitted. `measure` returns the
figures of one pass; `compare` returns what adaptation changed, above all how far it moved the scores of the faults.
A figure is None where it is undefined: a phase without faults, or the logarithm of a negative number.
"""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import Fault, synthetic_plant
from cometad.detector import Detector
from cometad.metrics import auc_pr, auc_roc
from cometad_bench.datasets.drift import DRIFTS, PHASES, Controlled, controlled_series, split_normal
from cometad_bench.experiments import PLANT, Arm
from cometad_bench.results import Record
from cometad_bench.trial import Fitting, Measure, Measured, common_threshold, costs

Figures = dict[str, Any]
RULE = ("alert_scores", "thresholds")  # what a stream says about its own threshold rule, besides the flags
READINGS = {"short": 8_000, "long": 60_000}  # normal readings that a plant's controlled series is built from
CONTAMINATIONS = (0.0, 0.01, 0.05, 0.1, 0.3)
EVERYWHERE = (0.0, 0.05)  # contaminations that every drift is run with
CONTAMINATED = ("none", "offset")  # drifts that are run with every contamination


def settings_of(entity: str) -> list[dict[str, Any]]:
    """Return parameters of `controlled_series`, one set for each trial; the long stream gets four basic ones."""
    shares = {drift: CONTAMINATIONS if drift in CONTAMINATED else EVERYWHERE for drift in DRIFTS}
    if entity == "long":
        shares = dict.fromkeys(CONTAMINATED, (0.0, 0.3))
    return [{"drift": drift, "strength": 1.0, "contamination": share} for drift, own in shares.items() for share in own]


def plants() -> list[Dataset]:
    """Return synthetic plants without drift or faults, for a short and for a long stream."""
    both = []
    for entity, rows in READINGS.items():
        plant = synthetic_plant(train_rows=12_000, test_rows=rows, drift=0.0, faults_per_kind=0)
        both.append(replace(plant.as_dataset(), name=PLANT, entity=entity))
    return both


def drift(dataset: Dataset, device: str) -> Measure:
    """One fitted detector scores many controlled series, adapting and as fitted."""
    # The readings to fit on, and those that controlled series are built from; both are normal.
    parts = (dataset.train, dataset.test) if dataset.name == PLANT else split_normal(dataset.train)
    fitting = Fitting(replace(dataset, train=parts[0]), device)
    fitted: dict[str, tuple[Detector, float]] = {}  # a detector serves all settings

    def trial(arm: Arm, plan: Record) -> Measured:
        if arm.name not in fitted:
            fitted[arm.name] = fitting(arm, plan["seed"])
        detector, seconds = fitted[arm.name]
        series = controlled_series(*parts, **plan["setting"], align=getattr(detector, "window", 1), seed=plan["seed"])
        started = time.monotonic()
        adapting, fixed = both_ways(detector, series)
        return costs(detector, seconds, time.monotonic() - started) | {
            "adapting": adapting,
            "fixed": fixed,
            "moved": compare(adapting, fixed),
        }

    return trial


def both_ways(detector: Any, series: Controlled) -> tuple[Figures, Figures]:
    """Return the figures of a detector adapting and as fitted; they are the same if it cannot adapt."""
    if detector.can_stream and detector.can_adapt:
        return measure(detector, series), measure(detector, series, detector.without_adaptation)
    scores = detector.decision_function(series.values)
    return (outcome(series, scores, common_threshold(detector.decision_scores_)),) * 2


def measure(detector: Any, series: Controlled, adaptation: Any = None) -> Figures:
    """Score a controlled series and return the figures, ready for JSON; None uses the detector's own adaptation.

    For each phase: both areas, the median score of normal readings, and the shares of normal readings (false alarms)
    and of fault readings (found) above the benchmark's threshold. For each probe, in `before` and in `after`: its mean
    score, and the share of that phase's normal readings that score lower (rank). Scores are multiples of the threshold.
    `own`: what the detector's own threshold rule does with its alert scores, for example a budget. The detector is not
    changed.
    """
    stream = detector.stream(adaptation=adaptation)
    parts = [stream.update_many(series.values), stream.finish()]
    threshold = common_threshold(detector.decision_scores_)
    figures = outcome(series, np.concatenate(parts), threshold, *stream.adaptation_steps)
    flags = np.concatenate([part.flags for part in parts]).astype(bool)
    alerts, thresholds = (np.concatenate([getattr(part, name) for part in parts]) for name in RULE)
    return figures | {"own": own_rule(series, flags, alerts > thresholds[0])}


def own_rule(series: Controlled, flags: NDArray[np.bool_], unmoved: NDArray[np.bool_]) -> Figures:
    """Return what a threshold rule flags in each phase, and what it would flag if its threshold never moved.

    For both flags (time,): the share of normal readings (false alarms), and the share of the faults with at least one
    flag (touched), None in a phase without faults.
    """
    figures = {}
    for name, (start, stop) in series.phases.items():
        normal = ~series.labels[start:stop]
        faults = [fault for fault in series.faults if start <= fault.start < stop]
        figures[name] = {
            f"{figure}{suffix}": value
            for suffix, raised in (("", flags), ("_unmoved", unmoved))
            for figure, value in (
                ("false_alarms", float(raised[start:stop][normal].mean())),
                ("touched", float(np.mean([raised[one.start : one.stop].any() for one in faults])) if faults else None),
            )
        }
    return figures


def outcome(series: Controlled, scores: Floats, threshold: float, steps: int = 0, rolled_back: int = 0) -> Figures:
    # A threshold of 0 or less cannot be a unit: for some detectors, 0 is the median training score.
    unit = threshold if threshold > 0 else None

    def multiple(score: np.floating[Any]) -> float | None:
        return None if unit is None else float(score) / unit

    normal = {name: scores[start:stop][~series.labels[start:stop]] for name, (start, stop) in series.phases.items()}

    def phase(name: str) -> Figures:
        at = slice(*series.phases[name])
        labels, own = series.labels[at], scores[at]
        both = labels.any() and not labels.all()
        return {
            "auc_roc": auc_roc(labels, own) if both else None,
            "auc_pr": auc_pr(labels, own) if both else None,
            "normal_score": multiple(np.median(normal[name])),
            "false_alarms": float((normal[name] > threshold).mean()),
            "found": float((own[labels] > threshold).mean()) if both else None,
        }

    def probe(name: str, fault: Fault) -> Figures:
        """The mean score of a fault, and its rank among the normal readings."""
        score = scores[fault.start : fault.stop].mean()
        return {"score": multiple(score), "rank": float((normal[name] < score).mean())}

    return {
        "threshold": threshold,
        "phases": {name: phase(name) for name in PHASES},
        "probes": {
            one.kind: {"before": probe("before", one), "after": probe("after", two)} for one, two in series.probes
        },
        "steps": steps,
        "rolled_back": rolled_back,
    }


def compare(adapting: Figures, fixed: Figures) -> Figures:
    """Return what adaptation changed, from the figures of one detector on one series, adapting and as fitted.

    For each phase, the figures when adapting minus those as fitted; for each probe, and for the median normal reading,
    how far the score in `after` moved: as the logarithm of the ratio, and as a difference in units of the threshold.
    """
    return {
        "phases": {
            name: {figure: _difference(value, fixed["phases"][name][figure]) for figure, value in phase.items()}
            for name, phase in adapting["phases"].items()
        },
        "probes": {
            kind: _moved(probe["after"]["score"], fixed["probes"][kind]["after"]["score"])
            for kind, probe in adapting["probes"].items()
        },
        "normal": _moved(*(figures["phases"]["after"]["normal_score"] for figures in (adapting, fixed))),
    }


def _difference(adapting: float | None, fixed: float | None) -> float | None:
    return None if adapting is None or fixed is None else adapting - fixed


def _moved(adapting: float | None, fixed: float | None) -> Figures:
    ratio = None if adapting is None or fixed is None or min(adapting, fixed) <= 0 else math.log(adapting / fixed)
    return {"log_ratio": ratio, "difference": _difference(adapting, fixed)}
