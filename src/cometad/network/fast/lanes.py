"""The vector instructions that `kernels` is written in, as numba intrinsics.

Compilers vectorize plain loops unreliably, and often at half the width of the machine. Here the vectors are explicit:
`Lanes` are 16 floats or 8 doubles, and a block is 4 rows of 4 lanes that stays in registers while sums are added to it.
LLVM maps them to the instructions of the processor. Every multiply-add is fused, so the result depends only on the
order of the additions, to the last bit.

Offsets count elements from the start of a contiguous array.
"""

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


# --- one vector -------------------------------------------------------------------------------------------------------


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _loaded(context, builder, signature.args[0], *args)

    return _lanes(array, _INDEX), generate


@intrinsic
def store(typing: Any, lanes: Any, array: Any, offset: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(context, builder, args[0], signature.args[1], *args[1:])
        return context.get_dummy_value()

    return types.void(lanes, array, _INDEX), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(builder, args[0], _FLOATS)

    return _lanes(types.float32), generate


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return _lanes(left, right), generate


@intrinsic
def multiply_add(typing: Any, left: Any, right: Any, total: Any) -> Any:
    """Total + left * right, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fused(builder, *args)

    return _lanes(left, right, total), generate


@intrinsic
def zero_codes(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_INTS, [0] * WIDTH)

    return _code_lanes(), generate


@intrinsic
def minimum(typing: Any, value: Any, least: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *args), *args)

    return _lanes(value, least), generate


@intrinsic
def update_codes(typing: Any, value: Any, least: Any, first: Any, best: Any) -> Any:
    """The code of the minimum, lane by lane: first, first + 1, ... where `value` is below `least`, else `best`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, least, first, best = args
        codes = builder.add(_splat(builder, first, _INTS), ir.Constant(_INTS, list(range(WIDTH))))
        return builder.select(builder.fcmp_ordered("<", value, least), codes, best)

    return _code_lanes(value, least, types.int32, best), generate


@intrinsic
def lowest_code(typing: Any, values: Any, codes: Any) -> Any:
    """The code of the lowest of 16 values; the lowest code of a tie."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, codes = args
        count = WIDTH
        while count > 1:
            count //= 2
            halves = _halves(count)
            low, high = (builder.shuffle_vector(values, values, half) for half in halves)
            low_codes, high_codes = (builder.shuffle_vector(codes, codes, half) for half in halves)
            tie = builder.and_(builder.fcmp_ordered("==", high, low), builder.icmp_signed("<", high_codes, low_codes))
            closer = builder.or_(builder.fcmp_ordered("<", high, low), tie)
            values, codes = builder.select(closer, high, low), builder.select(closer, high_codes, low_codes)
        return builder.extract_element(codes, _INT(0))

    return types.int32(values, codes), generate


@intrinsic
def splat_at(typing: Any, array: Any, offset: Any) -> Any:
    """One element of an array in all 16 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(builder, _scalar(context, builder, signature.args[0], *args), _FLOATS)

    return _lanes(array, _INDEX), generate


@intrinsic
def transpose(
    typing: Any, source: Any, row_offsets: Any, row: Any, shift: Any, target: Any, offset: Any, stride: Any
) -> Any:
    """Transpose 16 rows of 16: target[offset + c * stride + r] = source[row_offsets[row + r] + shift + c]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, row_offsets, row, shift, target, offset, stride = args
        kinds, rows = signature.args, []
        for r in range(WIDTH):
            place = _scalar(context, builder, kinds[1], row_offsets, _plus(builder, row, r))
            rows.append(_loaded(context, builder, kinds[0], source, builder.add(place, shift)))
        half = WIDTH // 2
        even = ir.Constant(_INTS, [k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        odd = ir.Constant(_INTS, [half + k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        for _ in range(4):  # interleave rows r and r + 8; after log2(16) rounds rows are columns
            rows = [
                builder.shuffle_vector(rows[r // 2], rows[r // 2 + half], odd if r % 2 else even) for r in range(WIDTH)
            ]
        for c, column in enumerate(rows):
            _store(context, builder, column, kinds[4], target, _row_of(builder, offset, stride, c))
        return context.get_dummy_value()

    return types.void(source, row_offsets, _INDEX, _INDEX, target, _INDEX, _INDEX), generate


# --- a block: 4 rows by 64 positions ----------------------------------------------------------------------------------


@intrinsic
def zero_block(typing: Any) -> Any:
    return _block(), _zeros(_block, types.float32)


@intrinsic
def zero_double_block(typing: Any) -> Any:
    return _double_block(), _zeros(_double_block, types.float64)


@intrinsic
def zero_narrow_block(typing: Any) -> Any:
    """A block of zeros with rows of only 16 floats."""
    return _narrow(), _zeros(_narrow, types.float32)


@intrinsic
def load_block(typing: Any, array: Any, offset: Any, stride: Any, more: Any, more_offset: Any) -> Any:
    """Load 4 rows of an array, `stride` apart, and add one element of `more` to each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, offset, stride, more, more_offset = args
        block = []
        for row in range(ROWS):
            constant = _scalar(context, builder, signature.args[3], more, _plus(builder, more_offset, row))
            for place in _vector_offsets(builder, _row_of(builder, offset, stride, row), COLUMNS):
                here = _loaded(context, builder, signature.args[0], array, place)
                block.append(builder.fadd(here, _splat(builder, constant, _FLOATS)))
        return context.make_tuple(builder, _block, block)

    return _block(array, _INDEX, _INDEX, more, _INDEX), generate


@intrinsic
def multiply_add_block(typing: Any, block: Any, weights: Any, weights_offset: Any, x: Any, offset: Any) -> Any:
    """Add x times a weight to each row of a block; the 4 weights are adjacent."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block, weights, weights_offset, x, offset = args
        kind = signature.return_type
        columns = len(kind) // ROWS
        rows = cgutils.unpack_tuple(builder, block)
        vector = _VECTORS[signature.args[3].dtype]
        offsets = _vector_offsets(builder, offset, columns, vector.count)
        values = [_loaded(context, builder, signature.args[3], x, place) for place in offsets]
        added = []
        for row in range(ROWS):
            place = _plus(builder, weights_offset, row)
            weight = _splat(builder, _scalar(context, builder, signature.args[1], weights, place), vector)
            for column, value in enumerate(values):
                added.append(_fused(builder, weight, value, rows[row * columns + column]))
        return context.make_tuple(builder, kind, added)

    return block(block, weights, _INDEX, x, _INDEX), generate


@intrinsic
def add_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Add a block of doubles to 4 rows of an array, `stride` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block, array, offset, stride = args
        parts = iter(cgutils.unpack_tuple(builder, block))
        for row in range(ROWS):
            for place in _vector_offsets(builder, _row_of(builder, offset, stride, row), COLUMNS, WIDTH // 2):
                before = _loaded(context, builder, signature.args[1], array, place)
                _store(context, builder, builder.fadd(before, next(parts)), signature.args[1], array, place)
        return context.get_dummy_value()

    return types.void(block, array, _INDEX, _INDEX), generate


@intrinsic
def add_row(typing: Any, weight: Any, source: Any, source_offset: Any, target: Any, offset: Any) -> Any:
    """Add a weight times 32 doubles of one array to 32 doubles of another."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weight, source, source_offset, target, offset = args
        weights = _splat(builder, weight, _VECTORS[types.float64])
        offsets = (_vector_offsets(builder, begin, COLUMNS, WIDTH // 2) for begin in (source_offset, offset))
        for source_place, place in zip(*offsets, strict=True):
            more = _loaded(context, builder, signature.args[1], source, source_place)
            before = _loaded(context, builder, signature.args[3], target, place)
            _store(context, builder, _fused(builder, weights, more, before), signature.args[3], target, place)
        return context.get_dummy_value()

    return types.void(types.float64, source, _INDEX, target, _INDEX), generate


@intrinsic
def store_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the 4 rows of a block in an array, `stride` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block, array, offset, stride = args
        parts = iter(cgutils.unpack_tuple(builder, block))
        for row in range(ROWS):
            for place in _vector_offsets(builder, _row_of(builder, offset, stride, row), COLUMNS):
                _store(context, builder, next(parts), signature.args[1], array, place)
        return context.get_dummy_value()

    return types.void(block, array, _INDEX, _INDEX), generate


@intrinsic
def initial_best(typing: Any) -> Any:
    """The initial lowest value, infinity, and its code at each of 64 positions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        infinite, zeros = ir.Constant(_FLOATS, [float("inf")] * WIDTH), ir.Constant(_INTS, [0] * WIDTH)
        return _made_best(context, builder, [infinite] * COLUMNS, [zeros] * COLUMNS)

    return _best(), generate


@intrinsic
def update_best(typing: Any, block: Any, best: Any, first: Any) -> Any:
    """Update the lowest values and their codes with a block whose rows are the codes first, first + 1, ..."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block, best, first = args
        rows = cgutils.unpack_tuple(builder, block)
        values, codes = (cgutils.unpack_tuple(builder, part) for part in cgutils.unpack_tuple(builder, best))
        for row in range(ROWS):
            code = _splat(builder, builder.add(first, _INT(row)), _INTS)
            for column in range(COLUMNS):
                value = rows[row * COLUMNS + column]
                closer = builder.fcmp_ordered("<", value, values[column])
                values[column] = builder.select(closer, value, values[column])
                codes[column] = builder.select(closer, code, codes[column])
        return _made_best(context, builder, values, codes)

    return _best(block, best, types.int32), generate


@intrinsic
def store_best_codes(typing: Any, best: Any, array: Any, offset: Any) -> Any:
    """Store the codes of 64 positions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        best, array, offset = args
        _, codes = cgutils.unpack_tuple(builder, best)
        for column, part in enumerate(cgutils.unpack_tuple(builder, codes)):
            _store(context, builder, part, signature.args[1], array, _plus(builder, offset, WIDTH * column))
        return context.get_dummy_value()

    return types.void(best, array, _INDEX), generate


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

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, h, h_offset, shift, shift_offset, table, offset, codes, t = args
        kinds, kind = signature.args, signature.return_type
        columns = len(kind) // ROWS
        rank = _last_axis(context, builder, kinds[5], table)
        shifts = [
            _loaded(context, builder, kinds[3], shift, place)
            for place in _vector_offsets(builder, shift_offset, columns)
        ]
        block = []
        for row in range(ROWS):
            begin = _code_row_of(context, builder, kinds[7], codes, _plus(builder, t, row), rank, offset)
            offsets = zip(
                _vector_offsets(builder, _row_of(builder, h_offset, rank, row), columns),
                _vector_offsets(builder, begin, columns),
                shifts,
                strict=True,
            )
            for place, code_place, more in offsets:
                here = builder.fadd(_loaded(context, builder, kinds[1], h, place), more)
                block.append(builder.fsub(here, _loaded(context, builder, kinds[5], table, code_place)))
        return context.make_tuple(builder, kind, block)

    return like(like, h, _INDEX, shift, _INDEX, table, _INDEX, codes, _INDEX), generate


@intrinsic
def gather_block(typing: Any, table: Any, offset: Any, codes: Any, t: Any) -> Any:
    """Load 16 elements of table[code] from `offset` on for each of 4 positions, whose codes start at t."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table, offset, codes, t = args
        width = _last_axis(context, builder, signature.args[0], table)
        block = []
        for row in range(ROWS):
            begin = _code_row_of(context, builder, signature.args[2], codes, _plus(builder, t, row), width, offset)
            block.append(_loaded(context, builder, signature.args[0], table, begin))
        return context.make_tuple(builder, _narrow, block)

    return _narrow(table, _INDEX, codes, _INDEX), generate


@intrinsic
def add_squares(typing: Any, sums: Any, block: Any) -> Any:
    """Add the squares of each row of a block to the row's 16 sums."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, parts = (cgutils.unpack_tuple(builder, arg) for arg in args)
        columns = len(parts) // ROWS
        for k, part in enumerate(parts):
            sums[k // columns] = _fused(builder, part, part, sums[k // columns])
        return context.make_tuple(builder, _narrow, sums)

    return _narrow(sums, block), generate


@intrinsic
def store_norms(typing: Any, sums: Any, array: Any, offset: Any) -> Any:
    """Store the square root of the total of each row's 16 sums."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, array, offset = args
        short = ir.VectorType(_FLOAT, ROWS)
        lengths = ir.Constant(short, ir.Undefined)
        for row, part in enumerate(cgutils.unpack_tuple(builder, sums)):
            lengths = builder.insert_element(lengths, _total(builder, part), _INT(row))
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(short, [short]), f"llvm.sqrt.v{ROWS}f32")
        _store(context, builder, builder.call(root, [lengths]), signature.args[1], array, offset)
        return context.get_dummy_value()

    return types.void(sums, array, _INDEX), generate


# --- helpers ----------------------------------------------------------------------------------------------------------


def _zeros(kind: Any, of: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _VECTORS[of]
        return context.make_tuple(builder, kind, [ir.Constant(vector, [0.0] * vector.count)] * len(kind))

    return generate


def _made_best(context: Any, builder: Any, values: list[Any], codes: list[Any]) -> Any:
    parts = context.make_tuple(builder, _row, values), context.make_tuple(builder, _code_row, codes)
    return context.make_tuple(builder, _best, parts)


def _address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _scalar(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.load(_address(context, builder, kind, array, offset))


def _loaded(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    vector = _VECTORS[kind.dtype]
    address = builder.bitcast(_address(context, builder, kind, array, offset), vector.as_pointer())
    return builder.load(address, align=4)


def _store(context: Any, builder: Any, lanes: Any, kind: Any, array: Any, offset: Any) -> None:
    address = builder.bitcast(_address(context, builder, kind, array, offset), lanes.type.as_pointer())
    builder.store(lanes, address, align=4)


def _row_of(builder: Any, offset: Any, stride: Any, row: int) -> Any:
    return builder.add(offset, builder.mul(stride, ir.Constant(stride.type, row)))


def _code_row_of(context: Any, builder: Any, kind: Any, codes: Any, place: Any, width: Any, offset: Any) -> Any:
    code = builder.sext(_scalar(context, builder, kind, codes, place), width.type)
    return builder.add(builder.mul(code, width), offset)


def _last_axis(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).shape)[-1]


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
        low, high = (builder.shuffle_vector(lanes, lanes, half) for half in _halves(count))
        lanes = builder.fadd(low, high)
    return builder.extract_element(lanes, _INT(0))


def _halves(count: int) -> list[Any]:
    return [ir.Constant(ir.VectorType(_INT, count), list(range(begin, begin + count))) for begin in (0, count)]


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    name = f"llvm.fma.v{left.type.count}f{32 if left.type.element == _FLOAT else 64}"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(left.type, [left.type] * 3), name)
    return builder.call(fma, [left, right, total])
