"""The inner loops on the CPU: the nearest code of every patch and the distance to it, and sums over patches by code.

The search works on tiles: many positions side by side, so that one instruction serves many of them. A few positions, as
a stream completes them, are searched one by one with codes side by side. Both add the same numbers in the same order,
one fused multiply-add after another, so a result has the same bits in either, and does not depend on how many
positions are asked for at once or by how many threads.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats32
from cometad.compiled import jit
from cometad.network.fast.lanes import (
    DOUBLES,
    ROWS,
    SPAN,
    WIDTH,
    add,
    add_block,
    add_row,
    add_squares,
    code_block,
    gap_block,
    load,
    load_block,
    lower,
    lower_block,
    lower_code,
    lowest_code,
    multiply_add,
    multiply_add_block,
    no_codes,
    nothing_yet,
    splat,
    splat_at,
    store,
    store_best,
    store_block,
    store_lengths,
    transpose,
    zero_block,
    zero_double_block,
    zero_narrow,
)

TILE = 2 * SPAN  # positions side by side; what a tile needs stays in the second-level cache
NEAR = 64  # positions of which 32 doubles each stay in the first-level cache, and all in the second
FEW = 12  # positions; below, a tile does not pay
EIGHT = 8  # doubles in a vector

Codes = NDArray[np.int32]


@jit
def _scratch(count: int) -> Floats32:
    """Some floats that begin with a cache line: a vector that straddles two takes twice as long."""
    line = 64
    memory = np.zeros(count + line // 4, np.float32)
    begin = (-memory.ctypes.data % line) // 4
    return memory[begin : begin + count]


@jit
def _double_tile(stacked: int) -> Any:
    """The same of doubles, for the stacked patches of some positions: (block, position, DOUBLES)."""
    return _scratch(2 * NEAR * stacked).view(np.float64).reshape(stacked // DOUBLES, NEAR, DOUBLES)


@jit
def _turn(
    source: Any, places: NDArray[np.int64], rows: int, shift: int, columns: int, target: Any, offset: int, stride: int
) -> None:
    """Set target[offset + c * stride + r] = source[places[r] + shift + c]."""
    if rows < WIDTH or columns < WIDTH:
        for r in range(rows):
            for c in range(columns):
                target[offset + c * stride + r] = source[places[r] + shift + c]
        return
    for r in range(0, rows, WIDTH):
        r = min(r, rows - WIDTH)  # the last block goes over some of the one before it
        for c in range(0, columns, WIDTH):
            c = min(c, columns - WIDTH)
            transpose(source, places, r, shift + c, target, offset + c * stride + r, stride)


@jit
def _places(
    begin: int, width: int, first: int, stride: int, patches: int, shape: tuple[int, int, int], places: Any
) -> None:
    """Where in memory the patches at the positions begin, begin + 1, ... of windows of a shape start."""
    _, time, variables = shape
    for t in range(width):
        w, j = divmod(begin + t, patches)
        places[t] = (w * time + (first + j) * stride) * variables


@jit
def _products(weights: Floats32, x: Floats32, out: Floats32) -> None:
    """Set out (row, position) = weights' (n, row) times x (n, position)."""
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
    """The code with the least shared + constant + table'x, of variable i's patches (size, position) in x."""
    _, size, count = series_codes.shape
    for t in range(0, TILE, SPAN):
        found = nothing_yet()
        for m in range(0, count, ROWS):
            block = load_block(shared, m * TILE + t, TILE, constants, i * count + m)
            for p in range(size):
                block = multiply_add_block(block, series_codes, (i * size + p) * count + m, x, begin + p * TILE + t)
            found = lower_block(block, found, m)
        store_best(found, best, i * TILE + t)


@jit
def _products_of_one(weights: Floats32, x: Floats32, out: Floats32) -> None:
    """What `_products` does, to the bit, for one position: rows side by side, not positions."""
    count, rows = weights.shape
    for row in range(0, rows, WIDTH):
        sums = splat(np.float32(0.0))
        for n in range(count):
            sums = multiply_add(load(weights, n * rows + row), splat_at(x, n), sums)
        store(sums, out, row)


