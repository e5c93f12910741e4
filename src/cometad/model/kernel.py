"""The nearest code of every patch and the distance to it, on the CPU.

Every position is computed on its own by the same instructions, so a result does not depend on how many positions are
asked for at once or by how many threads.
"""

import numba
import numpy as np
from numpy.typing import NDArray

# Sums may be reordered (that is what makes them vectors), but nan and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)  # pragma: no cover
def nearest_codes(
    windows: NDArray[np.float32],  # (window, time, variable)
    first: int,
    stride: int,
    core: NDArray[np.float32],
    core_codes: NDArray[np.float32],
    series_codes: NDArray[np.float32],
    constants: NDArray[np.float32],
    inside: NDArray[np.float32],
    inside_offset: NDArray[np.float32],
    inside_codes: NDArray[np.float32],
    outside: NDArray[np.float32],
    outside_offset: NDArray[np.float32],
    outside_rest: NDArray[np.float32],
    codes: NDArray[np.int32],  # (window, patch, variable), written
    errors: NDArray[np.float32],  # (window, patch, variable), written
) -> None:
    """Patches `first`, `first + 1`, ... of each window; the tables are those of `FoldedScale`."""
    variables, size, count = series_codes.shape
    rank = core.shape[1]
    dims = outside.shape[2]
    h = np.empty(rank, np.float32)
    shared = np.empty(count, np.float32)
    search = np.empty(count, np.float32)
    gap = np.empty(rank, np.float32)
    for w in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            begin = (first + j) * stride
            h[:] = 0.0
            for i in range(variables):
                for p in range(size):
                    x = windows[w, begin + p, i]
                    row = core[i * size + p]
                    for r in range(rank):
                        h[r] += row[r] * x
            shared[:] = 0.0
            for r in range(rank):
                weight = h[r]
                row = core_codes[r]
                for m in range(count):
                    shared[m] += row[m] * weight
            for i in range(variables):
                for m in range(count):
                    search[m] = shared[m] + constants[i, m]
                for p in range(size):
                    x = windows[w, begin + p, i]
                    row = series_codes[i, p]
                    for m in range(count):
                        search[m] += row[m] * x
                best = 0
                least = search[0]
                for m in range(1, count):
                    if search[m] < least:
                        least = search[m]
                        best = m
                for r in range(rank):
                    gap[r] = h[r] + inside_offset[i, r] - inside_codes[best, r]
                for p in range(size):
                    x = windows[w, begin + p, i]
                    row = inside[i, p]
                    for r in range(rank):
                        gap[r] += row[r] * x
                squared = outside_rest[i, best]
                for r in range(rank):
                    squared += gap[r] * gap[r]
                for q in range(dims):
                    part = outside_offset[i, best, q]
                    for p in range(size):
                        part += outside[i, p, q] * windows[w, begin + p, i]
                    squared += part * part
                codes[w, j, i] = best
                errors[w, j, i] = np.sqrt(squared)


_TILE = 256  # positions whose best codes so far are kept at hand


@numba.njit(cache=True, nogil=True, fastmath={"contract"})  # pragma: no cover
def search_codes(
    patches: NDArray[np.float32],  # (variable, size, position)
    shared: NDArray[np.float32],  # (code, position)          the core's part of the search
    series_codes: NDArray[np.float32],  # (variable, size, code)
    constants: NDArray[np.float32],  # (variable, code)
    codes: NDArray[np.int32],  # (variable, position), written
) -> None:
    """The nearest code of every patch; positions side by side, so that one instruction serves many of them."""
    variables, size, positions = patches.shape
    count = len(shared)
    least = np.empty(_TILE, np.float32)
    best = np.empty(_TILE, np.int32)
    search = np.empty(_TILE, np.float32)
    for begin in range(0, positions, _TILE):
        width = min(_TILE, positions - begin)
        for i in range(variables):
            least[:] = np.inf
            best[:] = 0
            for m in range(count):
                here = shared[m, begin : begin + width]
                constant = constants[i, m]
                p = 0
                if size >= 2:
                    x0, x1 = patches[i, 0, begin : begin + width], patches[i, 1, begin : begin + width]
                    c0, c1 = series_codes[i, 0, m], series_codes[i, 1, m]
                    for t in range(width):
                        search[t] = here[t] + constant + c0 * x0[t] + c1 * x1[t]
                    p = 2
                else:
                    for t in range(width):
                        search[t] = here[t] + constant
                while p + 2 <= size:
                    x0, x1 = patches[i, p, begin : begin + width], patches[i, p + 1, begin : begin + width]
                    c0, c1 = series_codes[i, p, m], series_codes[i, p + 1, m]
                    for t in range(width):
                        search[t] += c0 * x0[t] + c1 * x1[t]
                    p += 2
                if p < size:
                    x0, c0 = patches[i, p, begin : begin + width], series_codes[i, p, m]
                    for t in range(width):
                        search[t] += c0 * x0[t]
                for t in range(width):
                    closer = search[t] < least[t]
                    least[t] = search[t] if closer else least[t]
                    best[t] = m if closer else best[t]
            codes[i, begin : begin + width] = best[:width]


@numba.njit(cache=True, nogil=True)  # pragma: no cover
def patch_sums_by_code(
    patches: NDArray[np.float32],  # (variable, size, position)
    codes: NDArray[np.int32],  # (variable, position)
    normal: NDArray[np.bool_],  # (variable, position)
    counts: NDArray[np.float64],  # (variable, code), added to
    sums: NDArray[np.float64],  # (variable, code, size), added to
) -> None:
    """How many normal patches of each variable took each code, and the sums of these patches."""
    variables, size, positions = patches.shape
    for i in range(variables):
        for t in range(positions):
            if normal[i, t]:
                m = codes[i, t]
                counts[i, m] += 1.0
                for p in range(size):
                    sums[i, m, p] += patches[i, p, t]


@numba.njit(cache=True, nogil=True)  # pragma: no cover
def scatter_by_code(
    values: NDArray[np.float64],  # (position, rank)
    codes: NDArray[np.int32],  # (variable, position)
    normal: NDArray[np.bool_],  # (variable, position)
    sums: NDArray[np.float64],  # (code, rank), added to
) -> None:
    """The sum of a position's vector over all normal patches of each code."""
    for t in range(len(values)):
        for i in range(len(codes)):
            if normal[i, t]:
                sums[codes[i, t]] += values[t]


@numba.njit(cache=True, nogil=True)  # pragma: no cover
def gather_by_code(
    sums: NDArray[np.float64],  # (code, rank)
    codes: NDArray[np.int32],  # (variable, position)
    normal: NDArray[np.bool_],  # (variable, position)
    values: NDArray[np.float64],  # (position, rank), added to
) -> None:
    """The transpose of `scatter_by_code`."""
    for t in range(len(values)):
        for i in range(len(codes)):
            if normal[i, t]:
                values[t] += sums[codes[i, t]]
