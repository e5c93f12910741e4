"""Why a score is high: each variable's share, the view or scale that shows it best, and what was expected.

This file has the arithmetic; `by_views.py` and `explainer.py` supply the numbers. docs/explanations.md says what shares
mean.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Event
from cometad.arrays import Floats, Floats32
from cometad.errors import InputError
from cometad.parameters import is_integer
from cometad.scoring.scores import calibrated
from cometad.series import Series

LARGE = 1e9  # from here on numbers are written with an exponent
MAX_PLACES = 12
LEAST_SHARE = 0.03  # of a variable that is shown as a cause


@dataclass(frozen=True, eq=False)
class Reason:
    """One variable's share of a score, why it is unusual, and its readings next to what was expected.

    >>> import numpy as np
    >>> from cometad.explain.reasons import Reason
    >>> why = "not what its last readings lead to"
    >>> reason = Reason("flow", 0.9, "forecast", why, 6, 5, 7, np.array([4.1, 7.1]), np.array([4.0, 4.2]), band=0.3)
    >>> reason.sentence()
    'Not what its last readings lead to: it read 7.1, expected 4.2 ± 0.3.'
    """

    variable: str
    share: float  # at least 0; the shares of all variables sum to 1
    view: str  # the view of normal that shows it best: "forecast"; "network" if the detector has no views
    why: str  # what that view finds, in words
    step: int  # time step at which reading and expectation differ most
    start: int  # first time step of `observed` and `expected`
    stop: int  # one after their last
    observed: Floats  # (time,)  in sensor units; NaN where imputed
    expected: Floats  # (time,)  in sensor units; NaN where nothing particular is expected
    band: float | None = None  # 98 % of normal readings are this close to what is expected, in sensor units
    scale: int | None = None  # of the network: patch size of the scale that contributes most
    code: int | None = None  # the nearest code that training activated; `expected` is that code, decoded
    frequency: float | None = None  # share of the training patches of this scale that took this code
    usually: str = ""  # when it is expected, if the variable has a season: "on Sundays at this hour"

    def sentence(self, when: str = "") -> str:
        """What is unusual, what it read, at a time in words if given, and what was expected."""
        row = self.step - self.start
        read, expected = float(self.observed[row]), float(self.expected[row])
        why, when = self.why[:1].upper() + self.why[1:], f" at {when}" if when else ""
        if math.isnan(read):
            return f"{why}."
        if math.isnan(expected):
            return f"{why}: it read {read:.4g}{when}."
        unit = self.band or abs(read - expected)
        band = "" if self.band is None else f" ± {rounded(self.band, unit)}"
        usually = f" {self.usually}" if self.usually else ""
        return f"{why}: it read {rounded(read, unit)}{when}, expected {rounded(expected, unit)}{band}{usually}."


def rounded(value: float, unit: float) -> str:
    """A value with as many decimals as show two digits of `unit`, without zeros at the end."""
    if abs(value) >= LARGE or not unit > 0:
        return f"{value:.4g}"
    places = min(max(1 - math.floor(math.log10(unit)), 0), MAX_PLACES)
    written = f"{value:,.{places}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which variables raised the score of an event or a time step, and what was expected instead.

    >>> import numpy as np
    >>> from cometad.explain.reasons import Explanation
    >>> Explanation(5, 7, 6, 3.5, (), 4, np.zeros((4, 1)), np.zeros((4, 1))).as_json()["peak"]
    6
    """

    start: int
    stop: int  # half-open
    peak: int  # time step of the highest score
    score: float  # alert score at the peak
    reasons: tuple[Reason, ...]  # one per variable, largest share first
    begin: int  # time step of the first row of `observed` and `normal`
    observed: Floats  # (time, variable)  readings in sensor units, with some context; NaN where imputed
    normal: Floats  # (time, variable)  what was expected instead, in sensor units; NaN where unknown
    names: tuple[str, ...] = ()  # of the variables

    @property
    def causes(self) -> tuple[Reason, ...]:
        """The reasons that are worth showing: the first, and others with a share of at least 3 %."""
        return tuple(reason for k, reason in enumerate(self.reasons) if k == 0 or reason.share >= LEAST_SHARE)

    def as_json(self) -> dict[str, Any]:
        """The explanation in types that JSON can hold; an imputed reading is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def measured(series: Series, begin: int, end: int) -> Floats:
    """The readings of the steps begin..end (time, variable); NaN where imputed."""
    values, imputed = series.values[begin:end], series.imputed
    return values.copy() if imputed is None else np.where(imputed[begin:end], np.nan, values)


def rises(windows: Floats32, typical: Floats32, scores: Callable[[Floats32], Floats]) -> Floats:
    """How much each variable raises the scores (window, time) of windows (window, time, variable), as a last axis.

    The mean of two differences from `typical` readings (variable,): how much the score rises if only this variable
    keeps its readings and all others are typical, and how much it falls if only this variable is typical. The first
    finds a variable among many that deviate, the second a variable that merely disagrees with the others.
    """
    quiet = np.empty_like(windows)
    quiet[:] = typical
    observed, lowest = scores(windows), scores(quiet[:1])
    raised = np.empty(windows.shape)
    for i in range(windows.shape[2]):
        alone, without = quiet.copy(), windows.copy()
        alone[:, :, i], without[:, :, i] = windows[:, :, i], typical[i]
        raised[:, :, i] = ((scores(alone) - lowest) + (observed - scores(without))) / 2
    return raised


def shares(raised: Floats) -> Floats:
    """Each variable's share (variable,), given how much it raises the score of each time step (time, variable).

    A variable counts by the time step it raises most; if it only lowers scores, it counts 0. If no variable raises any
    score, all shares are equal.
    """
    highest = np.maximum(raised.max(axis=0), 0.0)
    largest = highest.max()
    if largest == 0:
        return np.full(len(highest), 1 / len(highest))
    relative = highest / largest  # avoids overflow
    share: Floats = relative / relative.sum()
    return share


ROUNDING = 1e-9  # a rise this small is a rounding error of the scores
TAIL = math.log(25)  # from the median to the 98 % quantile of an exponential distribution, in units of its mean


def usual_rises(steps: int, spans: Sequence[int]) -> Floats:
    """How far views with these spans and, last, the level (voice,) rise for a healthy variable in `steps` readings.

    The highest of n exponential errors is about ln n means above their median. Windows that overlap by half count as
    independent. The level is that of a normal distribution.
    """
    counts = [2 * (steps + span - 1) / span for span in spans]
    return np.array([*(calibrated(math.log(n), 0.0, TAIL, 1.0) for n in counts), 0.5 * math.log1p(math.log(steps))])


def rises_of_voices(voices: Floats, start: int, spans: Sequence[int]) -> Floats:
    """How far each voice rose for each variable (voice, variable), given calibrated scores (time, voice, variable).

    A rise is the highest score from row `start` on, less the median of the rows before and the usual rise: a variable
    that was odd for days is not the cause of what began a minute ago, and in a long event any score is high at times.
    It is at least 0. Unknown scores (NaN) are left out; without any known one before, the median is 0; without any
    from `start` on, the rise is NaN. `spans` are those of the views; the last voice is the level.
    """
    inside = voices[start:]
    highest = np.where(np.isnan(inside), -np.inf, inside).max(axis=0)
    above: Floats = highest - _medians(voices[:start]) - usual_rises(len(inside), spans)[:, None]
    above = np.where(above > ROUNDING, above, 0.0)
    return np.where(np.isneginf(highest), np.nan, above)


def joined_rises(rises: Floats) -> Floats:
    """How far each variable rose (variable,), given rises (voice, variable) of the views and, last, of the level.

    The mean of two: the mean over the views, and the level. Unknown ones (NaN) are left out; 0 where all are.
    """
    views = _known_mean(rises[:-1])
    both = _known_mean(np.stack([views, rises[-1]]))
    return np.where(np.isnan(both), 0.0, both)


def _known_mean(values: Floats) -> Floats:
    """The mean of the known values (voice, variable); NaN where none is."""
    known = (~np.isnan(values)).sum(axis=0)
    mean: Floats = np.where(np.isnan(values), 0.0, values).sum(axis=0) / np.maximum(known, 1)
    return np.where(known > 0, mean, np.nan)


def _medians(values: Floats) -> Floats:
    """The median over time of the known values (time, ...); 0 where none is."""
    if not len(values):
        return np.zeros(values.shape[1:])
    known = (~np.isnan(values)).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN comes last
    low, high = (np.take_along_axis(ordered, k[None], axis=0)[0] for k in (np.maximum(known - 1, 0) // 2, known // 2))
    return np.where(known > 0, (low + np.where(known > 1, high, low)) / 2, 0.0)


class Worst(NamedTuple):
    """Where each variable deviates most; each field is (variable,)."""

    scale: NDArray[np.int64]  # index of the scale
    patch: NDArray[np.int64]  # index of the patch at that scale


def worst_patches(excess: Sequence[Floats], weights: Sequence[Floats]) -> Worst:
    """The scale that contributes most to each variable's score, and its worst patch there.

    For each scale, `excess` (patch, variable) is how far patch scores lie above their training level and `weights`
    (patch,) how much each patch counts. A scale contributes the weighted sum of its patches.
    """
    parts = [weight @ above for above, weight in zip(excess, weights, strict=True)]
    scale = np.argmax(parts, axis=0)
    highest = np.array([above.argmax(axis=0) for above in excess])  # (scale, variable)
    return Worst(scale, highest[scale, np.arange(len(scale))])


def stretch_of(event: object, rows: int, purpose: str = "explain") -> tuple[int, int]:
    """The time steps (start, stop) of an event, a time step or a pair, checked against a series of `rows` readings.

    `purpose` is the verb of the error for anything else.
    """
    start, stop = _bounds(event, purpose)
    if not start < stop:
        raise InputError(
            f"Start {start} and stop {stop} enclose no time step, because stop is exclusive. Pass a later stop."
        )
    if start < 0 or stop > rows:
        raise InputError(f"Time steps {start} to {stop} are outside the series, which has {rows:,} readings.")
    return start, stop


def _bounds(event: object, purpose: str) -> tuple[int, int]:
    if isinstance(event, Event):
        return event.start, event.stop
    if is_integer(event):
        return int(event), int(event) + 1  # type: ignore[call-overload]
    if isinstance(event, tuple | list) and len(event) == 2 and all(map(is_integer, event)):
        return int(event[0]), int(event[1])
    raise InputError(f"Cannot {purpose} {event!r}. Pass an event, a time step or a pair (start, stop).")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        plain = value.astype(object)
        plain[np.isnan(value)] = None
        return plain.tolist()
    return value
