"""The inner loops on the CPU: the nearest code of every patch and its distance, and sums over patches by code.

The search works on tiles of many positions, so that one instruction handles many positions at once. The few positions
that a stream completes at a time are searched one by one, with many codes per instruction instead. Both add the same
numbers in the same order with fused multiply-adds, so results are bit-identical, whatever the number of positions per
call or the number of threads.

A position is the place of a patch in a window. Positions count through all windows and are the same for all variables.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.compute import jit
from cometad.network.fast.lanes import (
    DOUBLES,
    ROWS,
    SPAN,
    WIDTH,
    add,
    add_block,
    add_row,
    add_squares,
    difference_block,
    gather_block,
    initial_best,
    load,
    load_block,
    lowest_code,
    minimum,
    multiply_add,
    multiply_add_block,
    splat,
    splat_at,
    store,
    store_best_codes,
    store_block,
    store_norms,
    transpose,
    update_best,
    update_codes,
    zero_block,
    zero_codes,
    zero_double_block,
    zero_narrow_block,
)

TILE = 2 * SPAN  # positions in a tile; its data fits into the L2 cache
DOUBLE_TILE = 64  # positions in a tile of doubles; 32 doubles of each fit into the L1 cache, all of them into L2
MIN_TILED = 12  # positions; for fewer, searching one by one is faster than a tile
EIGHT = 8  # doubles in a vector

Codes = NDArray[np.int32]


@jit
def _scratch(count: int) -> Floats32:
    """Zeroed floats (count,), aligned to a cache line: a vector that straddles two lines takes twice as long."""
    line = 64
    memory = np.zeros(count + line // 4, np.float32)
    begin = (-memory.ctypes.data % line) // 4
    return memory[begin : begin + count]


@jit
def _transpose(
    source: Any, row_offsets: Integers, rows: int, shift: int, columns: int, target: Any, offset: int, stride: int
) -> None:
    """Set target[offset + c * stride + r] = source[row_offsets[r] + shift + c]."""
    if rows < WIDTH or columns < WIDTH:
        for r in range(rows):
            for c in range(columns):
                target[offset + c * stride + r] = source[row_offsets[r] + shift + c]
        return
    for r in range(0, rows, WIDTH):
        r = min(r, rows - WIDTH)  # the last block overlaps the one before it
        for c in range(0, columns, WIDTH):
            c = min(c, columns - WIDTH)
            transpose(source, row_offsets, r, shift + c, target, offset + c * stride + r, stride)


@jit
def _patch_offsets(
    begin: int, width: int, first: int, stride: int, patches: int, shape: tuple[int, int, int], row_offsets: Any
) -> None:
    """Set the memory offsets of the patches at positions begin, begin + 1, ... in windows of a shape."""
    _, time, variables = shape
    for t in range(width):
        w, j = divmod(begin + t, patches)
        row_offsets[t] = (w * time + (first + j) * stride) * variables


@jit
def _products(weights: Floats32, x: Floats32, out: Floats32) -> None:
    """Set out (row, position) to the product of weights' (n, row) and x (n, position)."""
    count, rows = weights.shape
    for row in range(0, rows, ROWS):
        for t in range(0, TILE, SPAN):
            block = zero_block()
            for n in range(count):
                block = multiply_add_block(block, weights, n * rows + row, x, n * TILE + t)
            store_block(block, out, row * TILE + t, TILE)


@jit
def _search(
    i: int, x: Floats32, begin: int, shared: Floats32, series_codes: Floats32, constants: Floats32, best: Codes
) -> None:
    """Find the code with the lowest shared + constant + table'x for variable i's patches (size, position) in x."""
    _, size, count = series_codes.shape
    for t in range(0, TILE, SPAN):
        found = initial_best()
        for m in range(0, count, ROWS):
            block = load_block(shared, m * TILE + t, TILE, constants, i * count + m)
            for p in range(size):
                block = multiply_add_block(block, series_codes, (i * size + p) * count + m, x, begin + p * TILE + t)
            found = update_best(block, found, m)
        store_best_codes(found, best, i * TILE + t)