@jit
def _search_of_one(i: int, x: Floats32, shared: Floats32, series_codes: Floats32, constants: Floats32) -> Any:
    """What `_search` does, to the bit, for one position: codes side by side, not positions."""
    _, size, count = series_codes.shape
    least, codes = splat(np.float32(np.inf)), no_codes()
    for m in range(0, count, WIDTH):
        value = add(load(shared, m), load(constants, i * count + m))
        for p in range(size):
            value = multiply_add(load(series_codes, (i * size + p) * count + m), splat_at(x, i * size + p), value)
        codes = lower_code(value, least, m, codes)
        least = lower(value, least)
    return lowest_code(least, codes)


@jit
def _distances(
    i: int,
    width: int,
    step: int,
    h: Floats32,  # (position, rank)
    x: Floats32,  # (variable, size, position), `step` positions in memory
    codes: Codes,  # (variable, position)
    inside: Floats32,
    inside_offset: Floats32,
    inside_codes: Floats32,
    outside: Floats32,
    outside_offset: Floats32,
    errors: Floats32,  # (variable, position), written
) -> None:
    """The distance of each patch of variable i to its code: |h + inside'x + offset - code|, and what lies outside."""
    _, size, rank = inside.shape
    _, count, own = outside_offset.shape
    begin, here, wide = i * size * step, i * codes.shape[1], rank // SPAN * SPAN
    for t in range(0, width, ROWS):
        squares = zero_narrow()
        for r in range(0, wide, SPAN):
            gaps = gap_block(
                zero_block(), h, t * rank + r, inside_offset, i * rank + r, inside_codes, r, codes, here + t
            )
            for p in range(size):
                gaps = multiply_add_block(gaps, x, begin + p * step + t, inside, (i * size + p) * rank + r)
            squares = add_squares(squares, gaps)
        for r in range(wide, rank, WIDTH):
            few = gap_block(
                zero_narrow(), h, t * rank + r, inside_offset, i * rank + r, inside_codes, r, codes, here + t
            )
            for p in range(size):
                few = multiply_add_block(few, x, begin + p * step + t, inside, (i * size + p) * rank + r)
            squares = add_squares(squares, few)
        for r in range(0, own, WIDTH):
            few = code_block(outside_offset, i * count * own + r, codes, here + t)
            for p in range(size):
                few = multiply_add_block(few, x, begin + p * step + t, outside, (i * size + p) * own + r)
            squares = add_squares(squares, few)
        store_lengths(squares, errors, here + t)


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
    """Patches `first`, `first + 1`, ... of each window; the tables are those of `FoldedScale`."""
    variables, size, count = series_codes.shape
    rank, patches = core.shape[1], codes.shape[1]
    positions = codes.shape[0] * patches
    tiles = positions >= FEW
    step = TILE if tiles else 1
    # Distances are taken of ROWS positions at a time, so there is room for that many even where there is one.
    x, shared, h = _scratch(variables * size * step + ROWS), _scratch(count * step), _scratch(rank * step)
    h_by_position = _scratch(rank * max(step, ROWS))
    found = np.zeros((variables, max(step, ROWS)), np.int32)
    distances = np.empty(found.shape, np.float32)
    readings, flat_codes, flat_errors = windows.reshape(-1), codes.reshape(-1), errors.reshape(-1)
    places, lines = np.zeros(step, np.int64), np.arange(max(rank, variables)) * found.shape[1]
    for begin in range(0, positions, step):
        width = min(step, positions - begin)
        _places(begin, width, first, stride, patches, windows.shape, places)
        for p in range(size):
            _turn(readings, places, width, p * variables, variables, x, p * step, size * step)
        if tiles:
            _products(core, x, h)
            _products(core_codes, h, shared)
            _turn(h, lines, rank, 0, width, h_by_position, 0, rank)
        else:
            _products_of_one(core, x, h_by_position)
            _products_of_one(core_codes, h_by_position, shared)
        for i in range(variables):
            if tiles:
                _search(i, x, i * size * TILE, shared, series_codes, constants, found)
            else:
                found[i, 0] = _search_of_one(i, x, shared, series_codes, constants)
            _distances(
                i,
                width,
                step,
                h_by_position,
                x,
                found,
                inside,
                inside_offset,
                inside_codes,
                outside,
                outside_offset,
                distances,
            )
        _turn(found.reshape(-1), lines, variables, 0, width, flat_codes, begin * variables, variables)
        _turn(distances.reshape(-1), lines, variables, 0, width, flat_errors, begin * variables, variables)


