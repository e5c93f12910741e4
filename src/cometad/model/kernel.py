"""The inner loops on the CPU: the nearest code of every patch and the distance to it, and sums over patches by code.

The search works on tiles: many positions side by side, so that one instruction serves many of them. A few positions, as
a stream completes them, are searched one by one with codes side by side. Both add the same numbers in the same order,
one fused multiply-add after another, so a result has the same bits in either, and does not depend on how many
positions are asked for at once or by how many threads. For that reason the search's sums may be contracted to fused
multiply-adds but never reordered; the distances may be, since all of them pass through one and the same loop.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

TILE = 256  # positions side by side; the tables of a tile stay in the second-level cache

LANES = 8  # the rank of the tables is a multiple of it
FEW = 16  # positions; below, a tile does not pay

_jit = numba.njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
_inline = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy", inline="always")

Floats = NDArray[np.float32]
Codes = NDArray[np.int32]


@_inline  # pragma: no cover
def _products(weights: Floats, x: Floats, out: Floats) -> None:
    """Set out (row, position) = weights' (n, row) times x (n, position); four of n and two rows at a time."""
    count, rows = weights.shape
    for r in range(rows):
        line = out[r]
        for t in range(TILE):
            line[t] = 0.0
    q = 0
    while q + 4 <= count:
        x0, x1, x2, x3 = x[q], x[q + 1], x[q + 2], x[q + 3]
        w0, w1, w2, w3 = weights[q], weights[q + 1], weights[q + 2], weights[q + 3]
        r = 0
        while r + 2 <= rows:
            a0, a1, a2, a3 = w0[r], w1[r], w2[r], w3[r]
            b0, b1, b2, b3 = w0[r + 1], w1[r + 1], w2[r + 1], w3[r + 1]
            first, second = out[r], out[r + 1]
            for t in range(TILE):
                first[t] = first[t] + a0 * x0[t] + a1 * x1[t] + a2 * x2[t] + a3 * x3[t]
                second[t] = second[t] + b0 * x0[t] + b1 * x1[t] + b2 * x2[t] + b3 * x3[t]
            r += 2
        if r < rows:
            a0, a1, a2, a3 = w0[r], w1[r], w2[r], w3[r]
            first = out[r]
            for t in range(TILE):
                first[t] = first[t] + a0 * x0[t] + a1 * x1[t] + a2 * x2[t] + a3 * x3[t]
        q += 4
    while q < count:
        x0, w0 = x[q], weights[q]
        for r in range(rows):
            a0, first = w0[r], out[r]
            for t in range(TILE):
                first[t] = first[t] + a0 * x0[t]
        q += 1


