"""The contents of a report: text and thinned numbers, bounded in size however long the series is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cometad.alerting.alerts import Level
from cometad.arrays import Floats
from cometad.report.score_drift import ScoreDrift
from cometad.report.thin import thin
from cometad.report.time_axis import Tick
from cometad.report.usage import Usage


class Line(NamedTuple):
    """A curve, thinned for drawing."""

    places: Floats  # (point,)  0 at the first time step, 1 at the last
    values: Floats  # (point,)

    @classmethod
    def of(cls, values: Floats) -> "Line":
        """The curve of values (time,), thinned."""
        chosen = thin(values)
        return cls(chosen / max(len(values) - 1, 1), np.asarray(values[chosen], np.float64))


class Mark(NamedTuple):
    """Where an event lies on a time axis, and how strongly it is drawn."""

    number: int
    start: float  # places, as in a `Line`
    stop: float
    peak: float
    strength: float = 1.0


@dataclass(frozen=True)
class Strip:
    """Scores over a period, with its events."""

    alerts: Line  # alert scores
    thresholds: Line
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    ranking: Line | None = None  # ranking scores; None if they are the alert scores


@dataclass(frozen=True)
class Trace:
    """One variable during an event."""

    variable: str
    share: float  # of the rises of all variables
    observed: Line
    normal: Line  # what was expected, in the variable's units
    sentence: str  # why it is unusual, and where the two differ most


@dataclass(frozen=True)
class EventPanel:
    """One event."""

    number: int
    start: str
    end: str  # of its last time step; like the peak, without the date if that is the same as at the start
    peak: str
    duration: str
    severity: float
    meaning: str  # how often normal operation reaches that severity
    level: Level
    new_level: bool  # it ended because its state is no longer news
    score: float  # the alert score at its peak
    top: tuple[tuple[str, float], ...]  # variables with the largest shares; empty if the detector cannot explain
    strip: Strip  # the scores around the event
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    headline: str
    period: str  # first and last time of the series
    summary: tuple[tuple[str, str], ...]  # key figures: label and value
    center: float  # median of the alert scores in training
    threshold: float  # in training
    axis: str  # what time axes show: "time" or "time step"
    strip: Strip
    counts: Mapping[Level, int]  # of events
    panels: tuple[EventPanel, ...]  # of the worst events, worst first; so alerts come before notices
    explained: bool  # whether the detector can name the variables behind an event
    usages: tuple[Usage, ...]  # one per scale; empty if the detector has no codebook
    drift: ScoreDrift
    findings: tuple[tuple[str, str], ...]  # trends, left out, data quality: kind, sentence
    settings: Mapping[str, Any]  # as JSON values