@jit
def back_to_time(
    codes: Codes,  # (window, patch, variable)
    errors: Floats32,  # (window, patch, variable)
    table: NDArray[np.float64],  # (code,)
    first: NDArray[np.int64],  # (time,)
    last: NDArray[np.int64],  # (time,)
    weight: float,
    memory: NDArray[np.float64],  # (window, time, variable), added to
    quantization: NDArray[np.float64],  # (window, time, variable), added to
) -> None:
    """Add both raw scores of each time step, `weight` times: means over the patches first..last on it."""
    windows, patches, variables = codes.shape
    all_codes, all_errors = codes.reshape(-1), errors.reshape(-1)
    all_memory, all_quantization = memory.reshape(-1), quantization.reshape(-1)
    eights = variables // EIGHT * EIGHT
    m, q = np.empty(EIGHT), np.empty(EIGHT)
    for w in range(windows):
        for t in range(len(first)):
            begin, count = (w * patches + first[t]) * variables, last[t] - first[t] + 1
            out, share = (w * len(first) + t) * variables, weight / count
            for i in range(0, eights, EIGHT):  # a number of rounds that the compiler knows: it makes vectors of them
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
    """The nearest code of every patch, as `nearest_codes` finds it, without the distance."""
    variables, size, count = series_codes.shape
    rank, patches = core.shape[1], codes.shape[1]
    positions = codes.shape[0] * patches
    x, shared, h = _scratch(variables * size * TILE), _scratch(count * TILE), _scratch(rank * TILE)
    found = np.zeros((variables, TILE), np.int32)
    readings, flat_codes = windows.reshape(-1), codes.reshape(-1)
    places, lines = np.zeros(TILE, np.int64), np.arange(variables) * TILE
    for begin in range(0, positions, TILE):
        width = min(TILE, positions - begin)
        _places(begin, width, 0, stride, patches, windows.shape, places)
        for p in range(size):
            _turn(readings, places, width, p * variables, variables, x, p * TILE, size * TILE)
        _products(core, x, h)
        _products(core_codes, h, shared)
        for i in range(variables):
            _search(i, x, i * size * TILE, shared, series_codes, constants, found)
        _turn(found.reshape(-1), lines, variables, 0, width, flat_codes, begin * variables, variables)


