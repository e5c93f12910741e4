"""The vector instructions that `kernels` is written in, as numba intrinsics.

Compilers vectorize plain loops unreliably, and often at half the width of the machine. Here the vectors are explicit:
`Lanes` are 16 floats or 8 doubles, and a block is 4 rows of 4 lanes that stays in registers while sums are added to it.
LLVM maps them to the instructions of the processor. Every multiply-add is fused, so the result depends only on the
order of the additions, to the last bit.

Offsets count elements from the start of a contiguous array.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from cometad.compute import vector_type

intrinsic: Any = extending.intrinsic  # untyped: the signature that callers see is not the one defined here

WIDTH = 16  # floats in Lanes
ROWS = COLUMNS = 4  # Lanes in a Block
SPAN = COLUMNS * WIDTH  # floats in a row of a block
DOUBLES = COLUMNS * WIDTH // 2  # doubles in a row of a block

_FLOAT, _INT, _INDEX = ir.FloatType(), ir.IntType(32), types.int64
_FLOATS, _INTS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_INT, WIDTH)
_VECTORS = {
    types.float32: _FLOATS,
    types.int32: _INTS,
    types.float64: ir.VectorType(ir.DoubleType(), WIDTH // 2),
}


_lanes, _code_lanes = vector_type("Lanes", _FLOATS), vector_type("CodeLanes", _INTS)
_double_lanes = vector_type("DoubleLanes", _VECTORS[types.float64])
_block, _narrow = types.UniTuple(_lanes, ROWS * COLUMNS), types.UniTuple(_lanes, ROWS)
_double_block = types.UniTuple(_double_lanes, ROWS * COLUMNS)
_row, _code_row = types.UniTuple(_lanes, COLUMNS), types.UniTuple(_code_lanes, COLUMNS)
_best = types.Tuple((_row, _code_row))
_TUPLES: Any = types.BaseTuple


# --- one vector -------------------------------------------------------------------------------------------------------


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    return _lanes(array, _INDEX), _emits(lambda builder, array, offset: array.load(offset))


@intrinsic
def store(typing: Any, lanes: Any, array: Any, offset: Any) -> Any:
    return types.void(lanes, array, _INDEX), _emits(lambda builder, lanes, array, offset: array.store(lanes, offset))


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    return _lanes(types.float32), _emits(lambda builder, value: _splat(builder, value, _FLOATS))


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    return _lanes(left, right), _emits(lambda builder, left, right: builder.fadd(left, right))


@intrinsic
def multiply_add(typing: Any, left: Any, right: Any, total: Any) -> Any:
    """Total + left * right, rounded once."""
    return _lanes(left, right, total), _emits(_fused)


@intrinsic
def zero_codes(typing: Any) -> Any:
    return _code_lanes(), _emits(lambda builder: ir.Constant(_INTS, [0] * WIDTH))


@intrinsic
def minimum(typing: Any, value: Any, least: Any) -> Any:
    def write(builder: Any, value: Any, least: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", value, least), value, least)

    return _lanes(value, least), _emits(write)


@intrinsic
def update_codes(typing: Any, value: Any, least: Any, first: Any, best: Any) -> Any:
    """The code of the minimum, lane by lane: first, first + 1, ... where `value` is below `least`, else `best`."""

    def write(builder: Any, value: Any, least: Any, first: Any, best: Any) -> Any:
        codes = builder.add(_splat(builder, first, _INTS), ir.Constant(_INTS, list(range(WIDTH))))
        return builder.select(builder.fcmp_ordered("<", value, least), codes, best)

    return _code_lanes(value, least, types.int32, best), _emits(write)


@intrinsic
def lowest_code(typing: Any, values: Any, codes: Any) -> Any:
    """The code of the lowest of 16 values; the lowest code of a tie."""

    def write(builder: Any, values: Any, codes: Any) -> Any:
        count = WIDTH
        while count > 1:
            count //= 2
            low, high = _halves(builder, values, count)
            low_codes, high_codes = _halves(builder, codes, count)
            tie = builder.and_(builder.fcmp_ordered("==", high, low), builder.icmp_signed("<", high_codes, low_codes))
            closer = builder.or_(builder.fcmp_ordered("<", high, low), tie)
            values, codes = builder.select(closer, high, low), builder.select(closer, high_codes, low_codes)
        return builder.extract_element(codes, _INT(0))

    return types.int32(values, codes), _emits(write)


@intrinsic
def splat_at(typing: Any, array: Any, offset: Any) -> Any:
    """One element of an array in all 16 lanes."""
    return _lanes(array, _INDEX), _emits(lambda builder, array, offset: _splat(builder, array.scalar(offset), _FLOATS))


@intrinsic
def transpose(
    typing: Any, source: Any, row_offsets: Any, row: Any, shift: Any, target: Any, offset: Any, stride: Any
) -> Any:
    """Transpose 16 rows of 16: target[offset + c * stride + r] = source[row_offsets[row + r] + shift + c]."""

    def write(
        builder: Any, source: Any, row_offsets: Any, row: Any, shift: Any, target: Any, offset: Any, stride: Any
    ) -> None:
        places = [row_offsets.scalar(_plus(builder, row, r)) for r in range(WIDTH)]
        rows = [source.load(builder.add(place, shift)) for place in places]
        half = WIDTH // 2
        even = ir.Constant(_INTS, [k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        odd = ir.Constant(_INTS, [half + k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        for _ in range(4):  # interleave rows r and r + 8; after log2(16) rounds rows are columns
            rows = [
                builder.shuffle_vector(rows[r // 2], rows[r // 2 + half], odd if r % 2 else even) for r in range(WIDTH)
            ]
        for c, column in enumerate(rows):
            target.store(column, _row_of(builder, offset, stride, c))

    return types.void(source, row_offsets, _INDEX, _INDEX, target, _INDEX, _INDEX), _emits(write)


# --- a block: 4 rows by 64 positions ----------------------------------------------------------------------------------


@intrinsic
def zero_block(typing: Any) -> Any:
    return _block(), _emits(lambda builder: [ir.Constant(_FLOATS, [0.0] * WIDTH)] * ROWS * COLUMNS)


@intrinsic
def zero_double_block(typing: Any) -> Any:
    zeros = ir.Constant(_VECTORS[types.float64], [0.0] * (WIDTH // 2))
    return _double_block(), _emits(lambda builder: [zeros] * ROWS * COLUMNS)


@intrinsic
def zero_narrow_block(typing: Any) -> Any:
    """A block of zeros with rows of only 16 floats."""
    return _narrow(), _emits(lambda builder: [ir.Constant(_FLOATS, [0.0] * WIDTH)] * ROWS)


@intrinsic
def load_block(typing: Any, array: Any, offset: Any, stride: Any, more: Any, more_offset: Any) -> Any:
    """Load 4 rows of an array, `stride` apart, and add one element of `more` to each."""

    def write(builder: Any, array: Any, offset: Any, stride: Any, more: Any, more_offset: Any) -> list[Any]:
        block = []
        for row in range(ROWS):
            constant = _splat(builder, more.scalar(_plus(builder, more_offset, row)), _FLOATS)
            places = _vector_offsets(builder, _row_of(builder, offset, stride, row), COLUMNS)
            block += [builder.fadd(array.load(place), constant) for place in places]
        return block

    return _block(array, _INDEX, _INDEX, more, _INDEX), _emits(write)


@intrinsic
def multiply_add_block(typing: Any, block: Any, weights: Any, weights_offset: Any, x: Any, offset: Any) -> Any:
    """Add x times a weight to each row of a block; the 4 weights are adjacent."""

    def write(builder: Any, block: Any, weights: Any, weights_offset: Any, x: Any, offset: Any) -> list[Any]:
        columns = len(block) // ROWS
        values = [x.load(place) for place in _vector_offsets(builder, offset, columns, x.vector.count)]
        added = []
        for row in range(ROWS):
            weight = _splat(builder, weights.scalar(_plus(builder, weights_offset, row)), x.vector)
            for column, value in enumerate(values):
                added.append(_fused(builder, weight, value, block[row * columns + column]))
        return added

    return block(block, weights, _INDEX, x, _INDEX), _emits(write)


@intrinsic
def add_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Add a block of doubles to 4 rows of an array, `stride` apart."""

    def write(builder: Any, block: Any, array: Any, offset: Any, stride: Any) -> None:
        for place, part in zip(_block_offsets(builder, offset, stride, WIDTH // 2), block, strict=True):
            array.store(builder.fadd(array.load(place), part), place)

    return types.void(block, array, _INDEX, _INDEX), _emits(write)


@intrinsic
def add_row(typing: Any, weight: Any, source: Any, source_offset: Any, target: Any, offset: Any) -> Any:
    """Add a weight times 32 doubles of one array to 32 doubles of another."""

    def write(builder: Any, weight: Any, source: Any, source_offset: Any, target: Any, offset: Any) -> None:
        weights = _splat(builder, weight, source.vector)
        offsets = (_vector_offsets(builder, begin, COLUMNS, WIDTH // 2) for begin in (source_offset, offset))
        for source_place, place in zip(*offsets, strict=True):
            target.store(_fused(builder, weights, source.load(source_place), target.load(place)), place)

    return types.void(types.float64, source, _INDEX, target, _INDEX), _emits(write)


@intrinsic
def store_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the 4 rows of a block in an array, `stride` apart."""

    def write(builder: Any, block: Any, array: Any, offset: Any, stride: Any) -> None:
        for place, part in zip(_block_offsets(builder, offset, stride), block, strict=True):
            array.store(part, place)

    return types.void(block, array, _INDEX, _INDEX), _emits(write)


@intrinsic
def initial_best(typing: Any) -> Any:
    """The initial lowest value, infinity, and its code at each of 64 positions."""
    infinite, zeros = ir.Constant(_FLOATS, [float("inf")] * WIDTH), ir.Constant(_INTS, [0] * WIDTH)
    return _best(), _emits(lambda builder: ([infinite] * COLUMNS, [zeros] * COLUMNS))


@intrinsic
def update_best(typing: Any, block: Any, best: Any, first: Any) -> Any:
    """Update the lowest values and their codes with a block whose rows are the codes first, first + 1, ..."""

    def write(builder: Any, block: Any, best: Any, first: Any) -> Any:
        values, codes = best
        for row in range(ROWS):
            code = _splat(builder, builder.add(first, _INT(row)), _INTS)
            for column in range(COLUMNS):
                value = block[row * COLUMNS + column]
                closer = builder.fcmp_ordered("<", value, values[column])
                values[column] = builder.select(closer, value, values[column])
                codes[column] = builder.select(closer, code, codes[column])
        return values, codes

    return _best(block, best, types.int32), _emits(write)


@intrinsic
def store_best_codes(typing: Any, best: Any, array: Any, offset: Any) -> Any:
    """Store the codes of 64 positions."""

    def write(builder: Any, best: Any, array: Any, offset: Any) -> None:
        for place, part in zip(_vector_offsets(builder, offset, COLUMNS), best[1], strict=True):
            array.store(part, place)

    return types.void(best, array, _INDEX), _emits(write)


# --- distances: the rows of a block are 4 positions -------------------------------------------------------------------


@intrinsic
def difference_block(
    typing: Any,
    like: Any,
    h: Any,
    h_offset: Any,
    shift: Any,
    shift_offset: Any,
    table: Any,
    offset: Any,
    codes: Any,
    t: Any,
) -> Any:
    """The rows h + shift - table[code] of 4 positions, whose codes start at t; as wide as the block `like`."""

    def write(builder: Any, like: Any, h: Any, h_offset: Any, shift: Any, shift_offset: Any, *of_code: Any) -> Any:
        table, offset, codes, t = of_code
        columns, rank = len(like) // ROWS, table.last_axis
        shifts = [shift.load(place) for place in _vector_offsets(builder, shift_offset, columns)]
        block = []
        for row in range(ROWS):
            begin = _code_row_of(builder, codes, _plus(builder, t, row), rank, offset)
            places = _vector_offsets(builder, _row_of(builder, h_offset, rank, row), columns)
            code_places = _vector_offsets(builder, begin, columns)
            for place, code_place, more in zip(places, code_places, shifts, strict=True):
                block.append(builder.fsub(builder.fadd(h.load(place), more), table.load(code_place)))
        return block

    return like(like, h, _INDEX, shift, _INDEX, table, _INDEX, codes, _INDEX), _emits(write)


@intrinsic
def gather_block(typing: Any, table: Any, offset: Any, codes: Any, t: Any) -> Any:
    """Load 16 elements of table[code] from `offset` on for each of 4 positions, whose codes start at t."""

    def write(builder: Any, table: Any, offset: Any, codes: Any, t: Any) -> list[Any]:
        places = [_plus(builder, t, row) for row in range(ROWS)]
        return [table.load(_code_row_of(builder, codes, place, table.last_axis, offset)) for place in places]

    return _narrow(table, _INDEX, codes, _INDEX), _emits(write)


@intrinsic
def add_squares(typing: Any, sums: Any, block: Any) -> Any:
    """Add the squares of each row of a block to the row's 16 sums."""

    def write(builder: Any, sums: Any, block: Any) -> Any:
        columns = len(block) // ROWS
        for k, part in enumerate(block):
            sums[k // columns] = _fused(builder, part, part, sums[k // columns])
        return sums

    return _narrow(sums, block), _emits(write)


@intrinsic
def store_norms(typing: Any, sums: Any, array: Any, offset: Any) -> Any:
    """Store the square root of the total of each row's 16 sums."""

    def write(builder: Any, sums: Any, array: Any, offset: Any) -> None:
        short = ir.VectorType(_FLOAT, ROWS)
        lengths = ir.Constant(short, ir.Undefined)
        for row, part in enumerate(sums):
            lengths = builder.insert_element(lengths, _total(builder, part), _INT(row))
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(short, [short]), f"llvm.sqrt.v{ROWS}f32")
        array.store(builder.call(root, [lengths]), offset)

    return types.void(sums, array, _INDEX), _emits(write)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _emits(write: Callable[..., Any]) -> Any:
    """The code of an intrinsic: `write` gets the builder and each argument, and returns the result.

    Arrays come as `_Memory`; tuples come and are returned as lists of their parts.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = (_given(context, builder, kind, value) for kind, value in zip(signature.args, args, strict=True))
        return _returned(context, builder, signature.return_type, write(builder, *given))

    return generate


def _given(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _TUPLES):
        parts = cgutils.unpack_tuple(builder, value)
        return [_given(context, builder, each, part) for each, part in zip(kind, parts, strict=True)]
    return _Memory(context, builder, kind, value) if isinstance(kind, types.Array) else value


def _returned(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _TUPLES):
        parts = [_returned(context, builder, each, part) for each, part in zip(kind, value, strict=True)]
        return context.make_tuple(builder, kind, parts)
    return context.get_dummy_value() if kind == types.void else value


class _Memory:
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

    def store(self, lanes: Any, offset: Any) -> None:
        self._builder.store(lanes, self._at(offset, lanes.type), align=4)

    def _at(self, offset: Any, vector: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._array.data, [offset]), vector.as_pointer())


def _row_of(builder: Any, offset: Any, stride: Any, row: int) -> Any:
    return builder.add(offset, builder.mul(stride, ir.Constant(stride.type, row)))


def _code_row_of(builder: Any, codes: Any, place: Any, width: Any, offset: Any) -> Any:
    return builder.add(builder.mul(builder.sext(codes.scalar(place), width.type), width), offset)


def _block_offsets(builder: Any, offset: Any, stride: Any, width: int = WIDTH) -> list[Any]:
    rows = [_row_of(builder, offset, stride, row) for row in range(ROWS)]
    return [place for row in rows for place in _vector_offsets(builder, row, COLUMNS, width)]


def _vector_offsets(builder: Any, offset: Any, columns: int, width: int = WIDTH) -> list[Any]:
    return [_plus(builder, offset, width * column) for column in range(columns)]


def _plus(builder: Any, offset: Any, more: int) -> Any:
    return builder.add(offset, ir.Constant(offset.type, more))


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(undefined, value, _INT(0)), undefined, first)


def _total(builder: Any, lanes: Any) -> Any:
    """The sum of 16 numbers: the upper half is added to the lower half until one number is left."""
    count = WIDTH
    while count > 1:
        count //= 2
        lanes = builder.fadd(*_halves(builder, lanes, count))
    return builder.extract_element(lanes, _INT(0))


def _halves(builder: Any, lanes: Any, count: int) -> list[Any]:
    """The lower `count` and the upper `count` numbers."""
    places = (ir.Constant(ir.VectorType(_INT, count), list(range(begin, begin + count))) for begin in (0, count))
    return [builder.shuffle_vector(lanes, lanes, place) for place in places]


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    name = f"llvm.fma.v{left.type.count}f{32 if left.type.element == _FLOAT else 64}"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(left.type, [left.type] * 3), name)
    return builder.call(fma, [left, right, total])