@_inline  # pragma: no cover
def _search(
    x: Floats, shared: Floats, table: Floats, constants: Floats, least: Floats, best: Codes, part: Floats
) -> None:
    """The code with the least shared + constant + table'x, of patches x (size, position); four codes at a time.

    The patch is taken two readings at a time; a missing second one is the last reading with weight 0.
    """
    size, count = table.shape
    for t in range(TILE):
        least[t] = np.inf
        best[t] = 0
    s0, s1, s2, s3 = part[0], part[1], part[2], part[3]
    only = np.float32(0.0) if size % 2 else np.float32(1.0)  # the weight of the last pair's second reading
    last = (size - 1) // 2 * 2
    y0, y1 = x[last], x[size - 1]
    for m in range(0, count, 4):
        # The last group of codes may be short: its first code fills it up, and never wins against itself.
        m1 = m + 1 if m + 1 < count else m
        m2 = m + 2 if m + 2 < count else m
        m3 = m + 3 if m + 3 < count else m
        i0, i1, i2, i3 = np.int32(m), np.int32(m1), np.int32(m2), np.int32(m3)
        h0, h1, h2, h3 = shared[m], shared[m1], shared[m2], shared[m3]
        k0, k1, k2, k3 = constants[m], constants[m1], constants[m2], constants[m3]
        e, f = table[last], table[size - 1]
        e0, e1, e2, e3 = e[m], e[m1], e[m2], e[m3]
        f0, f1, f2, f3 = f[m] * only, f[m1] * only, f[m2] * only, f[m3] * only
        if size <= 2:
            for t in range(TILE):
                v0 = h0[t] + k0 + e0 * y0[t] + f0 * y1[t]
                v1 = h1[t] + k1 + e1 * y0[t] + f1 * y1[t]
                v2 = h2[t] + k2 + e2 * y0[t] + f2 * y1[t]
                v3 = h3[t] + k3 + e3 * y0[t] + f3 * y1[t]
                low, code = least[t], best[t]
                closer = v0 < low
                low, code = (v0 if closer else low), (i0 if closer else code)
                closer = v1 < low
                low, code = (v1 if closer else low), (i1 if closer else code)
                closer = v2 < low
                low, code = (v2 if closer else low), (i2 if closer else code)
                closer = v3 < low
                low, code = (v3 if closer else low), (i3 if closer else code)
                least[t], best[t] = low, code
            continue
        x0, x1, c, d = x[0], x[1], table[0], table[1]
        c0, c1, c2, c3 = c[m], c[m1], c[m2], c[m3]
        d0, d1, d2, d3 = d[m], d[m1], d[m2], d[m3]
        for t in range(TILE):
            s0[t] = h0[t] + k0 + c0 * x0[t] + d0 * x1[t]
            s1[t] = h1[t] + k1 + c1 * x0[t] + d1 * x1[t]
            s2[t] = h2[t] + k2 + c2 * x0[t] + d2 * x1[t]
            s3[t] = h3[t] + k3 + c3 * x0[t] + d3 * x1[t]
        for p in range(2, last, 2):
            x0, x1, c, d = x[p], x[p + 1], table[p], table[p + 1]
            c0, c1, c2, c3 = c[m], c[m1], c[m2], c[m3]
            d0, d1, d2, d3 = d[m], d[m1], d[m2], d[m3]
            for t in range(TILE):
                s0[t] = s0[t] + c0 * x0[t] + d0 * x1[t]
                s1[t] = s1[t] + c1 * x0[t] + d1 * x1[t]
                s2[t] = s2[t] + c2 * x0[t] + d2 * x1[t]
                s3[t] = s3[t] + c3 * x0[t] + d3 * x1[t]
        for t in range(TILE):
            v0 = s0[t] + e0 * y0[t] + f0 * y1[t]
            v1 = s1[t] + e1 * y0[t] + f1 * y1[t]
            v2 = s2[t] + e2 * y0[t] + f2 * y1[t]
            v3 = s3[t] + e3 * y0[t] + f3 * y1[t]
            low, code = least[t], best[t]
            closer = v0 < low
            low, code = (v0 if closer else low), (i0 if closer else code)
            closer = v1 < low
            low, code = (v1 if closer else low), (i1 if closer else code)
            closer = v2 < low
            low, code = (v2 if closer else low), (i2 if closer else code)
            closer = v3 < low
            low, code = (v3 if closer else low), (i3 if closer else code)
            least[t], best[t] = low, code


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"}, error_model="numpy")  # pragma: no cover
def _distances(
    width: int,
    h: Floats,  # (position, rank)
    x: Floats,  # (variable, size, position)
    inside: Floats,
    inside_offset: Floats,
    inside_codes: Floats,
    outside: Floats,
    outside_offset: Floats,
    outside_rest: Floats,
    codes: Codes,  # (variable, position)
    errors: Floats,  # (variable, position), written
) -> None:
    """The distance of each patch to its code: |h + inside'x + offset - code|, with what lies outside of it."""
    variables, size, rank = inside.shape
    gap = np.empty(rank, np.float32)
    last = (size - 1) // 2 * 2
    for i in range(variables):
        offset, table = inside_offset[i], inside[i]
        a, b = table[last], table[size - 1]
        for t in range(width):
            m = codes[i, t]
            line, code = h[t], inside_codes[m]
            y0, y1 = x[i, last, t], x[i, size - 1, t]
            y1 = np.float32(0.0) if size % 2 else y1
            squared = outside_rest[i, m]
            if size <= 2:
                for r in range(rank):
                    part = line[r] + offset[r] - code[r] + a[r] * y0 + b[r] * y1
                    squared += part * part
            else:
                x0, x1, c, d = x[i, 0, t], x[i, 1, t], table[0], table[1]
                for r in range(rank):
                    gap[r] = line[r] + offset[r] - code[r] + c[r] * x0 + d[r] * x1
                for p in range(2, last, 2):
                    x0, x1, c, d = x[i, p, t], x[i, p + 1, t], table[p], table[p + 1]
                    for r in range(rank):
                        gap[r] = gap[r] + c[r] * x0 + d[r] * x1
                for r in range(rank):
                    part = gap[r] + a[r] * y0 + b[r] * y1
                    squared += part * part
            for q in range(outside.shape[2]):
                part = outside_offset[i, m, q]
                for p in range(size):
                    part += outside[i, p, q] * x[i, p, t]
                squared += part * part
            errors[i, t] = np.sqrt(squared)


@_inline  # pragma: no cover
def _search_one(
    x: Floats, t: int, core: Floats, core_codes: Floats, tables: Floats, constants: Floats, h: Floats
) -> Codes:
    """What `_products` and `_search` do, to the bit, for position t of a tile: codes side by side, not positions."""
    variables, size, count = tables.shape
    rank = core.shape[1]
    shared, search, codes = np.zeros(count, np.float32), np.empty(count, np.float32), np.empty(variables, np.int32)
    for r in range(rank):
        h[r] = 0.0
    for i in range(variables):
        for p in range(size):
            value, line = x[i, p, t], core[i * size + p]
            for r in range(rank):
                h[r] = h[r] + line[r] * value
    for r in range(rank):
        value, line = h[r], core_codes[r]
        for m in range(count):
            shared[m] = shared[m] + line[m] * value
    for i in range(variables):
        constant = constants[i]
        for m in range(count):
            search[m] = shared[m] + constant[m]
        for p in range(size):
            value, line = x[i, p, t], tables[i, p]
            for m in range(count):
                search[m] = search[m] + line[m] * value
        best, low = 0, search[0]
        for m in range(1, count):
            if search[m] < low:
                best, low = m, search[m]
        codes[i] = best
    return codes