@jit
def _products_single(weights: Floats32, x: Floats32, out: Floats32) -> None:
    """`_products` for one position, bit-identical; a vector holds rows instead of positions."""
    count, rows = weights.shape
    for row in range(0, rows, WIDTH):
        sums = splat(np.float32(0.0))
        for n in range(count):
            sums = multiply_add(load(weights, n * rows + row), splat_at(x, n), sums)
        store(sums, out, row)


@jit
def _search_single(i: int, x: Floats32, shared: Floats32, series_codes: Floats32, constants: Floats32) -> Any:
    """`_search` for one position, bit-identical; a vector holds codes instead of positions."""
    _, size, count = series_codes.shape
    least, codes = splat(np.float32(np.inf)), zero_codes()
    for m in range(0, count, WIDTH):
        value = add(load(shared, m), load(constants, i * count + m))
        for p in range(size):
            value = multiply_add(load(series_codes, (i * size + p) * count + m), splat_at(x, i * size + p), value)
        codes = update_codes(value, least, m, codes)
        least = minimum(value, least)
    return lowest_code(least, codes)


@jit
def _distances(
    i: int,
    width: int,
    step: int,
    h: Floats32,  # (position, rank)
    x: Floats32,  # (variable, size, position), with room for `step` positions
    codes: Codes,  # (variable, position)
    tables: tuple[Floats32, ...],
    errors: Floats32,  # (variable, position), written
) -> None:
    """The distance of each patch of variable i to its code, |h + inside'x + offset - code| and the part outside."""
    inside, inside_offset, inside_codes, outside, outside_offset = tables
    _, size, rank = inside.shape
    _, count, own = outside_offset.shape
    begin, here, wide = i * size * step, i * codes.shape[1], rank // SPAN * SPAN
    for t in range(0, width, ROWS):
        squares = zero_narrow_block()
        for r in range(0, wide, SPAN):
            gaps = difference_block(
                zero_block(), h, t * rank + r, inside_offset, i * rank + r, inside_codes, r, codes, here + t
            )
            for p in range(size):
                gaps = multiply_add_block(gaps, x, begin + p * step + t, inside, (i * size + p) * rank + r)
            squares = add_squares(squares, gaps)
        for r in range(wide, rank, WIDTH):
            few = difference_block(
                zero_narrow_block(), h, t * rank + r, inside_offset, i * rank + r, inside_codes, r, codes, here + t
            )
            for p in range(size):
                few = multiply_add_block(few, x, begin + p * step + t, inside, (i * size + p) * rank + r)
            squares = add_squares(squares, few)
        for r in range(0, own, WIDTH):
            few = gather_block(outside_offset, i * count * own + r, codes, here + t)
            for p in range(size):
                few = multiply_add_block(few, x, begin + p * step + t, outside, (i * size + p) * own + r)
            squares = add_squares(squares, few)
        store_norms(squares, errors, here + t)