@jit
def add_patches_by_code(
    windows: Floats32,  # (window, time, variable)
    stride: int,
    codes: Codes,  # (window, patch, variable)
    normal: NDArray[np.bool_],  # (window, patch, variable), or nothing where all are
    counts: NDArray[np.float64],  # (variable, code), added to
    sums: NDArray[np.float64],  # (variable, code, size), added to
) -> None:
    """How many normal patches of each variable took each code, and the sums of these patches."""
    _, count, size = sums.shape
    _, patches, variables = codes.shape
    readings, flat_codes, flat_normal = windows.reshape(-1), codes.reshape(-1), normal.reshape(-1)
    flat_counts, flat_sums = counts.reshape(-1), sums.reshape(-1)
    for w in range(codes.shape[0]):
        for j in range(patches):
            here, begin = (w * patches + j) * variables, (w * windows.shape[1] + j * stride) * variables
            for i in range(variables):
                if len(normal) == 0 or flat_normal[here + i]:
                    place = np.uint64(i * count + flat_codes[here + i])  # unsigned: no look whether it is negative
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
    normal: NDArray[np.bool_],  # (window, patch, variable), or nothing where all are
    pairs: NDArray[np.float64],  # P P'  (stacked, stacked), added to
    total: NDArray[np.float64],  # P  (1, stacked), added to
    by_code: NDArray[np.float64],  # P of each normal patch  (code, stacked), added to
    less_pairs: NDArray[np.float64],  # those rows of P P' that are of patches not normal, added to
    less_weighted: NDArray[np.float64],  # P P' times how many are not normal, added to
    less_by_variable: NDArray[np.float64],  # P of each patch not normal  (variable, stacked), added to
) -> None:
    """Add up products of the stacked patches P of all positions, and of what is to be taken off: it is little.

    P is in the order of memory here, (size, variable), and filled up with zeros. Of products that are symmetric only
    what lies on or above the diagonal is right.
    """
    _, patches, variables = codes.shape
    positions, length, stacked = codes.shape[0] * patches, size * variables, pairs.shape[1]
    all_normal = len(normal) == 0
    readings, flat_codes, flat_normal = windows.reshape(-1), codes.reshape(-1), normal.reshape(-1)
    places, taken = np.zeros(NEAR, np.int64), np.zeros((NEAR, len(by_code) + -len(by_code) % ROWS))
    seen, columns = np.zeros(len(by_code), np.int64), np.full(len(by_code), -1)
    plain, dirty, weighed = _double_tile(stacked), _double_tile(stacked), _double_tile(stacked)
    for begin in range(0, positions, NEAR):
        tile, dirty_ones, different = min(NEAR, positions - begin), 0, 0  # codes in this tile: often few
        _places(begin, tile, 0, stride, patches, windows.shape, places)
        for t in range(tile):
            here, weight = (begin + t) * variables, 0.0
            for block in range(len(plain)):
                first = block * DOUBLES
                for n in range(min(DOUBLES, length - first)):
                    plain[block, t, n] = readings[np.uint64(places[t] + first + n)]
            for i in range(variables):
                if all_normal or flat_normal[here + i]:
                    m = flat_codes[here + i]
                    if columns[m] < 0:
                        columns[m], seen[different] = different, m
                        different += 1
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
                        dirty[block, dirty_ones, n] = plain[block, t, n]
                        weighed[block, dirty_ones, n] = weight * plain[block, t, n]
                dirty_ones += 1
        _add_by_code(tile, taken, plain, seen[:different], by_code)
        for k in range(different):
            columns[seen[k]] = -1
            taken[:, k] = 0.0
        _add_pairs(tile, plain, plain, pairs)
        if dirty_ones > 0:
            _add_pairs(dirty_ones, weighed, dirty, less_weighted)


@jit
def _add_position(weight: float, source: Any, t: int, target: NDArray[np.float64], row: int) -> None:
    """To a row of the target add the stacked patches of one position, times a weight."""
    blocks, near, _ = source.shape
    for block in range(blocks):
        add_row(weight, source, (block * near + t) * DOUBLES, target, (row * blocks + block) * DOUBLES)


@jit
def _add_by_code(
    tile: int, taken: NDArray[np.float64], source: Any, seen: NDArray[np.int64], by_code: NDArray[np.float64]
) -> None:
    """Add taken'source: the stacked patches of each position, as often as it took each of the codes seen."""
    stacked, count = by_code.shape[1], taken.shape[1]
    sums = np.zeros((ROWS, DOUBLES))
    for column in range(0, stacked, DOUBLES):
        for k in range(0, len(seen), ROWS):
            block = zero_double_block()
            for t in range(tile):
                block = multiply_add_block(block, taken, t * count + k, source, column * NEAR + t * DOUBLES)
            add_block(block, sums, 0, DOUBLES)
            for row in range(min(ROWS, len(seen) - k)):
                add_row(1.0, sums, row * DOUBLES, by_code, seen[k + row] * stacked + column)
            sums[:] = 0.0


@jit
def _add_pairs(tile: int, left: Any, right: Any, pairs: NDArray[np.float64]) -> None:
    """Add left'right, which is symmetric, as far as it lies on or above the diagonal."""
    rows, stacked = pairs.shape
    for column in range(0, stacked, DOUBLES):
        for row in range(0, min(rows, column + DOUBLES), ROWS):
            block = zero_double_block()
            here = row // DOUBLES * DOUBLES * NEAR + row % DOUBLES
            for t in range(tile):
                block = multiply_add_block(block, left, here + t * DOUBLES, right, column * NEAR + t * DOUBLES)
            add_block(block, pairs, row * stacked + column, stacked)


@jit
def mirror(pairs: NDArray[np.float64]) -> None:
    """Below the diagonal of a matrix, say what is above it."""
    for row in range(min(pairs.shape)):
        for column in range(row):
            pairs[row, column] = pairs[column, row]
