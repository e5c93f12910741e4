"""Find stretches of the training series that do not fit the rest: what users call normal contains faults.

The score that finds anomalies in new readings cannot find them here: its tails are fitted on the same errors, so that
faults widen them. This one compares errors with the usual ones and never saturates; after leaving out grave faults,
`fit` looks again. Variables with few values, such as valves, are ignored: a command that was given once is not a fault.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.compute import jit
from cometad.errors import InputError, ParameterError
from cometad.saving import counted, of_type, texts
from cometad.scoring.scores import FLOOR, LEAST, smooth
from cometad.series import Series
from cometad.views.crossfit import CrossFitted, Fold, by_folds, stretch_errors
from cometad.views.view import View

HIGH = 0.9  # the quantile of an error, or of a misfit, that counts as high but usual
LIMIT = 3.0  # a misfit this many times as far above the median as the high one is left out
AROUND = 0.7  # of that distance: the readings around it are left out, too, as long as their misfits are that high
MARGIN = 16  # readings before and after these that are left out too
ROUNDS, AGAIN = 3, 0.015  # looks at most, and the share of the history after which to look again: less hides nothing
SPAN = 64  # readings that a misfit is averaged over
POOLING = 4  # exponent of the power mean over variables
FEW = 8  # variables with at most this many distinct values are ignored
GLANCE = 1_024  # readings: mostly they tell how many values a variable has
NAMED = 3  # variables that are named, at most
MOST = 0.25  # of the usable readings: more than that is not a fault, but another kind of normal
STILL, MANY = 0.1, 0.5  # of what a variable mostly moves in as many readings; and of the variables, in a standstill
RANGE = (0.02, 0.98)  # quantiles between which a variable mostly is
ALIKE = 0.5  # of how far their levels are from the usual ones: so close are those of a way to run that comes back
LASTING, STAYS = 256, 0.05  # readings, and share of the history: a level that stays so long has changed for good


class Stretch(NamedTuple):
    """Training readings that were left out."""

    start: int  # time step
    stop: int  # the time step after the last one
    variables: tuple[str, ...]  # that fit worst
    reason: str  # what is unusual about them, or that the user asked for it


Times = tuple[np.datetime64, np.datetime64]  # of the first and the last reading of a stretch


def find_misfits(found: CrossFitted, views: Sequence[View], names: Sequence[str], most: float = inf) -> list[Stretch]:
    """The stretches that do not fit the rest, by views that were not fitted on them; none if they are too much."""
    voters = np.flatnonzero([_varies(column) for column in found.rows.T])
    voters = voters if len(voters) else np.arange(len(names))
    usual = _usual(found.sample)
    marked = outliers(_smoothed(_misfit_scores(found, usual, voters)), found.usable)
    if marked.sum() > min(MOST * found.usable.sum(), most):
        return []
    suspects, rows = [], found.rows[:, voters]
    for start, stop in stretches(marked):
        near = [fold for fold in found.folds if start < fold.stop and fold.start < stop]
        parts = [_misfits(found, fold, usual, max(start, fold.start), min(stop, fold.stop)) for fold in near]
        suspects.append(_Suspect.of(rows, start, stop, np.concatenate(parts)[:, :, voters]))
    return [
        Stretch(one.start, one.stop, tuple(names[int(voters[i])] for i in one.worst), one.reason(rows, views))
        for one in suspects
        if not one.changed_for_good(rows) and not one.way_to_run(rows, suspects)
    ]


class _Suspect(NamedTuple):
    """A stretch that does not fit the rest."""

    start: int
    stop: int
    worst: list[int]  # variables
    view: int  # that the worst one violates
    levels: Floats  # (variable,)  medians in its middle half: the ends may be as usual
    still: Flags  # (variable,)  hardly moves there, compared with other stretches of that length

    @classmethod
    def of(cls, rows: Floats, start: int, stop: int, misfits: Floats) -> "_Suspect":
        quarter = (stop - start) // 4
        middle = rows[start + quarter : stop - quarter]
        others = rows[: len(rows) // len(middle) * len(middle)].reshape(-1, *middle.shape)
        still = middle.std(axis=0) < STILL * np.median(others.std(axis=1), axis=0)
        return cls(start, stop, *_worst(misfits), np.median(middle, axis=0), still)

    def reason(self, rows: Floats, views: Sequence[View]) -> str:
        """What is unusual about it, in rows (time, variable)."""
        first, everything = self.worst[0], self.still.mean() > MANY
        if everything or self.still[first]:
            return "standstill" if everything else "stuck"
        low, high = np.quantile(np.delete(rows[:, first], np.s_[self.start : self.stop]), RANGE)
        level = self.levels[first]
        return "too high" if level > high else "too low" if level < low else views[self.view].reason

    def changed_for_good(self, rows: Floats) -> bool:
        """Whether the worst variable of rows (time, variable) has another level since it began or ended."""
        column, least = rows[:, self.worst[0]], SPAN + max(LASTING, STAYS * len(rows))
        steps = [step for step in (self.start, self.stop) if least <= step <= len(rows) - least]
        before = [np.quantile(column[: step - SPAN], RANGE) for step in steps]
        after = [np.quantile(column[step + SPAN :], RANGE) for step in steps]
        return any(new[0] > old[1] or new[1] < old[0] for old, new in zip(before, after, strict=True))

    def way_to_run(self, rows: Floats, suspects: Sequence["_Suspect"]) -> bool:
        """Whether several variables of rows (time, variable) move, at levels that they have in another suspect, too."""
        if len(self.worst) == 1 or self.still[self.worst].any() or self.still.mean() > MANY:
            return False
        away = np.linalg.norm(self.levels[self.worst] - np.median(rows[:, self.worst], axis=0))
        return any(
            np.linalg.norm((self.levels - other.levels)[self.worst]) < ALIKE * away
            for other in suspects
            if abs(other.start - self.start) > LASTING and self.worst[0] in other.worst
        )


def _misfits(found: CrossFitted, fold: Fold, usual: Floats, start: int, stop: int) -> Floats:
    """How many usual distances each averaged error of the steps start..stop is above its median."""
    _, errors = stretch_errors(fold.views, found.rows, found.usable, found.imputed, start, stop)
    misfits: Floats = np.nan_to_num(np.maximum((errors - usual[0]) / usual[1], 0.0))
    return misfits


def _misfit_scores(found: CrossFitted, usual: Floats, voters: Integers) -> Floats:
    """The misfit (time,) of each step: the mean over views, then the power mean over the variables `voters`."""

    def score(fold: Fold, start: int, stop: int) -> Floats:
        _, errors = stretch_errors(fold.views, found.rows, found.usable, found.imputed, start, stop)
        return _pool(errors, usual, voters)

    return by_folds(found.folds, score)


def _varies(column: Floats) -> bool:
    """Whether a variable (time,) has more than a few distinct values."""
    return len(np.unique(column[:GLANCE])) > FEW or len(np.unique(column)) > FEW


def _usual(errors: Floats) -> Floats:
    """The median and the distance of the high quantile above it (2, view, variable) of errors (time, view, variable).

    As in the tails, the distance is at least a tenth of the mean over variables.
    """
    errors = np.nan_to_num(errors)  # unknown errors are rare; they count as none
    middle, high = np.quantile(errors, (0.5, HIGH), axis=0)
    width = high - middle
    return np.stack([middle, np.maximum(width, np.maximum(FLOOR * width.mean(axis=1, keepdims=True), LEAST))])


@jit
def _pool(errors: Floats, usual: Floats, voters: Integers) -> Floats:
    """The misfits (time,) of errors (time, view, variable)."""
    steps, views, width = errors.shape
    scores, summed = np.empty(steps), np.empty(width)
    for t in range(steps):
        summed[:] = 0.0
        for v in range(views):
            for i in range(width):
                misfit = (errors[t, v, i] - usual[0, v, i]) / usual[1, v, i]
                summed[i] += misfit if misfit > 0.0 else 0.0  # an unknown one counts as none
        total = 0.0
        for i in voters:
            total += (summed[i] / views) ** POOLING
        scores[t] = (total / len(voters)) ** (1 / POOLING)
    return scores


def _smoothed(scores: Floats) -> Floats:
    """Means over `SPAN` steps; at the ends of a long series, where they would be over fewer, the nearest whole one."""
    smoothed, half = smooth(scores, (SPAN,)), SPAN // 2
    if len(smoothed) > 2 * SPAN:
        smoothed[:half], smoothed[-half:] = smoothed[half], smoothed[-half]
    return smoothed


def outliers(scores: Floats, usable: Flags) -> Flags:
    """The usable time steps (time,) with a score (time,) far above the others', and the high ones around them."""
    middle, high = np.quantile(scores[usable], (0.5, HIGH))
    far, marked = LIMIT * (high - middle), np.zeros(len(scores), bool)
    for start, stop in stretches((scores > middle + AROUND * far) & usable):
        if scores[start:stop].max() > middle + far:
            marked[max(start - MARGIN, 0) : stop + MARGIN] = True
    return marked & usable


