"""Activity: is a variable as lively as usual? A stuck sensor is too quiet, a loose contact too lively."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.compute import fused
from cometad.parameters import check_integer
from cometad.registry import register
from cometad.saving import Table, array
from cometad.views.sums import sum_rows, sum_squared_gaps
from cometad.views.view import SavedView, WindowView, windows_of

WINDOWS = 20_000  # at most, for the median
LEAST = 1e-3  # variance that is added: below it a variable counts as constant


class FittedActivity(WindowView):
    """The usual log standard deviation (variable,), and distances from it."""

    mixes_variables = False
    saved: ClassVar[Table] = {"usual": array("usual", "variable")}

    def __init__(self, view: "Activity", usual: Floats) -> None:
        self.usual, self.span, self.context = usual, view.length, view.length - 1
        self.width = len(usual)
        self.write = partial(_distances, usual, view.length)


@register("Activity")
@dataclass(frozen=True)
class Activity(SavedView):
    """How far the log of a variable's standard deviation over `length` readings is from its usual value.

    >>> import numpy as np
    >>> from cometad.views import Activity
    >>> rng = np.random.default_rng(0)
    >>> view = Activity().fit(rng.normal(size=(500, 1)), np.ones(500, bool), rng)
    >>> stuck, lively = np.zeros((32, 1)), 5 * rng.normal(size=(32, 1))
    >>> bool(view.errors(stuck, first=31)[0, 0] > 2), bool(view.errors(lively, first=31)[0, 0] > 1)
    (True, True)
    """

    length: int = 32
    fitted: ClassVar = FittedActivity
    reason: ClassVar[str] = "not as lively as usual"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 2)

    @property
    def min_rows(self) -> int:
        return self.length

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedActivity:
        starts = windows_of(usable, self.length, WINDOWS, rng)
        logs = np.empty((len(starts), rows.shape[1]))
        _logs_of(rows, starts, self.length, logs)
        return FittedActivity(self, np.median(logs, axis=0))


@fused
def _distances(
    usual: Floats, length: int, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int
) -> None:
    """The distance of the log standard deviation up to each step from its usual value; nothing is expected: NaN."""
    if expected:
        out[len(out) - count :, v] = np.nan
        return
    logs = np.empty((count, rows.shape[1]))
    _logs(rows, len(rows) - count, length, logs)
    for t in range(count):
        for i in range(rows.shape[1]):
            out[len(out) - count + t, v, i] = abs(logs[t, i] - usual[i])


@fused
def _logs_of(rows: Floats, starts: Integers, length: int, logs: Floats) -> None:
    """Set `logs` (window, variable) to the log standard deviation of the windows that begin at `starts`."""
    for n in range(len(starts)):
        _logs(rows[starts[n] : starts[n] + length], length - 1, length, logs[n : n + 1])


@fused
def _logs(rows: Floats, first: int, length: int, logs: Floats) -> None:
    """Set `logs` (time, variable) to the log standard deviation of the `length` rows up to each step from `first`."""
    width = rows.shape[1]
    flat, mean, variance = rows.ravel(), np.empty(width), np.empty(width)
    none = np.int64(0)  # numba would compile the sums anew for a plain 0
    for t in range(max(first, length - 1), len(rows)):
        begin = (t - length + 1) * width
        sum_rows(flat, begin, length, width, mean)
        for i in range(width):
            mean[i] /= length
        sum_squared_gaps(flat, begin, length, mean, none, none, variance)
        for i in range(width):
            logs[t - first, i] = 0.5 * np.log(variance[i] / length + LEAST)
