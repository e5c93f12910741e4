"""Why a score is high: each variable's share of it, the scale that saw it, and readings beside what normal looks like.

Here is the arithmetic; `Comet.explain` brings the numbers. docs/explanations.md says what shares mean and do not mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Event
from cometad.arrays import Floats, Floats32
from cometad.errors import InputError
from cometad.validation import is_integer


@dataclass(frozen=True, eq=False)
class Reason:
    """One variable's part in a score, and where it shows: its worst patch beside the nearest normal pattern.

    >>> import numpy as np
    >>> from cometad.explain.reasons import Reason
    >>> Reason("flow", 0.9, 2, 5, 7, np.array([9.0, 9.5]), np.array([1.0, 1.1]), code=3, frequency=0.25).share
    0.9
    """

    variable: str
    share: float  # of the score; over all variables they sum to 1, each is at least 0
    scale: int  # the patch size of the scale with the largest part in it
    start: int  # the first time step of the observed patch
    stop: int  # one after its last
    observed: Floats  # (size,)  in sensor units
    expected: Floats  # (size,)  the nearest code that training activated, decoded, in sensor units
    code: int
    frequency: float  # the share of the training patches of this scale that had this code


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the score of some time steps is what it is.

    >>> import numpy as np
    >>> from cometad.explain.reasons import Explanation
    >>> Explanation(5, 7, 6, 3.5, (), 4, np.zeros((4, 1)), np.zeros((4, 1))).as_json()["peak"]
    6
    """

    start: int
    stop: int  # half-open
    peak: int  # the time step of the highest score
    score: float  # of the peak
    reasons: tuple[Reason, ...]  # of all variables, the largest share first
    begin: int  # the time step of the first row of the next two
    observed: Floats  # (time, variable)  readings in sensor units, from some before to some after; nan: filled in
    normal: Floats  # (time, variable)  what normal codes make of them, in sensor units
    names: tuple[str, ...] = ()  # of these variables

    def as_json(self) -> dict[str, Any]:
        """The same as plain numbers, texts, lists and dictionaries; a reading that was filled in is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def rises(windows: Floats32, typical: Floats32, scores: Callable[[Floats32], Floats]) -> Floats:
    """By how much each variable raises the scores (window, time) of windows (window, time, variable), as one more axis.

    The mean of two answers: by how much the score rises when it alone does what it did and all others stand at their
    typical readings (variable,), and by how much it falls when it alone stands at its typical reading. The first
    finds a variable among many that deviate, the second one that only does not go with the others.

    >>> import numpy as np
    >>> from cometad.explain.reasons import rises
    >>> windows, typical = np.array([[[3.0, 5.0, 0.0]]], np.float32), np.zeros(3, np.float32)
    >>> rises(windows, typical, lambda some: some.max(axis=2))  # the highest reading as the score
    array([[[1.5, 3.5, 0. ]]])
    """
    nothing = np.empty_like(windows)
    nothing[:] = typical
    everything, none = scores(windows), scores(nothing[:1])
    found = np.empty(windows.shape)
    for i in range(windows.shape[2]):
        alone, without = nothing.copy(), windows.copy()
        alone[:, :, i], without[:, :, i] = windows[:, :, i], typical[i]
        found[:, :, i] = ((scores(alone) - none) + (everything - scores(without))) / 2
    return found


def shares(found: Floats) -> Floats:
    """Each variable's share (variable,), given by how much it raises the score of each time step (time, variable).

    A variable counts by the step that it raises most; what lowers a score counts as 0. Where no variable raises any,
    all shares are equal.

    >>> import numpy as np
    >>> from cometad.explain.reasons import shares
    >>> shares(np.array([[3.0, -1.0], [6.0, 2.0]]))
    array([0.75, 0.25])
    """
    highest = np.maximum(found.max(axis=0), 0.0)
    largest = highest.max()
    if largest == 0:
        return np.full(len(highest), 1 / len(highest))
    relative = highest / largest  # so that no sum overflows
    share: Floats = relative / relative.sum()
    return share


class Worst(NamedTuple):
    """Where each variable deviates most; each field has the shape (variable,)."""

    scale: NDArray[np.int64]  # the number of the scale
    patch: NDArray[np.int64]  # the number of the patch at that scale


def worst_patches(excess: Sequence[Floats], weights: Sequence[Floats]) -> Worst:
    """The scale with the largest part in each variable's score, and its worst patch there.

    For each scale: how far the scores of the patches (patch, variable) are above their training level, and how much
    each patch counts (patch,). A scale's part is the sum of its patches' parts.

    >>> import numpy as np
    >>> from cometad.explain.reasons import worst_patches
    >>> fine, coarse = np.array([[1.0], [4.0], [1.0]]), np.array([[1.0], [2.0]])
    >>> worst_patches([fine, coarse], [np.ones(3) / 3, np.ones(2) / 2])
    Worst(scale=array([0]), patch=array([1]))
    """
    parts = [weight @ above for above, weight in zip(excess, weights, strict=True)]
    scale = np.argmax(parts, axis=0)
    highest = np.array([above.argmax(axis=0) for above in excess])  # (scale, variable)
    return Worst(scale, highest[scale, np.arange(len(scale))])


def stretch_of(event: object, rows: int) -> tuple[int, int]:
    """The time steps (start, stop) of an event, a time step or a pair, in a series of so many readings.

    >>> from cometad.explain.reasons import stretch_of
    >>> stretch_of(7, 10), stretch_of((2, 4), 10)
    ((7, 8), (2, 4))
    >>> stretch_of(12, 10)
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The time steps 12 to 13 are not in the series, which has 10 readings. Pass some that are.
    """
    start, stop = _stretch(event)
    if not start < stop:
        raise InputError(f"There is no time step from {start} to {stop}; the stop is not included. Pass a later stop.")
    if start < 0 or stop > rows:
        raise InputError(
            f"The time steps {start} to {stop} are not in the series, which has {rows:,} readings. Pass some that are."
        )
    return start, stop


def _stretch(event: object) -> tuple[int, int]:
    if isinstance(event, Event):
        return event.start, event.stop
    if is_integer(event):
        return int(event), int(event) + 1  # type: ignore[call-overload]
    if isinstance(event, tuple | list) and len(event) == 2 and all(map(is_integer, event)):
        return int(event[0]), int(event[1])
    raise InputError(
        f"To explain is an event, a time step or a pair of them (start, stop); this is {event!r}. Pass one of these."
    )


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
