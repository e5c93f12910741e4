"""What a report holds: numbers already thinned and texts, nothing that grows with the length of the data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cometad.arrays import Floats
from cometad.report.drift import Drift
from cometad.report.thin import thin
from cometad.report.times import Tick
from cometad.report.usage import Usage


class Line(NamedTuple):
    """A curve as it is drawn.

    >>> import numpy as np
    >>> from cometad.report.contents import Line
    >>> Line.of(np.array([3.0, 1.0, 2.0]))
    Line(places=array([0. , 0.5, 1. ]), values=array([3., 1., 2.]))
    """

    places: Floats  # (point,)  0 at the first time step, 1 at the last
    values: Floats  # (point,)

    @classmethod
    def of(cls, values: Floats) -> "Line":
        """The curve of values (time,), thinned."""
        chosen = thin(values)
        return cls(chosen / max(len(values) - 1, 1), np.asarray(values[chosen], np.float64))


class Mark(NamedTuple):
    """Where an event lies on an axis of time.

    >>> from cometad.report.contents import Mark
    >>> Mark(number=1, start=0.2, stop=0.3, peak=0.25).peak
    0.25
    """

    number: int
    start: float  # places, as in a `Line`
    stop: float
    peak: float


@dataclass(frozen=True)
class Strip:
    """Scores over a stretch of time, with its events."""

    scores: Line
    thresholds: Line
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Trace:
    """One variable during an event."""

    variable: str
    share: float  # of the event's score
    observed: Line
    normal: Line  # the nearest normal pattern, in the variable's units
    sentence: str  # where they differ most


@dataclass(frozen=True)
class Panel:
    """One event."""

    number: int
    start: str
    end: str  # its last time step, without the date where that is the start's, like the peak
    peak: str
    lasting: str
    severity: float
    score: float  # at the peak
    top: tuple[tuple[str, float], ...]  # the variables with the largest shares; none where nothing explains
    strip: Strip  # the scores around it
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Report:
    """Everything that stands on the page."""

    headline: str
    period: str  # of the data
    summary: tuple[tuple[str, str], ...]  # what, and how much of it
    center: float  # the median of the training scores: where scores are at rest
    threshold: float  # in training
    axis: str  # what an axis of time shows
    strip: Strip
    event_count: int
    panels: tuple[Panel, ...]  # of the worst events, in the order of time
    explained: bool  # the detector says which variables are behind a score
    usages: tuple[Usage, ...]  # one per scale; none where the detector has no codebook
    drift: Drift
    findings: tuple[tuple[str, str], ...]  # of the data's quality: the kind, and a sentence
    settings: Mapping[str, Any]  # what JSON can hold