@jit
def nearest_codes(
    windows: Floats32,  # (window, time, variable)
    first: int,
    stride: int,
    core: Floats32,
    core_codes: Floats32,
    series_codes: Floats32,
    constants: Floats32,
    inside: Floats32,
    inside_offset: Floats32,
    inside_codes: Floats32,
    outside: Floats32,
    outside_offset: Floats32,
    codes: Codes,  # (window, patch, variable), written
    errors: Floats32,  # (window, patch, variable), written
) -> None:
    """Find codes and distances of patches `first`, `first + 1`, ... of each window; the tables are `FoldedScale`'s."""
    variables, size, count = series_codes.shape
    rank, patches = core.shape[1], codes.shape[1]
    positions = codes.shape[0] * patches
    tiles = positions >= MIN_TILED
    step = TILE if tiles else 1
    # Distances are computed for ROWS positions at a time, so allocate that many even for one.
    x, shared, h = _scratch(variables * size * step + ROWS), _scratch(count * step), _scratch(rank * step)
    h_by_position = _scratch(rank * max(step, ROWS))
    found = np.zeros((variables, max(step, ROWS)), np.int32)
    distances = np.empty(found.shape, np.float32)
    readings, flat_codes, flat_errors = windows.reshape(-1), codes.reshape(-1), errors.reshape(-1)
    tables = inside, inside_offset, inside_codes, outside, outside_offset
    row_offsets, line_offsets = np.zeros(step, np.int64), np.arange(max(rank, variables)) * found.shape[1]
    for begin in range(0, positions, step):
        width = min(step, positions - begin)
        _patch_offsets(begin, width, first, stride, patches, windows.shape, row_offsets)
        for p in range(size):
            _transpose(readings, row_offsets, width, p * variables, variables, x, p * step, size * step)
        if tiles:
            _products(core, x, h)
            _products(core_codes, h, shared)
            _transpose(h, line_offsets, rank, 0, width, h_by_position, 0, rank)
        else:
            _products_single(core, x, h_by_position)
            _products_single(core_codes, h_by_position, shared)
        for i in range(variables):
            if tiles:
                _search(i, x, i * size * TILE, shared, series_codes, constants, found)
            else:
                found[i, 0] = _search_single(i, x, shared, series_codes, constants)
            _distances(i, width, step, h_by_position, x, found, tables, distances)
        _transpose(found.reshape(-1), line_offsets, variables, 0, width, flat_codes, begin * variables, variables)
        _transpose(distances.reshape(-1), line_offsets, variables, 0, width, flat_errors, begin * variables, variables)


@jit
def back_to_time(
    codes: Codes,  # (window, patch, variable)
    errors: Floats32,  # (window, patch, variable)
    table: Floats,  # (code,)
    first: Integers,  # (time,)
    last: Integers,  # (time,)
    weight: float,
    memory: Floats,  # (window, time, variable), added to
    quantization: Floats,  # (window, time, variable), added to
) -> None:
    """Add both raw scores of each time step, times `weight`: the means over its patches first..last."""
    windows, patches, variables = codes.shape
    all_codes, all_errors = codes.reshape(-1), errors.reshape(-1)
    all_memory, all_quantization = memory.reshape(-1), quantization.reshape(-1)
    eights = variables // EIGHT * EIGHT
    m, q = np.empty(EIGHT), np.empty(EIGHT)
    for w in range(windows):
        for t in range(len(first)):
            begin, count = (w * patches + first[t]) * variables, last[t] - first[t] + 1
            out, share = (w * len(first) + t) * variables, weight / count
            for i in range(0, eights, EIGHT):  # fixed-length inner loops, which the compiler vectorizes
                for n in range(EIGHT):
                    m[n] = q[n] = 0.0
                for j in range(count):
                    place = begin + j * variables + i
                    for n in range(EIGHT):
                        q[n] += all_errors[np.uint64(place + n)]
                    for n in range(EIGHT):
                        m[n] += table[np.uint64(all_codes[np.uint64(place + n)])]
                for n in range(EIGHT):
                    all_memory[np.uint64(out + i + n)] += m[n] * share
                for n in range(EIGHT):
                    all_quantization[np.uint64(out + i + n)] += q[n] * share
            for i in range(eights, variables):
                m_sum, q_sum = 0.0, 0.0
                for j in range(count):
                    place = np.uint64(begin + j * variables + i)
                    q_sum += all_errors[place]
                    m_sum += table[np.uint64(all_codes[place])]
                all_memory[np.uint64(out + i)] += m_sum * share
                all_quantization[np.uint64(out + i)] += q_sum * share


