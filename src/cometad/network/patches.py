"""From a window to patches, and from patches back to time steps."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def patch_count(length: int, size: int, stride: int) -> int:
    """How many patches of a size and stride fit into a window.

    >>> from cometad.network.patches import patch_count
    >>> [patch_count(100, size, stride) for size, stride in [(2, 1), (4, 2), (6, 3)]]
    [99, 49, 32]

    Paper: N_k = floor((L - p_k) / s_k) + 1, with Eq. 1.
    """
    return (length - size) // stride + 1


def patches(windows: Tensor, size: int, stride: int) -> Tensor:
    """The patches of windows (..., time, variable), as (..., patch, variable, size).

    >>> import torch
    >>> from cometad.network.patches import patches
    >>> patches(torch.arange(4.0)[:, None], size=2, stride=1)[:, 0]
    tensor([[0., 1.],
            [1., 2.],
            [2., 3.]])

    Paper: Eq. 1.
    """
    return windows.unfold(-2, size, stride)


class Coverage(NamedTuple):
    """Which patches of a window cover each of its time steps; each field has the shape (time,)."""

    first: NDArray[np.int64]  # the first patch over the step
    last: NDArray[np.int64]  # the last one, included
    final: NDArray[np.int64]  # the step at which the last of them is complete


@lru_cache(maxsize=256)
def coverage(length: int, size: int, stride: int) -> Coverage:
    """The patches over each time step of a window.

    Steps behind the last patch (step 99 of 100 at size 6, stride 3) take that patch.

    >>> from cometad.network.patches import coverage
    >>> cover = coverage(100, size=6, stride=3)
    >>> [(int(cover.first[t]), int(cover.last[t]), int(cover.final[t])) for t in (0, 5, 99)]
    [(0, 0, 5), (0, 1, 8), (31, 31, 99)]
    """
    steps = np.arange(length)
    end = patch_count(length, size, stride) - 1
    first = np.minimum(np.maximum(-(-(steps - size + 1) // stride), 0), end)
    last = np.minimum(steps // stride, end)
    return Coverage(first, last, np.maximum(steps, last * stride + size - 1))


def ready_steps(rows: int, window: int, sizes: Sequence[tuple[int, int]]) -> int:
    """How many steps of a window are final once so many of its rows have come, for patches of (size, stride).

    >>> from cometad.network.patches import ready_steps
    >>> ready_steps(rows=8, window=10, sizes=[(4, 2)])  # a patch that is not complete yet begins with step 6
    6
    """
    final = np.max([coverage(window, *size).final for size in sizes], axis=0)
    return int(np.searchsorted(final, rows - 1, side="right"))


def patch_weights(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each patch counts, from the first to the last of all, where each step is a mean over first..last.

    >>> import numpy as np
    >>> from cometad.network.patches import patch_weights
    >>> patch_weights(np.array([3, 3]), np.array([3, 4]))  # one step is patch 3 alone, the next is half of each
    array([1.5, 0.5])
    """
    weights = np.zeros(last.max() - first.min() + 1)
    for low, high in zip(first - first.min(), last - first.min() + 1, strict=True):
        weights[low:high] += 1 / (high - low)
    return weights


def holding(cells: NDArray[np.bool_], size: int, stride: int) -> NDArray[np.bool_]:
    """Which patches of windows hold a marked cell (window, time, variable), as (window, patch, variable).

    >>> import numpy as np
    >>> from cometad.network.patches import holding
    >>> holding(np.array([0, 0, 1, 0, 0, 0], bool)[None, :, None], size=2, stride=2)[0, :, 0]
    array([False,  True, False])
    """
    starts = stride * np.arange(patch_count(cells.shape[1], size, stride))
    return _between(_counts(cells), starts, starts + size)


def reached(cells: NDArray[np.bool_], scales: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """Which time steps of windows are marked, or have a patch over them, at any scale, that holds a marked cell.

    Of cells (window, time, variable), in the same shape; a scale is the size and stride of its patches.

    >>> import numpy as np
    >>> from cometad.network.patches import reached
    >>> reached(np.array([0, 0, 1, 0, 0, 0], bool)[None, :, None], [(2, 2), (1, 1)])[0, :, 0].astype(int)
    array([0, 0, 1, 1, 0, 0])
    """
    counts, found = _counts(cells), cells.copy()
    for size, stride in scales:
        cover = coverage(cells.shape[1], size, stride)
        found |= _between(counts, cover.first * stride, cover.last * stride + size)  # patches touch or overlap
    return found


def _counts(cells: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many marked cells lie before each time step, and in all of them."""
    return np.pad(np.cumsum(cells, axis=1), ((0, 0), (1, 0), (0, 0)))


def _between(counts: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = counts[:, stops] > counts[:, starts]
    return found
