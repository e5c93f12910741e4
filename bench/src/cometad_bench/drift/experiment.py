"""The drift experiment: detection before, during and after a controlled drift, with and without adaptation.

One fitted detector scores the same controlled series twice, once adapting and once as fitted. `measure` returns the
figures of one pass; `compare` returns what adaptation changed, above all how far it moved the scores of the faults.
A figure is None where it is undefined: a phase without faults, or the logarithm of a negative number.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.synthetic import Fault
from cometad.live.stream import Stream
from cometad.metrics import auc_pr, auc_roc
from cometad_bench.datasets.drift import DRIFTS, PHASES, Controlled
from cometad_bench.trial import common_threshold

Figures = dict[str, Any]
RULE = ("alert_scores", "thresholds")  # what a stream says about its own threshold rule, besides the flags


@dataclass(frozen=True)
class Setting:
    """How a series is changed; the fields are parameters of `controlled_series`."""

    drift: str
    strength: float = 1.0
    contamination: float = 0.0


CONTAMINATIONS = (0.0, 0.01, 0.05, 0.1, 0.3)
EVERYWHERE = (0.0, 0.05)  # contaminations that every drift is run with
CONTAMINATED = ("none", "offset")  # drifts that are run with every contamination

SETTINGS: tuple[Setting, ...] = tuple(
    Setting(drift, contamination=share)
    for drift in DRIFTS
    for share in (CONTAMINATIONS if drift in CONTAMINATED else EVERYWHERE)
)


class AdaptiveStreaming(Protocol):
    """A fitted detector that streams with an adaptation of the caller's choice."""

    without_adaptation: Any
    decision_scores_: Floats

    def stream(self, snapshot: bytes | None = None, *, adaptation: Any = None) -> Stream:
        """Return a stream that starts from the fitted state."""


def measure(detector: AdaptiveStreaming, series: Controlled, adaptation: Any = None) -> Figures:
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
    phases = {name: _Phase.of(series, scores, threshold, name) for name in PHASES}
    return {
        "threshold": threshold,
        "phases": {name: phase.figures() for name, phase in phases.items()},
        "probes": {
            before.kind: {"before": phases["before"].probe(before), "after": phases["after"].probe(after)}
            for before, after in series.probes
        },
        "steps": steps,
        "rolled_back": rolled_back,
    }


class _Phase(NamedTuple):
    start: int
    labels: NDArray[np.bool_]  # (time,)
    scores: Floats  # (time,)
    threshold: float

    @classmethod
    def of(cls, series: Controlled, scores: Floats, threshold: float, name: str) -> "_Phase":
        start, stop = series.phases[name]
        return cls(start, series.labels[start:stop], scores[start:stop], threshold)

    def figures(self) -> Figures:
        both = self.labels.any() and not self.labels.all()
        above = self.scores > self.threshold
        return {
            "auc_roc": auc_roc(self.labels, self.scores) if both else None,
            "auc_pr": auc_pr(self.labels, self.scores) if both else None,
            "normal_score": self._multiple(np.median(self.scores[~self.labels])),
            "false_alarms": float(above[~self.labels].mean()),
            "found": float(above[self.labels].mean()) if both else None,
        }

    def probe(self, fault: Fault) -> Figures:
        """Return the mean score of a fault, and its rank among the normal readings."""
        score = self.scores[fault.start - self.start : fault.stop - self.start].mean()
        return {"score": self._multiple(score), "rank": float((self.scores[~self.labels] < score).mean())}

    def _multiple(self, score: np.floating[Any]) -> float | None:
        # A threshold of 0 or less cannot be a unit: for some detectors, 0 is the median training score.
        return float(score) / self.threshold if self.threshold > 0 else None


def compare(adapting: Figures, fixed: Figures) -> Figures:
    """Return what adaptation changed, from the figures of one detector on one series, adapting and as fitted.

    For each phase, the figures when adapting minus those as fitted; for each probe, and for the median normal reading,
    how far the score in `after` moved: as the logarithm of the ratio, and as a difference in units of the threshold.
    """
    return {
        "phases": {name: _subtract(phase, fixed["phases"][name]) for name, phase in adapting["phases"].items()},
        "probes": {
            kind: _moved(probe["after"]["score"], fixed["probes"][kind]["after"]["score"])
            for kind, probe in adapting["probes"].items()
        },
        "normal": _moved(*(figures["phases"]["after"]["normal_score"] for figures in (adapting, fixed))),
    }


def _subtract(adapting: Figures, fixed: Figures) -> Figures:
    return {name: _difference(value, fixed[name]) for name, value in adapting.items()}


def _moved(adapting: float | None, fixed: float | None) -> Figures:
    return {"log_ratio": _log_ratio(adapting, fixed), "difference": _difference(adapting, fixed)}


def _difference(adapting: float | None, fixed: float | None) -> float | None:
    return None if adapting is None or fixed is None else adapting - fixed


def _log_ratio(adapting: float | None, fixed: float | None) -> float | None:
    return None if adapting is None or fixed is None or min(adapting, fixed) <= 0 else math.log(adapting / fixed)