@jit
def find_codes(
    windows: Floats32,  # (window, time, variable)
    stride: int,
    core: Floats32,
    core_codes: Floats32,
    series_codes: Floats32,
    constants: Floats32,
    codes: Codes,  # (window, patch, variable), written
) -> None:
    """The nearest code of every patch, as in `nearest_codes`, without the distance."""
    variables, size, count = series_codes.shape
    rank, patches = core.shape[1], codes.shape[1]
    positions = codes.shape[0] * patches
    x, shared, h = _scratch(variables * size * TILE), _scratch(count * TILE), _scratch(rank * TILE)
    found = np.zeros((variables, TILE), np.int32)
    readings, flat_codes = windows.reshape(-1), codes.reshape(-1)
    row_offsets, line_offsets = np.zeros(TILE, np.int64), np.arange(variables) * TILE
    for begin in range(0, positions, TILE):
        width = min(TILE, positions - begin)
        _patch_offsets(begin, width, 0, stride, patches, windows.shape, row_offsets)
        for p in range(size):
            _transpose(readings, row_offsets, width, p * variables, variables, x, p * TILE, size * TILE)
        _products(core, x, h)
        _products(core_codes, h, shared)
        for i in range(variables):
            _search(i, x, i * size * TILE, shared, series_codes, constants, found)
        _transpose(found.reshape(-1), line_offsets, variables, 0, width, flat_codes, begin * variables, variables)


@jit
def add_patches_by_code(
    windows: Floats32,  # (window, time, variable)
    stride: int,
    codes: Codes,  # (window, patch, variable)
    normal: Flags,  # (window, patch, variable), or empty if all are normal
    counts: Floats,  # (variable, code), added to
    sums: Floats,  # (variable, code, size), added to
) -> None:
    """Count the normal patches with each code, for each variable, and sum these patches."""
    _, count, size = sums.shape
    _, patches, variables = codes.shape
    readings, flat_codes, flat_normal = windows.reshape(-1), codes.reshape(-1), normal.reshape(-1)
    flat_counts, flat_sums = counts.reshape(-1), sums.reshape(-1)
    for w in range(codes.shape[0]):
        for j in range(patches):
            here, begin = (w * patches + j) * variables, (w * windows.shape[1] + j * stride) * variables
            for i in range(variables):
                if len(normal) == 0 or flat_normal[here + i]:
                    place = np.uint64(i * count + flat_codes[here + i])  # unsigned: no check for negative indices
                    flat_counts[place] += 1.0
                    for p in range(size):
                        to = place * np.uint64(size) + np.uint64(p)
                        flat_sums[to] += readings[np.uint64(begin + p * variables + i)]


