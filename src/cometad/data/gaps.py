"""Gap rules for missing readings: each rule is a value, and a `GapRun` applies it to readings that arrive in chunks.

A missing cell is NaN, and its replacement is always marked as *imputed*. A whole series is one long run, so batch and
stream agree by construction. docs/real-data.md helps to choose a rule.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.arrays import Flags, Floats
from cometad.errors import InputError
from cometad.parameters import check_integer, parse
from cometad.registry import register
from cometad.saving import Saved, Table, array
from cometad.series import Series, with_all_columns

Bounds = tuple[ArrayLike, ArrayLike]  # the lowest and highest value to impute

UNBOUNDED = (-np.inf, np.inf)

_log = logging.getLogger("cometad")


class Filled(NamedTuple):
    """Readings without gaps; each field has the shape (time, variable)."""

    values: Floats
    imputed: Flags  # not measured
    doubtful: Flags  # imputed with a placeholder, because the rule has no value: never learned from


class Cells(NamedTuple):
    """Readings with gaps, as a rule sees them; each field has the shape (time, variable)."""

    missing: Flags
    before: Floats  # the last value measured up to here; NaN if there is none yet
    after: Floats  # the first value measured from here on; NaN if none has arrived
    age: NDArray[np.int64]  # position in the gap, from 1; 0 for a measured cell
    length: NDArray[np.int64]  # of the gap so far


class Settled(NamedTuple):
    """What a rule decides about missing cells; each field has the shape (time, variable)."""

    values: Floats  # NaN where the rule has no value
    waits: Flags  # undecided until later readings arrive


class Gaps(Protocol):
    """The interface of a gap rule."""

    allowed: ClassVar[bool]  # whether readings may be missing at all

    def settle(self, cells: Cells) -> Settled:
        """Decide about the missing cells; values for measured cells are ignored."""


@register("RefuseGaps")
@dataclass(frozen=True)
class RefuseGaps:
    """Refuse missing readings; the error of a detector names the first one.

    >>> import numpy as np
    >>> from cometad.data.gaps import RefuseGaps, fill
    >>> fill(np.array([[1.0], [np.nan]]), RefuseGaps(), np.zeros(1))
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: A reading is missing. Fill or drop missing readings (NaN) first, or choose a gap rule
    such as gaps=ForwardFill(limit=5).
    """

    allowed: ClassVar[bool] = False

    def settle(self, cells: Cells) -> Settled:
        """Raise an error."""
        raise InputError("A reading is missing.", advice="gaps")


@dataclass(frozen=True)
class _Limited:
    limit: int = 5  # readings
    allowed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer("limit", self.limit, least=1)


@register("ForwardFill")
@dataclass(frozen=True)
class ForwardFill(_Limited):
    """Repeat the last measured value for up to `limit` readings; beyond that, act like `ScoreMeasured`.

    >>> import numpy as np
    >>> from cometad.data.gaps import ForwardFill, fill
    >>> filled = fill(np.array([[1.0], [np.nan], [np.nan], [4.0]]), ForwardFill(limit=1), center=np.array([7.0]))
    >>> filled.values[:, 0], filled.imputed[:, 0], filled.doubtful[:, 0]
    (array([1., 1., 7., 4.]), array([False,  True,  True, False]), array([False, False,  True, False]))
    """

    def settle(self, cells: Cells) -> Settled:
        """The last value, within the limit; nothing waits."""
        return Settled(np.where(cells.age > self.limit, np.nan, cells.before), np.zeros_like(cells.missing))


@register("Interpolate")
@dataclass(frozen=True)
class Interpolate(_Limited):
    """Interpolate linearly across a gap of up to `limit` readings; a stream waits for the reading after the gap.

    A longer gap, or one without a neighbor on either side, is treated as in `ScoreMeasured`.

    >>> import numpy as np
    >>> from cometad.data.gaps import Interpolate, fill
    >>> fill(np.array([[1.0], [np.nan], [np.nan], [4.0]]), Interpolate(limit=2), np.zeros(1)).values[:, 0]
    array([1., 2., 3., 4.])
    """

    def settle(self, cells: Cells) -> Settled:
        """Interpolated values; a cell waits until its gap ends or exceeds the limit."""
        short = (cells.length <= self.limit) & ~np.isnan(cells.before)
        known = short & ~np.isnan(cells.after)
        share = cells.age / (cells.length + 1)
        # Weight the neighbors one by one: their difference may overflow.
        values = np.where(known, (1 - share) * cells.before + share * cells.after, np.nan)
        return Settled(values, short & ~known)


@register("ScoreMeasured")
@dataclass(frozen=True)
class ScoreMeasured:
    """Score only what was measured: a placeholder, the training median, is never judged or learned from.

    >>> import numpy as np
    >>> from cometad.data.gaps import ScoreMeasured, fill
    >>> filled = fill(np.array([[1.0], [np.nan], [3.0]]), ScoreMeasured(), center=np.array([7.0]))
    >>> filled.values[:, 0], filled.doubtful[:, 0]
    (array([1., 7., 3.]), array([False,  True, False]))
    """

    allowed: ClassVar[bool] = True

    def settle(self, cells: Cells) -> Settled:
        """No values; nothing waits."""
        return Settled(np.full(cells.missing.shape, np.nan), np.zeros_like(cells.missing))


# name on the command line: gap rule
GAPS: dict[str, type[Gaps]] = {
    "refuse": RefuseGaps,
    "forward-fill": ForwardFill,
    "interpolate": Interpolate,
    "score-measured": ScoreMeasured,
}


def parse_gaps(text: str) -> Gaps:
    """Parse a gap rule: NAME or, for rules with a limit, NAME:LIMIT."""
    return parse(text, GAPS, kind="gap rule", value="LIMIT", convert=_digits)


def _digits(text: str) -> int:
    if not text.isdecimal():  # int() also accepts "1_0" and " 3"
        raise ValueError(text)
    return int(text)


class GapRun(Saved):
    """Fills gaps in readings that arrive in chunks of any size, in bounded memory; the chunks do not affect the result.

    Where the rule has no value, `center` (variable,) is the placeholder: a held extreme value would leak through the
    features that all variables share. Imputed values are clipped to `bounds`, the lowest and highest value (variable,).
    With `Interpolate` up to `limit` readings wait for later ones.
    """

    saved: ClassVar[Table] = {
        "last": array("_last", "variable", unknown=True),
        "open": array("_open", "variable", dtype=np.int64),
        "waiting": array("_waiting", "time?", "variable", unknown=True),
    }

    def __init__(self, rule: Gaps, center: Floats, bounds: Bounds = UNBOUNDED) -> None:
        self._rule, self._center, self._bounds = rule, np.asarray(center, np.float64), bounds
        self._last = np.full(len(self._center), np.nan)  # the last measured value that was returned
        self._open = np.zeros(len(self._center), np.int64)  # missing cells returned since
        self._waiting = np.empty((0, len(self._center)))

    @property
    def waits(self) -> int:
        """Number of readings that wait for later ones."""
        return len(self._waiting)

    def push(self, values: Floats) -> Filled:
        """Add readings (time, variable), NaN where missing; returns all that are settled now."""
        if not len(self._waiting) and len(values) and not np.isnan(values).any():  # the usual case
            self._last, self._open = values[-1].copy(), np.zeros_like(self._open)
            nothing = np.zeros(values.shape, bool)
            return Filled(values, nothing, nothing)
        return self._fill(np.concatenate([self._waiting, values]), ended=False)

    def finish(self) -> Filled:
        """End the series; returns the readings that still waited."""
        return self._fill(self._waiting, ended=True)

    def sizes(self) -> dict[str, int]:
        return {"variable": len(self._center)}

    def _fill(self, values: Floats, ended: bool) -> Filled:
        missing = np.isnan(values)
        settled = self._rule.settle(self._cells(values, missing)) if missing.any() else Settled(values, missing)
        waits = np.zeros(len(values), bool) if ended else (missing & settled.waits).any(axis=1)
        ready = int(waits.argmax()) if waits.any() else len(values)
        doubtful = missing & np.isnan(settled.values)
        filled = np.where(missing, np.clip(settled.values, *self._bounds), values)
        filled = np.where(doubtful, self._center, filled)
        self._remember(values[:ready])
        self._waiting = values[ready:].copy()
        return Filled(filled[:ready], missing[:ready], doubtful[:ready])

    def _cells(self, values: Floats, missing: Flags) -> Cells:
        count, columns = len(values), np.arange(values.shape[1])
        steps = np.arange(count)[:, None]
        # Positions of the measured neighbors: the previous one may be in an earlier chunk, the next one in a later one.
        before = np.maximum.accumulate(np.where(missing, -1 - self._open, steps))
        after = np.minimum.accumulate(np.where(missing, count, steps)[::-1])[::-1]
        return Cells(
            missing,
            np.where(before < 0, self._last, values[np.maximum(before, 0), columns]),
            np.where(after == count, np.nan, values[np.minimum(after, count - 1), columns]),
            steps - before,
            np.maximum(after - before - 1, 0),
        )

    def _remember(self, returned: Floats) -> None:
        if len(returned):
            measured = ~np.isnan(returned)
            since = measured[::-1].argmax(axis=0)  # the last measured value
            found = measured.any(axis=0)
            last = returned[len(returned) - 1 - since, np.arange(returned.shape[1])]
            self._last = np.where(found, last, self._last)
            self._open = np.where(found, since, self._open + len(returned))


def fill(values: Floats, rule: Gaps, center: Floats, bounds: Bounds = UNBOUNDED) -> Filled:
    """Fill the gaps (NaN) of a whole series (time, variable)."""
    run = GapRun(rule, center, bounds)
    first, last = run.push(np.asarray(values, np.float64)), run.finish()
    if not len(last.values):
        return first
    values, imputed, doubtful = (np.concatenate(parts) for parts in zip(first, last, strict=True))
    return Filled(values, imputed, doubtful)


def complete(series: Series, names: tuple[str, ...]) -> Series:
    """Add a column of missing readings for each variable the series lacks, and log a warning."""
    whole = with_all_columns(series, names)
    if whole is not series:
        warn_lacking([name for name in names if name not in series.names])
    return whole


def warn_lacking(names: Sequence[str]) -> None:
    _log.warning("No column for %s. Its readings count as missing.", ", ".join(map(repr, names)))
