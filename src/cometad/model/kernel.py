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
