"""The contract of a view: one way to expect a reading, and how far each reading is from that."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.errors import InputError
from cometad.saving import Declared, loaded

# (rows, begin, count, expected, out, v) sets out[-count:, v] (time, view, variable) to the errors of the last `count`
# of contiguous rows (time, variable), or to what was expected. Their windows begin at the rows begin, begin + 1, ...
Writer = Callable[[Floats, int, int, bool, Floats, int], None]


class FittedView(Protocol):
    """A view that knows what is normal. Scoring never changes it.

    `rows` are scaled readings (time, variable). The first `first` of them only serve as context; a time step with less
    than `context` rows before it has no error yet: NaN.

    If it also has `mixes_variables = False`, the errors of a variable depend on its own readings only. If it has
    `judges_relations = True`, its errors say how well variables fit each other at the same time: such views together
    count as much as all the others. If it has a `width`, the number of variables, a saved view for another number is
    refused.
    """

    context: int  # rows before a time step that its error depends on
    span: int  # time steps, up to its own, that the error of a time step is about: 1, or the length of a window

    def errors(self, rows: Floats, first: int) -> Floats:
        """How far each reading is from what was expected: (time - first, variable)."""

    def expected(self, rows: Floats, first: int) -> Floats:
        """What was expected instead of each reading (time - first, variable); NaN if the view cannot say."""

    def state(self) -> Mapping[str, Array]:
        """Everything that was learned, by name."""


class View(Protocol):
    """A way to expect readings, before it has seen any.

    If it also has `thread_safe = True`, several threads may call `fit` at once.
    """

    @property
    def reason(self) -> str:
        """What an error of this view means, for explanations: "alone unusual"."""

    @property
    def min_rows(self) -> int:
        """Readings it needs."""

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedView:
        """Learn from the `usable` (time,) ones of scaled readings (time, variable)."""

    def restore(self, state: Mapping[str, Array]) -> FittedView:
        """The fitted view with a state."""


class WindowView(Declared):
    """A fitted view that compares windows, each `context` rows and the time step after them.

    It writes into an array that all views share: for a single reading, copies would take longer than the arithmetic.
    """

    context: int
    span: int
    write: Writer
    mixes_variables = True

    def errors(self, rows: Floats, first: int) -> Floats:
        return self._alone(rows, first, expected=False)

    def expected(self, rows: Floats, first: int) -> Floats:
        return self._alone(rows, first, expected=True)

    def _alone(self, rows: Floats, first: int, expected: bool) -> Floats:
        out = np.empty((len(rows) - first, 1, rows.shape[1]))
        write_known(self.write, self.context, np.ascontiguousarray(rows), first, expected, out, 0)
        return out[:, 0]


def write_known(write: Writer, context: int, rows: Floats, first: int, expected: bool, out: Floats, v: int) -> None:
    """Set out[:, v] (time - first, view, variable) to the errors or to what was `expected`; NaN if unknown."""
    begin, count = first - context, len(out)
    if begin < 0:
        out[:-begin, v] = np.nan
        begin, count = 0, count + begin
    if count > 0:
        write(rows, begin, count, expected, out, v)


class SavedView:
    """A view whose fitted view is made from its settings and the arrays of its table; threads may fit it at once."""

    thread_safe: ClassVar[bool] = True
    fitted: ClassVar[Any]  # a `WindowView`, created from these settings and its arrays

    def restore(self, state: Mapping[str, Array]) -> WindowView:
        """The fitted view with a state; the settings are the lengths of its arrays."""
        view: WindowView = loaded(partial(self.fitted, self), self.fitted.saved, state, vars(self))
        return view


def windows_of(usable: Flags, length: int, limit: int, rng: np.random.Generator) -> Integers:
    """The starts of at most `limit` windows of usable rows, drawn at random and in time order; refuses to find none."""
    before = np.concatenate([[0], np.cumsum(~usable)])
    starts = np.flatnonzero(before[length:] == before[:-length])
    if not len(starts):
        raise InputError(
            f"There are no {length} usable readings in a row to learn from. "
            "Pass a longer series or one with fewer gaps, or exclude less of it."
        )
    if len(starts) <= limit:
        return starts
    return np.sort(rng.choice(starts, limit, replace=False))


def cut_windows(rows: Floats, usable: Flags, length: int, limit: int, rng: np.random.Generator) -> Floats:
    """The windows (window, length, variable) of rows that begin where `windows_of` has them begin."""
    windows: Floats = rows[windows_of(usable, length, limit, rng)[:, None] + np.arange(length)]
    return windows
