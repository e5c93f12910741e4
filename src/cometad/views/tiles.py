"""The vector instructions that the products of `views` are written in, as numba intrinsics.

A tile is 4 rows (or one) of 8 doubles or 16 floats that stay in registers while products are added to them. A sum has
the same bits, whatever the tile.
"""

from typing import Any

from llvmlite import ir
from numba import types

from cometad.intrinsics import (
    DOUBLE_VECTOR,
    FLOAT_VECTOR,
    INT,
    INT_VECTOR,
    emits,
    fma,
    intrinsic,
    plus,
    repeated,
    summed,
    vector_type,
)

ROWS = 4  # of a tile
COLUMNS = 8  # doubles in a row
LANES = 16  # floats in a row

_double_row, _float_row = vector_type("DoubleRow", DOUBLE_VECTOR), vector_type("FloatRow", FLOAT_VECTOR)
_code_row = vector_type("CodeRow", INT_VECTOR)
_tile, _line = types.UniTuple(_double_row, ROWS), types.UniTuple(_double_row, 1)
_lines = {types.float64: _line, types.float32: types.UniTuple(_float_row, 1)}
_float_tile, _best = types.UniTuple(_float_row, ROWS), types.Tuple((_float_row, _code_row))


@intrinsic
def load_tile(typing: Any, array: Any, offset: Any) -> Any:
    """A tile whose 4 rows all are the 8 doubles of an array from an offset on."""
    return _tile(array, types.int64), emits(lambda builder, array, offset: [array.load(offset)] * ROWS)


@intrinsic
def load_line(typing: Any, array: Any, offset: Any) -> Any:
    """A tile of one row: the 8 doubles or 16 floats of an array from an offset on."""
    return _lines[array.dtype](array, types.int64), emits(lambda builder, array, offset: [array.load(offset)])


@intrinsic
def splat_tile(typing: Any, array: Any, offset: Any) -> Any:
    """A tile of floats: row r has the element offset + r of an array 16 times."""

    def write(builder: Any, array: Any, offset: Any) -> list[Any]:
        return [repeated(builder, array.scalar(plus(builder, offset, r)), FLOAT_VECTOR) for r in range(ROWS)]

    return _float_tile(array, types.int64), emits(write)


@intrinsic
def add_products(typing: Any, tile: Any, factors: Any, place: Any, step: Any, row: Any, offset: Any) -> Any:
    """Add to row r of a tile factors[place + r * step] times the elements of `row` from `offset` on."""

    def write(builder: Any, tile: Any, factors: Any, place: Any, step: Any, row: Any, offset: Any) -> list[Any]:
        values, added = row.load(offset), []
        for before in tile:
            added.append(fma(builder, repeated(builder, factors.scalar(place), row.vector), values, before))
            place = builder.add(place, step)
        return added

    return tile(tile, factors, types.int64, types.int64, row, types.int64), emits(write)


@intrinsic
def store_tile(typing: Any, tile: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the rows of a tile in an array, `stride` apart."""

    def write(builder: Any, tile: Any, array: Any, offset: Any, stride: Any) -> None:
        for row in tile:
            array.store(row, offset)
            offset = builder.add(offset, stride)

    return types.void(tile, array, types.int64, types.int64), emits(write)


@intrinsic
def add_squared_gaps(typing: Any, line: Any, left: Any, i: Any, right: Any, j: Any) -> Any:
    """Add to a tile of one row the squares of the 8 differences left[i...] - right[j...]."""

    def write(builder: Any, line: Any, left: Any, i: Any, right: Any, j: Any) -> list[Any]:
        gaps = builder.fsub(left.load(i), right.load(j))
        return [fma(builder, gaps, gaps, line[0])]

    return _line(line, left, types.int64, right, types.int64), emits(write)


@intrinsic
def zero_line(typing: Any) -> Any:
    """A tile of one row of zeros."""
    return _line(), emits(lambda builder: [ir.Constant(DOUBLE_VECTOR, [0.0] * COLUMNS)])


@intrinsic
def total_of(typing: Any, line: Any) -> Any:
    """The sum of a tile of one row."""
    return types.float64(line), emits(lambda builder, line: summed(builder, line[0]))


# --- the lowest of many codes, 16 places at a time --------------------------------------------------------------------


@intrinsic
def initial_best(typing: Any) -> Any:
    """The lowest value so far, infinity, and its code at 16 places."""
    infinite, zeros = ir.Constant(FLOAT_VECTOR, [float("inf")] * LANES), ir.Constant(INT_VECTOR, [0] * LANES)
    return _best(), emits(lambda builder: (infinite, zeros))


@intrinsic
def update_best(typing: Any, best: Any, tile: Any, first: Any) -> Any:
    """Update the lowest values and their codes with a tile whose rows are the codes first, first + 1, ..."""

    def write(builder: Any, best: Any, tile: Any, first: Any) -> Any:
        least, codes = best
        for r, row in enumerate(tile):
            code = builder.add(builder.trunc(first, INT), INT(r))
            lower = builder.fcmp_ordered("<", row, least)
            least = builder.select(lower, row, least)
            codes = builder.select(lower, repeated(builder, code, INT_VECTOR), codes)
        return least, codes

    return _best(best, tile, types.int64), emits(write)


@intrinsic
def store_codes(typing: Any, best: Any, array: Any, offset: Any) -> Any:
    """Store the codes of 16 places."""
    return types.void(best, array, types.int64), emits(
        lambda builder, best, array, offset: array.store(best[1], offset)
    )