@_jit  # pragma: no cover
def nearest_codes(
    windows: Floats,  # (window, time, variable)
    first: int,
    stride: int,
    core: Floats,
    core_codes: Floats,
    series_codes: Floats,
    constants: Floats,
    inside: Floats,
    inside_offset: Floats,
    inside_codes: Floats,
    outside: Floats,
    outside_offset: Floats,
    outside_rest: Floats,
    codes: Codes,  # (window, patch, variable), written
    errors: Floats,  # (window, patch, variable), written
) -> None:
    """Patches `first`, `first + 1`, ... of each window; the tables are those of `FoldedScale`."""
    variables, size, count = series_codes.shape
    rank, patches = core.shape[1], codes.shape[1]
    positions = codes.shape[0] * patches
    x = np.zeros((variables, size, TILE), np.float32)
    found, distance = np.zeros((variables, TILE), np.int32), np.empty((variables, TILE), np.float32)
    h_by_position = np.empty((TILE, rank), np.float32)
    tiles = positions >= FEW
    scratch = TILE if tiles else 1
    h, shared = np.empty((rank, scratch), np.float32), np.empty((count, scratch), np.float32)
    part, least = np.empty((4, scratch), np.float32), np.empty(scratch, np.float32)
    for begin in range(0, positions, TILE):
        width = min(TILE, positions - begin)
        for t in range(width):
            w, j = divmod(begin + t, patches)
            for p in range(size):
                row = windows[w, (first + j) * stride + p]
                for i in range(variables):
                    x[i, p, t] = row[i]
        if width < FEW:
            for t in range(width):
                found[:, t] = _search_one(x, t, core, core_codes, series_codes, constants, h_by_position[t])
        else:
            _products(core, x.reshape(variables * size, TILE), h)
            _products(core_codes, h, shared)
            for i in range(variables):
                _search(x[i], shared, series_codes[i], constants[i], least, found[i], part)
            for r in range(rank):
                for t in range(width):
                    h_by_position[t, r] = h[r, t]
        _distances(
            width,
            h_by_position,
            x,
            inside,
            inside_offset,
            inside_codes,
            outside,
            outside_offset,
            outside_rest,
            found,
            distance,
        )
        for t in range(width):
            w, j = divmod(begin + t, patches)
            for i in range(variables):
                codes[w, j, i] = found[i, t]
                errors[w, j, i] = distance[i, t]


@_jit  # pragma: no cover
def search_codes(
    patches: Floats,  # (variable, size, position)
    shared: Floats,  # (code, position)  the core's part of the search
    series_codes: Floats,  # (variable, size, code)
    constants: Floats,  # (variable, code)
    codes: Codes,  # (variable, position), written
) -> None:
    """The nearest code of every patch."""
    variables, size, positions = patches.shape
    x, here = np.zeros((size, TILE), np.float32), np.zeros((len(shared), TILE), np.float32)
    part, least, best = np.empty((4, TILE), np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    for begin in range(0, positions, TILE):
        width = min(TILE, positions - begin)
        for m in range(len(shared)):
            here[m, :width] = shared[m, begin : begin + width]
        for i in range(variables):
            for p in range(size):
                x[p, :width] = patches[i, p, begin : begin + width]
            _search(x, here, series_codes[i], constants[i], least, best, part)
            codes[i, begin : begin + width] = best[:width]


@_jit  # pragma: no cover
def patch_sums_by_code(
    patches: Floats,  # (variable, size, position)
    codes: Codes,  # (variable, position)
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


@_jit  # pragma: no cover
def means_over_patches(
    values: NDArray[Any],  # (window, patch, variable)
    first: NDArray[np.int64],  # (time,)
    last: NDArray[np.int64],  # (time,)
    means: NDArray[np.float64],  # (window, time, variable), written
) -> None:
    """The mean of each time step over the patches first..last on it, summed in their order."""
    for w in range(len(values)):
        for t in range(len(first)):
            mean, count = means[w, t], last[t] - first[t] + 1
            line = values[w, first[t]]
            for i in range(len(line)):
                mean[i] = line[i]
            for j in range(first[t] + 1, last[t] + 1):
                line = values[w, j]
                for i in range(len(line)):
                    mean[i] += line[i]
            for i in range(len(line)):
                mean[i] /= count
