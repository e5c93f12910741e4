"""From a window to patches, and from patches back to time steps."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cometad.arrays import Floats
from cometad.parameters import is_integer, require


def check_patches(sizes: Sequence[int], strides: Sequence[int], window: int) -> None:
    for name, given in (("patch_sizes", sizes), ("patch_strides", strides)):
        integers = isinstance(given, Sequence) and all(map(is_integer, given))
        require(integers and len(given) >= 1, name, "a sequence of at least one integer", given)
    require(len(sizes) == len(strides), "patch_strides", "as long as patch_sizes", strides)
    for size, stride in zip(sizes, strides, strict=True):
        require(1 <= size <= window, "patch_sizes", f"between 1 and the window ({window})", size)
        require(1 <= stride <= size, "patch_strides", f"between 1 and its patch size ({size})", stride)


def patch_count(length: int, size: int, stride: int) -> int:
    """The number of patches of a size and stride that fit into a window.

    Paper: N_k = floor((L - p_k) / s_k) + 1, with Eq. 1.
    """
    return (length - size) // stride + 1


def patches(windows: Tensor, size: int, stride: int) -> Tensor:
    """Patches (..., patch, variable, size) of windows (..., time, variable).

    Paper: Eq. 1.
    """
    return windows.unfold(-2, size, stride)


class Coverage(NamedTuple):
    """The patches that cover each time step of a window; every field has the shape (time,)."""

    first: NDArray[np.int64]  # the first patch that covers the step
    last: NDArray[np.int64]  # the last one, inclusive
    final: NDArray[np.int64]  # the time step that completes the last one


@lru_cache(maxsize=256)
def coverage(length: int, size: int, stride: int) -> Coverage:
    """The patches that cover each time step of a window.

    Steps after the last patch (step 99 of 100 at size 6, stride 3) are assigned to that patch.
    """
    steps = np.arange(length)
    end = patch_count(length, size, stride) - 1
    first = np.minimum(np.maximum(-(-(steps - size + 1) // stride), 0), end)
    last = np.minimum(steps // stride, end)
    return Coverage(first, last, np.maximum(steps, last * stride + size - 1))


def ready_steps(rows: int, window: int, sizes: Sequence[tuple[int, int]]) -> int:
    """How many time steps of a window have final scores once its first `rows` readings are known.

    `sizes` holds the (size, stride) of the patches of each scale.
    """
    final = np.max([coverage(window, *size).final for size in sizes], axis=0)
    return int(np.searchsorted(final, rows - 1, side="right"))


def patch_weights(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weight of each patch in the sum over steps, where a step is the mean of its patches first..last.

    The weights run from the lowest `first` to the highest `last`.
    """
    weights = np.zeros(last.max() - first.min() + 1)
    for low, high in zip(first - first.min(), last - first.min() + 1, strict=True):
        weights[low:high] += 1 / (high - low)
    return weights


def patches_containing(cells: NDArray[np.bool_], size: int, stride: int) -> NDArray[np.bool_]:
    """The patches (window, patch, variable) that contain a marked cell (window, time, variable)."""
    starts = stride * np.arange(patch_count(cells.shape[1], size, stride))
    return _any_between(_count_before(cells), starts, starts + size)


def reached(cells: NDArray[np.bool_], scales: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """The cells (window, time, variable) whose score depends on a marked cell, at any scale.

    That is the marked cells and all cells covered by a patch that contains one. A scale is the (size, stride) of its
    patches.
    """
    counts, affected = _count_before(cells), cells.copy()
    for size, stride in scales:
        cover = coverage(cells.shape[1], size, stride)
        # A stride is at most its patch size, so the patches first..last leave no gaps.
        affected |= _any_between(counts, cover.first * stride, cover.last * stride + size)
    return affected


def _count_before(cells: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of marked cells before each time step, and after the last one: (window, time + 1, variable)."""
    return np.pad(np.cumsum(cells, axis=1), ((0, 0), (1, 0), (0, 0)))


def _any_between(counts: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.bool_]:
    any_marked: NDArray[np.bool_] = counts[:, stops] > counts[:, starts]
    return any_marked


def back_to_readings(
    codes: Sequence[NDArray[np.int32]], tables: Sequence[Floats], strides: Sequence[int], length: int
) -> Floats:
    """The readings (window, time, variable) that the codes (window, patch, variable) of all scales represent.

    `tables` are the decoded patches (code, size) of each scale. A time step is the mean over the patches that cover it,
    then over the scales; steps after the last patch of a scale repeat its last reading.
    """
    scales = [_of_scale(*scale, length) for scale in zip(codes, tables, strides, strict=True)]
    means: Floats = np.mean(scales, axis=0)
    return means


def _of_scale(codes: NDArray[np.int32], table: Floats, stride: int, length: int) -> Floats:
    windows, count, variables = codes.shape
    total, covering = np.zeros((windows, length, variables)), np.zeros((length, 1))
    for offset, readings in enumerate(table.T):
        steps = slice(offset, offset + (count - 1) * stride + 1, stride)  # this offset in every patch
        total[:, steps] += readings[codes]
        covering[steps] += 1
    end = (count - 1) * stride + table.shape[1]
    total[:, end:], covering[end:] = table[codes[:, -1:], -1], 1
    return total / covering