@jit
def add_products(
    windows: Floats32,  # (window, time, variable)
    size: int,
    stride: int,
    codes: Codes,  # (window, patch, variable)
    normal: Flags,  # (window, patch, variable), or empty if all are normal
    pairs: Floats,  # (stacked, stacked)  P P', added to
    total: Floats,  # (1, stacked)  P, added to
    by_code: Floats,  # (code, stacked)  P for each normal patch, added to
    less_pairs: Floats,  # (stacked, stacked)  rows of P P' of abnormal patches, added to
    less_weighted: Floats,  # (stacked, stacked)  P P' times the number of abnormal patches, added to
    less_by_variable: Floats,  # (variable, stacked)  P for each abnormal patch, added to
) -> None:
    """Sum products of the stacked patches P over all positions, and separately the part of the abnormal patches.

    The caller subtracts that part: abnormal patches are few, so this is faster than masking every product. P is in
    memory order, (size, variable), and padded with zeros. Symmetric results are valid only on and above the diagonal.
    """
    _, patches, variables = codes.shape
    positions, length, stacked = codes.shape[0] * patches, size * variables, pairs.shape[1]
    all_normal = len(normal) == 0
    readings, flat_codes, flat_normal = windows.reshape(-1), codes.reshape(-1), normal.reshape(-1)
    row_offsets, taken = np.zeros(DOUBLE_TILE, np.int64), np.zeros((DOUBLE_TILE, len(by_code) + -len(by_code) % ROWS))
    seen, columns = np.zeros(len(by_code), np.int64), np.full(len(by_code), -1)
    # For the stacked patches of a tile (block, position, DOUBLES): all, those of abnormal patches, and these weighted.
    tiles = _scratch(6 * DOUBLE_TILE * stacked).view(np.float64).reshape(3, -1, DOUBLE_TILE, DOUBLES)
    plain, abnormal, weighted = tiles[0], tiles[1], tiles[2]
    for begin in range(0, positions, DOUBLE_TILE):
        tile, abnormal_count, distinct = min(DOUBLE_TILE, positions - begin), 0, 0  # distinct codes: often few
        _patch_offsets(begin, tile, 0, stride, patches, windows.shape, row_offsets)
        for t in range(tile):
            here, weight = (begin + t) * variables, 0.0
            for block in range(len(plain)):
                first = block * DOUBLES
                for n in range(min(DOUBLES, length - first)):
                    plain[block, t, n] = readings[np.uint64(row_offsets[t] + first + n)]
            for i in range(variables):
                if all_normal or flat_normal[here + i]:
                    m = flat_codes[here + i]
                    if columns[m] < 0:
                        columns[m], seen[distinct] = distinct, m
                        distinct += 1
                    taken[t, columns[m]] += 1.0
                else:
                    weight += 1.0
                    _add_position(1.0, plain, t, less_by_variable, i)
                    for p in range(size):
                        n = p * variables + i
                        _add_position(plain[n // DOUBLES, t, n % DOUBLES], plain, t, less_pairs, n)
            _add_position(1.0, plain, t, total, 0)
            if weight > 0.0:
                for block in range(len(plain)):
                    for n in range(DOUBLES):
                        abnormal[block, abnormal_count, n] = plain[block, t, n]
                        weighted[block, abnormal_count, n] = weight * plain[block, t, n]
                abnormal_count += 1
        _add_by_code(tile, taken, plain, seen[:distinct], by_code)
        for k in range(distinct):
            columns[seen[k]] = -1
            taken[:, k] = 0.0
        _add_pairs(tile, plain, plain, pairs)
        if abnormal_count > 0:
            _add_pairs(abnormal_count, weighted, abnormal, less_weighted)


@jit
def _add_position(weight: float, source: Any, t: int, target: Floats, row: int) -> None:
    """Add the stacked patches of one position, times a weight, to a row of the target."""
    blocks, positions, _ = source.shape
    for block in range(blocks):
        add_row(weight, source, (block * positions + t) * DOUBLES, target, (row * blocks + block) * DOUBLES)


@jit
def _add_by_code(tile: int, taken: Floats, source: Any, seen: Integers, by_code: Floats) -> None:
    """Add taken'source: the stacked patches of each position times its number of patches with each code."""
    stacked, count = by_code.shape[1], taken.shape[1]
    sums = np.zeros((ROWS, DOUBLES))
    for column in range(0, stacked, DOUBLES):
        for k in range(0, len(seen), ROWS):
            block = zero_double_block()
            for t in range(tile):
                block = multiply_add_block(block, taken, t * count + k, source, column * DOUBLE_TILE + t * DOUBLES)
            add_block(block, sums, 0, DOUBLES)
            for row in range(min(ROWS, len(seen) - k)):
                add_row(1.0, sums, row * DOUBLES, by_code, seen[k + row] * stacked + column)
            sums[:] = 0.0


@jit
def _add_pairs(tile: int, left: Any, right: Any, pairs: Floats) -> None:
    """Add left'right, which is symmetric, on and above the diagonal."""
    rows, stacked = pairs.shape
    for column in range(0, stacked, DOUBLES):
        for row in range(0, min(rows, column + DOUBLES), ROWS):
            block = zero_double_block()
            here = row // DOUBLES * DOUBLES * DOUBLE_TILE + row % DOUBLES
            for t in range(tile):
                block = multiply_add_block(block, left, here + t * DOUBLES, right, column * DOUBLE_TILE + t * DOUBLES)
            add_block(block, pairs, row * stacked + column, stacked)


@jit
def mirror(pairs: Floats) -> None:
    """Copy the part of a symmetric matrix above the diagonal to below it."""
    for row in range(min(pairs.shape)):
        for column in range(row):
            pairs[row, column] = pairs[column, row]