def _worst(misfits: Floats) -> tuple[list[int], int]:
    """The variables with the highest misfits (time, view, variable), and the view that the worst of them violates."""
    own = misfits.mean(axis=(0, 1))
    worst = (-own).argsort(kind="stable")[:NAMED]
    chosen = [int(i) for i in worst if own[i] >= 0.5 * own[worst[0]]]
    return chosen, int(misfits[:, :, worst[0]].mean(axis=0).argmax())


def stretches(marked: Flags) -> list[tuple[int, int]]:
    """The consecutive marked time steps as pairs (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(np.int8), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def merged(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Stretches in time order; of those that touch, except what the user excluded, one described as the longest."""
    found: list[Stretch] = []
    for stretch in sorted(stretches):
        if found and found[-1].variables and stretch.variables and stretch.start <= found[-1].stop:
            last = found.pop()
            longest = max(last, stretch, key=lambda one: one.stop - one.start)
            stretch = longest._replace(start=last.start, stop=max(last.stop, stretch.stop))
        found.append(stretch)
    return tuple(found)


def unusable(stretches: Sequence[Stretch], rows: int) -> Flags:
    """The time steps (time,) of stretches."""
    marked = np.zeros(rows, bool)
    for stretch in stretches:
        marked[stretch.start : stretch.stop] = True
    return marked


