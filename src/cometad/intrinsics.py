"""What the vector instructions of kernels are made of; `network/fast/lanes.py` and `views/tiles.py` define them.

An intrinsic is a function that numba replaces by the code that it writes. Offsets count elements from the start of a
contiguous array. Every multiply-add is fused, so a sum depends only on the order of its additions, to the last bit.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, register_model

intrinsic: Any = extending.intrinsic  # untyped: the signature that callers see is not the one defined here

INT = ir.IntType(32)
FLOAT_VECTOR, INT_VECTOR = ir.VectorType(ir.FloatType(), 16), ir.VectorType(INT, 16)
DOUBLE_VECTOR = ir.VectorType(ir.DoubleType(), 8)

_VECTORS = {types.float32: FLOAT_VECTOR, types.int32: INT_VECTOR, types.float64: DOUBLE_VECTOR}
_TUPLES: Any = types.BaseTuple


def vector_type(name: str, vector: Any) -> Any:
    """A numba type whose values are vectors."""
    kind = type(name, (types.Type,), {})

    @register_model(kind)
    class VectorModel(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, vector)

    return kind(name)


def emits(write: Callable[..., Any]) -> Any:
    """The code of an intrinsic: `write` gets the builder and each argument, and returns the result.

    Arrays come as `Memory`; tuples come and are returned as lists of their parts.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = (_given(context, builder, kind, value) for kind, value in zip(signature.args, args, strict=True))
        return _returned(context, builder, signature.return_type, write(builder, *given))

    return generate


def _given(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _TUPLES):
        parts = cgutils.unpack_tuple(builder, value)
        return [_given(context, builder, each, part) for each, part in zip(kind, parts, strict=True)]
    return Memory(context, builder, kind, value) if isinstance(kind, types.Array) else value


def _returned(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _TUPLES):
        parts = [_returned(context, builder, each, part) for each, part in zip(kind, value, strict=True)]
        return context.make_tuple(builder, kind, parts)
    return context.get_dummy_value() if kind == types.void else value


class Memory:
    """A contiguous array."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder, self._array = builder, context.make_array(kind)(context, builder, value)
        self.vector = _VECTORS.get(kind.dtype)

    @property
    def last_axis(self) -> Any:
        return cgutils.unpack_tuple(self._builder, self._array.shape)[-1]

    def scalar(self, offset: Any) -> Any:
        return self._builder.load(self._builder.gep(self._array.data, [offset]))

    def load(self, offset: Any) -> Any:
        return self._builder.load(self._at(offset, self.vector), align=4)

    def store(self, vector: Any, offset: Any) -> None:
        self._builder.store(vector, self._at(offset, vector.type), align=4)

    def _at(self, offset: Any, vector: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._array.data, [offset]), vector.as_pointer())


def plus(builder: Any, offset: Any, more: int) -> Any:
    return builder.add(offset, ir.Constant(offset.type, more))


def repeated(builder: Any, value: Any, vector: Any) -> Any:
    """A vector that has one value everywhere."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(undefined, value, INT(0)), undefined, first)


def fma(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """Total + left * right, rounded once."""
    return _called(builder, "fma", left, right, total)


def root(builder: Any, vector: Any) -> Any:
    return _called(builder, "sqrt", vector)


def _called(builder: Any, function: str, *vectors: Any) -> Any:
    kind = vectors[0].type
    name = f"llvm.{function}.v{kind.count}f{64 if kind == DOUBLE_VECTOR else 32}"
    signature = ir.FunctionType(kind, [kind] * len(vectors))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), vectors)


def summed(builder: Any, vector: Any) -> Any:
    """The sum of a vector: its upper half is added to its lower half until one number is left."""
    count = vector.type.count
    while count > 1:
        count //= 2
        vector = builder.fadd(*halves(builder, vector, count))
    return builder.extract_element(vector, INT(0))


def halves(builder: Any, vector: Any, count: int) -> list[Any]:
    """The lower `count` and the upper `count` values."""
    places = (ir.Constant(ir.VectorType(INT, count), list(range(begin, begin + count))) for begin in (0, count))
    return [builder.shuffle_vector(vector, vector, place) for place in places]
