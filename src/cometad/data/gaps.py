"""What happens to missing readings: each rule is a value, and a `GapRun` fills readings that arrive in chunks.

A missing cell is a NaN; what stands in its place afterwards is *imputed* and marked as such, whatever the rule. A whole
series is a run taken to its end, so batch and stream agree by construction. docs/real-data.md says what to choose.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.arrays import Flags, Floats
from cometad.errors import InputError, ParameterError, unknown
from cometad.registry import register
from cometad.series import Series, with_all_columns

Bounds = tuple[ArrayLike, ArrayLike]  # the lowest and the highest value that may be filled in

UNBOUNDED = (-np.inf, np.inf)

_log = logging.getLogger("cometad")


class Filled(NamedTuple):
    """Readings without gaps; each field has the shape (time, variable)."""

    values: Floats
    imputed: Flags  # not measured: filled in
    doubtful: Flags  # filled in without a measured neighbor to go by: nothing is learned from it


class Cells(NamedTuple):
    """What is known of some readings with gaps; each field has the shape (time, variable)."""

    missing: Flags
    before: Floats  # the last value measured up to here; NaN where there is none yet
    after: Floats  # the first value measured from here on; NaN where none has come
    age: NDArray[np.int64]  # the place in the gap, from 1; 0 where the cell is measured
    length: NDArray[np.int64]  # of the gap, as far as it has come


class Settled(NamedTuple):
    """What a rule says of missing cells; each field has the shape (time, variable)."""

    values: Floats  # NaN where the rule has nothing to go by
    waits: Flags  # later readings decide


class Gaps(Protocol):
    """What every rule can do."""

    allowed: ClassVar[bool]  # whether readings may be missing at all

    def settle(self, cells: Cells) -> Settled:
        """What to fill in; cells that are not missing are not looked at."""


@register("RefuseGaps")
@dataclass(frozen=True)
class RefuseGaps:
    """A missing reading is an error that names it.

    >>> import numpy as np
    >>> from cometad.data.gaps import RefuseGaps, fill
    >>> fill(np.array([[1.0], [np.nan]]), RefuseGaps(), np.zeros(1))
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: A reading is missing. Fill it first, or choose a rule such as gaps=ForwardFill(limit=5).
    """

    allowed: ClassVar[bool] = False

    def settle(self, cells: Cells) -> Settled:
        """Refuse."""
        raise InputError("A reading is missing. Fill it first, or choose a rule such as gaps=ForwardFill(limit=5).")


@register("ForwardFill")
@dataclass(frozen=True)
class ForwardFill:
    """The last measured value stands in for up to `limit` readings after it; what lies beyond is as `ScoreMeasured`.

    >>> import numpy as np
    >>> from cometad.data.gaps import ForwardFill, fill
    >>> filled = fill(np.array([[1.0], [np.nan], [np.nan], [4.0]]), ForwardFill(limit=1), center=np.array([7.0]))
    >>> filled.values[:, 0], filled.imputed[:, 0], filled.doubtful[:, 0]
    (array([1., 1., 7., 4.]), array([False,  True,  True, False]), array([False, False,  True, False]))
    """

    limit: int = 5
    allowed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_limit(self.limit)

    def settle(self, cells: Cells) -> Settled:
        """Nothing waits."""
        return Settled(np.where(cells.age > self.limit, np.nan, cells.before), np.zeros_like(cells.missing))


@register("Interpolate")
@dataclass(frozen=True)
class Interpolate:
    """A line between the measured neighbors of a gap of up to `limit` readings; it waits for the second of them.

    A longer gap, or one without a neighbor on either side, is as by `ScoreMeasured`.

    >>> import numpy as np
    >>> from cometad.data.gaps import Interpolate, fill
    >>> fill(np.array([[1.0], [np.nan], [np.nan], [4.0]]), Interpolate(limit=2), np.zeros(1)).values[:, 0]
    array([1., 2., 3., 4.])
    """

    limit: int = 5
    allowed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_limit(self.limit)

    def settle(self, cells: Cells) -> Settled:
        """A cell waits until its gap ends or is too long."""
        short = (cells.length <= self.limit) & ~np.isnan(cells.before)
        known = short & ~np.isnan(cells.after)
        share = cells.age / (cells.length + 1)
        # Each neighbor times its share: their difference might overflow.
        values = np.where(known, (1 - share) * cells.before + share * cells.after, np.nan)
        return Settled(values, short & ~known)


@register("ScoreMeasured")
@dataclass(frozen=True)
class ScoreMeasured:
    """Score what is there and say so: the median of training only keeps the place, and nothing is learned from it.

    >>> import numpy as np
    >>> from cometad.data.gaps import ScoreMeasured, fill
    >>> filled = fill(np.array([[1.0], [np.nan], [3.0]]), ScoreMeasured(), center=np.array([7.0]))
    >>> filled.values[:, 0], filled.doubtful[:, 0]
    (array([1., 7., 3.]), array([False,  True, False]))
    """

    allowed: ClassVar[bool] = True

    def settle(self, cells: Cells) -> Settled:
        """There is nothing to go by, and nothing waits."""
        return Settled(np.full(cells.missing.shape, np.nan), np.zeros_like(cells.missing))


# name on the command line: rule
GAPS: dict[str, type[RefuseGaps] | type[ForwardFill] | type[Interpolate] | type[ScoreMeasured]] = {
    "refuse": RefuseGaps,
    "forward-fill": ForwardFill,
    "interpolate": Interpolate,
    "score-measured": ScoreMeasured,
}


def parse_gaps(text: str) -> RefuseGaps | ForwardFill | Interpolate | ScoreMeasured:
    """The rule of a name, with its limit where it has one.

    >>> from cometad.data.gaps import parse_gaps
    >>> parse_gaps("forward-fill:3"), parse_gaps("score-measured")
    (ForwardFill(limit=3), ScoreMeasured())
    >>> parse_gaps("refuse:3")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The gap rule 'refuse:3' is not one; there are refuse, forward-fill:LIMIT,
    interpolate:LIMIT, score-measured.
    """
    name, colon, number = text.partition(":")
    if name not in GAPS:
        raise unknown("gap rule", name, GAPS)
    rule = GAPS[name]
    if not colon:
        return rule()
    if rule not in (ForwardFill, Interpolate) or not number.isdecimal() or int(number) < 1:
        known = [f"{name}:LIMIT" if kind in (ForwardFill, Interpolate) else name for name, kind in GAPS.items()]
        raise ParameterError(f"The gap rule {text!r} is not one; there are {', '.join(known)}.")
    return rule(int(number))


class GapRun:
    """Fills readings that arrive in chunks of any size, in bounded memory.

    Where the rule has nothing to go by, `center` (variable,) keeps the place: a held value, were it an extreme one,
    would speak through the features that all variables share. Nor is anything else filled in beyond the `bounds`, the
    lowest and the highest value (variable,). With `Interpolate` the last readings, at most as many as its limit, wait
    for later ones; what is given is the same whatever the chunks.

    >>> import numpy as np
    >>> from cometad.data.gaps import GapRun, Interpolate
    >>> run = GapRun(Interpolate(limit=2), center=np.zeros(1))
    >>> [len(run.push(np.array([[value]])).values) for value in (1.0, np.nan, 3.0)]
    [1, 0, 2]
    >>> len(run.finish().values)
    0
    """

    def __init__(self, rule: Gaps, center: Floats, bounds: Bounds = UNBOUNDED) -> None:
        self._rule, self._center, self._bounds = rule, np.asarray(center, np.float64), bounds
        self._last = np.full(len(self._center), np.nan)  # the last value that was measured and given
        self._open = np.zeros(len(self._center), np.int64)  # missing cells given since
        self._waiting = np.empty((0, len(self._center)))

    @property
    def waiting(self) -> int:
        """How many readings wait for later ones."""
        return len(self._waiting)

    def push(self, values: Floats) -> Filled:
        """The readings (time, variable) that are settled with these, in which NaN is missing."""
        if not len(self._waiting) and len(values) and not np.isnan(values).any():  # most chunks
            self._last, self._open = values[-1].copy(), np.zeros_like(self._open)
            nothing = np.zeros(values.shape, bool)
            return Filled(values, nothing, nothing)
        return self._fill(np.concatenate([self._waiting, values]), ended=False)

    def finish(self) -> Filled:
        """The readings that still waited; none follows."""
        return self._fill(self._waiting, ended=True)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a later `restore` needs, by name."""
        return {"last": self._last.copy(), "open": self._open.copy(), "waiting": self._waiting.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become the run whose state it is; it has the same rule and center."""
        self._last, self._open, self._waiting = (state[name].copy() for name in ("last", "open", "waiting"))

    def _fill(self, values: Floats, ended: bool) -> Filled:
        missing = np.isnan(values)
        settled = self._rule.settle(self._cells(values, missing)) if missing.any() else Settled(values, missing)
        waits = np.zeros(len(values), bool) if ended else (missing & settled.waits).any(axis=1)
        ready = int(waits.argmax()) if waits.any() else len(values)
        doubtful = missing & np.isnan(settled.values)
        filled = np.where(missing, np.clip(settled.values, *self._bounds), values)
        filled = np.where(doubtful, self._center, filled)
        self._go_on(values[:ready])
        self._waiting = values[ready:].copy()
        return Filled(filled[:ready], missing[:ready], doubtful[:ready])

    def _cells(self, values: Floats, missing: Flags) -> Cells:
        count, columns = len(values), np.arange(values.shape[1])
        steps = np.arange(count)[:, None]
        # The places of the measured neighbors; the one before may have been given already, the other not have come.
        before = np.maximum.accumulate(np.where(missing, -1 - self._open, steps))
        after = np.minimum.accumulate(np.where(missing, count, steps)[::-1])[::-1]
        return Cells(
            missing,
            np.where(before < 0, self._last, values[np.maximum(before, 0), columns]),
            np.where(after == count, np.nan, values[np.minimum(after, count - 1), columns]),
            steps - before,
            np.maximum(after - before - 1, 0),
        )

    def _go_on(self, given: Floats) -> None:
        """Remember what was measured last."""
        for variable, column in enumerate(given.T):
            measured = np.flatnonzero(~np.isnan(column))
            if len(measured):
                self._last[variable] = column[measured[-1]]
                self._open[variable] = len(column) - 1 - measured[-1]
            else:
                self._open[variable] += len(column)


def fill(values: Floats, rule: Gaps, center: Floats, bounds: Bounds = UNBOUNDED) -> Filled:
    """A whole series (time, variable) in which NaN is missing, filled: a run taken to its end.

    >>> import numpy as np
    >>> from cometad.data.gaps import Interpolate, fill
    >>> fill(np.array([[0.0], [np.nan], [np.nan]]), Interpolate(limit=2), np.zeros(1)).doubtful[:, 0]
    array([False,  True,  True])
    """
    run = GapRun(rule, center, bounds)
    first, last = run.push(np.asarray(values, np.float64)), run.finish()
    if not len(last.values):
        return first
    values, imputed, doubtful = (np.concatenate(parts) for parts in zip(first, last, strict=True))
    return Filled(values, imputed, doubtful)


def complete(series: Series, names: tuple[str, ...]) -> Series:
    """The series with a column of missing readings for each variable that is gone, which is told.

    >>> import polars as pl
    >>> from cometad.data.gaps import complete
    >>> from cometad.series import unchecked_series
    >>> complete(unchecked_series(pl.DataFrame({"flow": [1.0]})), ("flow", "level")).values
    array([[ 1., nan]])
    """
    whole = with_all_columns(series, names)
    if whole is not series:
        gone = ", ".join(repr(name) for name in names if name not in series.names)
        _log.warning("There is no column %s. All its readings count as missing.", gone)
    return whole


def _check_limit(limit: Any) -> None:
    if type(limit) is bool or not isinstance(limit, Integral) or int(limit) < 1:
        raise ParameterError(f"The 'limit' parameter must be an integer from 1 up. Got {limit!r} instead.")