def excluded(pairs: Sequence[tuple[Any, Any]], series: Series) -> tuple[Stretch, ...]:
    """The stretches of a series that the user excludes: pairs (start, stop) of time steps or timestamps."""
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ParameterError(f"Cannot exclude {pair!r}; pass pairs (start, stop) of time steps or timestamps.")
    return tuple(Stretch(*_steps(pair, series), (), "excluded by the user") for pair in pairs)


def _steps(pair: tuple[Any, Any], series: Series) -> tuple[int, int]:
    """The time steps of a pair of time steps or timestamps."""
    start, stop = pair
    if not isinstance(start, int | np.integer) or not isinstance(stop, int | np.integer):
        if series.times is None:
            raise InputError(f"Cannot exclude {pair!r}: the series has no times. Pass time steps.")
        try:
            bounds = np.array([start, stop], dtype="datetime64[ns]")
        except ValueError as error:
            raise InputError(f"Cannot exclude {pair!r}: not timestamps. Write them like 2026-01-31T08:00.") from error
        start, stop = np.searchsorted(series.times.astype("datetime64[ns]"), bounds).tolist()
    if not 0 <= start < stop <= len(series):
        raise InputError(f"Cannot exclude {pair!r}: it is not a stretch of the series (0 to {len(series)}).")
    return int(start), int(stop)


def times_of(stretches: Sequence[Stretch], times: Array | None) -> tuple[Times, ...] | None:
    """The times of the first and the last reading of stretches, given those of the series (time,), if it has any."""
    if times is None:
        return None
    exact = times.astype("datetime64[us]")
    return tuple((exact[stretch.start], exact[stretch.stop - 1]) for stretch in stretches)


def saved_times(times: Times) -> list[int]:
    """The times of a stretch for a saved file: microseconds since 1970."""
    return [int(time.astype(np.int64)) for time in times]


def restored_times(saved: Sequence[object]) -> Times:
    """The times of a stretch from a saved file."""
    first, last = (np.datetime64(counted(time, "trimmed_times", -(2**62), 2**62), "us") for time in saved)
    return first, last


def restored_stretch(saved: Sequence[object]) -> Stretch:
    """A stretch from a saved file."""
    start, stop, variables, reason = saved
    steps = counted(start, "trimmed"), counted(stop, "trimmed")
    return Stretch(*steps, texts(variables, "trimmed"), of_type(reason, str, "trimmed"))
