"""The vector instructions that the products of `views` are written in, as numba intrinsics.

A tile is 4 rows (or one) of 8 doubles or 16 floats that stay in registers while products are added to them. Every
multiply-add is fused, so a sum depends only on the order of its additions, to the last bit, whatever the tile.

Offsets count elements from the start of a contiguous array.
"""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from cometad.compute import vector_type

intrinsic: Any = extending.intrinsic  # untyped: the signature that callers see is not the one defined here

ROWS = 4  # of a tile
COLUMNS = 8  # doubles in a row
LANES = 16  # floats in a row

_INT = ir.IntType(32)
_VECTORS = {
    types.float64: ir.VectorType(ir.DoubleType(), COLUMNS),
    types.float32: ir.VectorType(ir.FloatType(), LANES),
}
_CODES = ir.VectorType(_INT, LANES)


_double_row = vector_type("DoubleRow", _VECTORS[types.float64])
_float_row = vector_type("FloatRow", _VECTORS[types.float32])
_code_row = vector_type("CodeRow", _CODES)
_tile, _line = types.UniTuple(_double_row, ROWS), types.UniTuple(_double_row, 1)
_lines = {types.float64: _line, types.float32: types.UniTuple(_float_row, 1)}
_float_tile, _best = types.UniTuple(_float_row, ROWS), types.Tuple((_float_row, _code_row))


@intrinsic
def load_tile(typing: Any, array: Any, offset: Any) -> Any:
    """A tile whose 4 rows all are the 8 doubles of an array from an offset on."""
    return _tile(array, types.int64), _loading(_tile)


@intrinsic
def load_line(typing: Any, array: Any, offset: Any) -> Any:
    """A tile of one row: the 8 doubles or 16 floats of an array from an offset on."""
    kind = _lines[array.dtype]
    return kind(array, types.int64), _loading(kind)


@intrinsic
def splat_tile(typing: Any, array: Any, offset: Any) -> Any:
    """A tile of floats: row r has the element offset + r of an array 16 times."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, offset = args
        rows = []
        for r in range(ROWS):
            place = builder.add(offset, ir.Constant(offset.type, r))
            value = builder.load(_at(context, builder, signature.args[0], array, place))
            rows.append(_splat(builder, value, _VECTORS[types.float32]))
        return context.make_tuple(builder, _float_tile, rows)

    return _float_tile(array, types.int64), generate


@intrinsic
def add_products(typing: Any, tile: Any, factors: Any, place: Any, step: Any, row: Any, offset: Any) -> Any:
    """Add to row r of a tile factors[place + r * step] times the elements of `row` from `offset` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, factors, place, step, row, offset = args
        vector = _VECTORS[signature.args[4].dtype]
        values = builder.load(_vector_at(context, builder, signature.args[4], row, offset), align=4)
        rows = cgutils.unpack_tuple(builder, tile)
        for r in range(len(signature.return_type)):
            factor = builder.load(_at(context, builder, signature.args[1], factors, place))
            rows[r] = _fused(builder, _splat(builder, factor, vector), values, rows[r])
            place = builder.add(place, step)
        return context.make_tuple(builder, signature.return_type, rows)

    return tile(tile, factors, types.int64, types.int64, row, types.int64), generate


@intrinsic
def store_tile(typing: Any, tile: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the rows of a tile in an array, `stride` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, array, offset, stride = args
        for row in cgutils.unpack_tuple(builder, tile):
            builder.store(row, _vector_at(context, builder, signature.args[1], array, offset), align=4)
            offset = builder.add(offset, stride)
        return context.get_dummy_value()

    return types.void(tile, array, types.int64, types.int64), generate


@intrinsic
def add_squared_gaps(typing: Any, line: Any, left: Any, i: Any, right: Any, j: Any) -> Any:
    """Add to a tile of one row the squares of the 8 differences left[i...] - right[j...]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line, left, i, right, j = args
        kinds = signature.args
        ours = builder.load(_vector_at(context, builder, kinds[1], left, i), align=4)
        gaps = builder.fsub(ours, builder.load(_vector_at(context, builder, kinds[3], right, j), align=4))
        (row,) = cgutils.unpack_tuple(builder, line)
        return context.make_tuple(builder, _line, [_fused(builder, gaps, gaps, row)])

    return _line(line, left, types.int64, right, types.int64), generate


@intrinsic
def zero_line(typing: Any) -> Any:
    """A tile of one row of zeros."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_tuple(builder, _line, [ir.Constant(_VECTORS[types.float64], [0.0] * COLUMNS)])

    return _line(), generate


@intrinsic
def total_of(typing: Any, line: Any) -> Any:
    """The sum of a tile of one row: its upper half is added to its lower half until one number is left."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (row,) = cgutils.unpack_tuple(builder, args[0])
        count = COLUMNS
        while count > 1:
            count //= 2
            low, high = (
                ir.Constant(ir.VectorType(_INT, count), list(range(first, first + count))) for first in (0, count)
            )
            row = builder.fadd(builder.shuffle_vector(row, row, low), builder.shuffle_vector(row, row, high))
        return builder.extract_element(row, _INT(0))

    return types.float64(line), generate


# --- the lowest of many codes, 16 places at a time --------------------------------------------------------------------


@intrinsic
def initial_best(typing: Any) -> Any:
    """The lowest value so far, infinity, and its code at 16 places."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        infinite = ir.Constant(_VECTORS[types.float32], [float("inf")] * LANES)
        return context.make_tuple(builder, _best, [infinite, ir.Constant(_CODES, [0] * LANES)])

    return _best(), generate


@intrinsic
def update_best(typing: Any, best: Any, tile: Any, first: Any) -> Any:
    """Update the lowest values and their codes with a tile whose rows are the codes first, first + 1, ..."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        best, tile, first = args
        least, codes = cgutils.unpack_tuple(builder, best)
        for r, row in enumerate(cgutils.unpack_tuple(builder, tile)):
            code = builder.add(builder.trunc(first, _INT), _INT(r))
            lower = builder.fcmp_ordered("<", row, least)
            least = builder.select(lower, row, least)
            codes = builder.select(lower, _splat(builder, code, _CODES), codes)
        return context.make_tuple(builder, _best, [least, codes])

    return _best(best, tile, types.int64), generate


@intrinsic
def store_codes(typing: Any, best: Any, array: Any, offset: Any) -> Any:
    """Store the codes of 16 places."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        best, array, offset = args
        _, codes = cgutils.unpack_tuple(builder, best)
        address = builder.bitcast(_at(context, builder, signature.args[1], array, offset), _CODES.as_pointer())
        builder.store(codes, address, align=4)
        return context.get_dummy_value()

    return types.void(best, array, types.int64), generate


# --- helpers ----------------------------------------------------------------------------------------------------------


def _loading(kind: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = builder.load(_vector_at(context, builder, signature.args[0], *args), align=4)
        return context.make_tuple(builder, kind, [row] * len(kind))

    return generate


def _at(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _vector_at(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.bitcast(_at(context, builder, kind, array, offset), _VECTORS[kind.dtype].as_pointer())


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _INT(0)), undefined, first)


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    vector = left.type
    name = f"llvm.fma.v{vector.count}f{32 if vector.count == LANES else 64}"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return builder.call(fma, [left, right, total])
