"""The vector instructions that `products` is written in, as numba intrinsics.

A tile holds sums of 4 windows (or of one) by 8 columns, and stays in registers while products are added to it. Every
multiply-add is fused, so a sum depends only on the order of its additions, to the last bit, whatever the tile.
"""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, register_model

intrinsic: Any = extending.intrinsic  # untyped: the signature that callers see is not the one defined here

COLUMNS = 8  # doubles in a row of a tile
ROWS = 4  # windows in a tile

_VECTOR, _INT = ir.VectorType(ir.DoubleType(), COLUMNS), ir.IntType(32)


class TileRow(types.Type):
    """8 doubles."""


@register_model(TileRow)
class _TileRowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_tile, _line = types.UniTuple(TileRow("TileRow"), ROWS), types.UniTuple(TileRow("TileRow"), 1)


@intrinsic
def load_tile(typing: Any, array: Any, offset: Any) -> Any:
    """A tile whose 4 rows all are the 8 doubles of an array from an offset on."""
    return _tile(array, types.int64), _loading(_tile)


@intrinsic
def load_line(typing: Any, array: Any, offset: Any) -> Any:
    """A tile of one row: the 8 doubles of an array from an offset on."""
    return _line(array, types.int64), _loading(_line)


@intrinsic
def add_products(typing: Any, tile: Any, x: Any, place: Any, step: Any, weights: Any, offset: Any) -> Any:
    """Add to row r of a tile the 8 weights from `offset` on, times x[place + r * step]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, x, place, step, weights, offset = args
        weight = builder.load(_vector_at(context, builder, signature.args[4], weights, offset), align=8)
        rows = cgutils.unpack_tuple(builder, tile)
        for r in range(len(signature.return_type)):
            value = builder.load(_at(context, builder, signature.args[1], x, place))
            rows[r] = _fused(builder, _splat(builder, value), weight, rows[r])
            place = builder.add(place, step)
        return context.make_tuple(builder, signature.return_type, rows)

    return tile(tile, x, types.int64, types.int64, weights, types.int64), generate


@intrinsic
def store_tile(typing: Any, tile: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the rows of a tile in an array, `stride` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, array, offset, stride = args
        for row in cgutils.unpack_tuple(builder, tile):
            builder.store(row, _vector_at(context, builder, signature.args[1], array, offset), align=8)
            offset = builder.add(offset, stride)
        return context.get_dummy_value()

    return types.void(tile, array, types.int64, types.int64), generate


def _loading(kind: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = builder.load(_vector_at(context, builder, signature.args[0], *args), align=8)
        return context.make_tuple(builder, kind, [row] * len(kind))

    return generate


def _at(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _vector_at(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.bitcast(_at(context, builder, kind, array, offset), _VECTOR.as_pointer())


def _splat(builder: Any, value: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = ir.Constant(ir.VectorType(_INT, COLUMNS), [0] * COLUMNS)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _INT(0)), undefined, first)


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{COLUMNS}f64")
    return builder.call(fma, [left, right, total])
