"""The vector instructions that `kernels` is written in, as numba intrinsics.

Compilers vectorize plain loops unreliably, and often at half the width of the machine. Here the vectors are explicit:
`Lanes` are 16 floats or 8 doubles, and a block is 4 rows of 4 lanes that stays in registers while sums are added to it.
LLVM maps them to the instructions of the processor.
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
    halves,
    intrinsic,
    plus,
    repeated,
    root,
    summed,
    vector_type,
)

WIDTH = 16  # floats in Lanes
ROWS = COLUMNS = 4  # Lanes in a Block
SPAN = COLUMNS * WIDTH  # floats in a row of a block
DOUBLES = COLUMNS * WIDTH // 2  # doubles in a row of a block

_INDEX = types.int64
_lanes, _code_lanes = vector_type("Lanes", FLOAT_VECTOR), vector_type("CodeLanes", INT_VECTOR)
_double_lanes = vector_type("DoubleLanes", DOUBLE_VECTOR)
_block, _narrow = types.UniTuple(_lanes, ROWS * COLUMNS), types.UniTuple(_lanes, ROWS)
_double_block = types.UniTuple(_double_lanes, ROWS * COLUMNS)
_row, _code_row = types.UniTuple(_lanes, COLUMNS), types.UniTuple(_code_lanes, COLUMNS)
_best = types.Tuple((_row, _code_row))


# --- one vector -------------------------------------------------------------------------------------------------------


@intrinsic
def load(typing: Any, array: Any, offset: Any) -> Any:
    return _lanes(array, _INDEX), emits(lambda builder, array, offset: array.load(offset))


@intrinsic
def store(typing: Any, lanes: Any, array: Any, offset: Any) -> Any:
    return types.void(lanes, array, _INDEX), emits(lambda builder, lanes, array, offset: array.store(lanes, offset))


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    return _lanes(types.float32), emits(lambda builder, value: repeated(builder, value, FLOAT_VECTOR))


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    return _lanes(left, right), emits(lambda builder, left, right: builder.fadd(left, right))


@intrinsic
def multiply_add(typing: Any, left: Any, right: Any, total: Any) -> Any:
    """Total + left * right, rounded once."""
    return _lanes(left, right, total), emits(fma)


@intrinsic
def zero_codes(typing: Any) -> Any:
    return _code_lanes(), emits(lambda builder: ir.Constant(INT_VECTOR, [0] * WIDTH))


@intrinsic
def minimum(typing: Any, value: Any, least: Any) -> Any:
    def write(builder: Any, value: Any, least: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", value, least), value, least)

    return _lanes(value, least), emits(write)


@intrinsic
def update_codes(typing: Any, value: Any, least: Any, first: Any, best: Any) -> Any:
    """The code of the minimum, lane by lane: first, first + 1, ... where `value` is below `least`, else `best`."""

    def write(builder: Any, value: Any, least: Any, first: Any, best: Any) -> Any:
        codes = builder.add(repeated(builder, first, INT_VECTOR), ir.Constant(INT_VECTOR, list(range(WIDTH))))
        return builder.select(builder.fcmp_ordered("<", value, least), codes, best)

    return _code_lanes(value, least, types.int32, best), emits(write)


@intrinsic
def lowest_code(typing: Any, values: Any, codes: Any) -> Any:
    """The code of the lowest of 16 values; the lowest code of a tie."""

    def write(builder: Any, values: Any, codes: Any) -> Any:
        count = WIDTH
        while count > 1:
            count //= 2
            low, high = halves(builder, values, count)
            low_codes, high_codes = halves(builder, codes, count)
            tie = builder.and_(builder.fcmp_ordered("==", high, low), builder.icmp_signed("<", high_codes, low_codes))
            closer = builder.or_(builder.fcmp_ordered("<", high, low), tie)
            values, codes = builder.select(closer, high, low), builder.select(closer, high_codes, low_codes)
        return builder.extract_element(codes, INT(0))

    return types.int32(values, codes), emits(write)


@intrinsic
def splat_at(typing: Any, array: Any, offset: Any) -> Any:
    """One element of an array in all 16 lanes."""
    return _lanes(array, _INDEX), emits(
        lambda builder, array, offset: repeated(builder, array.scalar(offset), FLOAT_VECTOR)
    )


@intrinsic
def transpose(
    typing: Any, source: Any, row_offsets: Any, row: Any, shift: Any, target: Any, offset: Any, stride: Any
) -> Any:
    """Transpose 16 rows of 16: target[offset + c * stride + r] = source[row_offsets[row + r] + shift + c]."""

    def write(
        builder: Any, source: Any, row_offsets: Any, row: Any, shift: Any, target: Any, offset: Any, stride: Any
    ) -> None:
        places = [row_offsets.scalar(plus(builder, row, r)) for r in range(WIDTH)]
        rows = [source.load(builder.add(place, shift)) for place in places]
        half = WIDTH // 2
        even = ir.Constant(INT_VECTOR, [k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        odd = ir.Constant(INT_VECTOR, [half + k // 2 + (k % 2) * WIDTH for k in range(WIDTH)])
        for _ in range(4):  # interleave rows r and r + 8; after log2(16) rounds rows are columns
            rows = [
                builder.shuffle_vector(rows[r // 2], rows[r // 2 + half], odd if r % 2 else even) for r in range(WIDTH)
            ]
        for c, column in enumerate(rows):
            target.store(column, _row_of(builder, offset, stride, c))

    return types.void(source, row_offsets, _INDEX, _INDEX, target, _INDEX, _INDEX), emits(write)


# --- a block: 4 rows by 64 positions ----------------------------------------------------------------------------------


@intrinsic
def zero_block(typing: Any) -> Any:
    return _block(), emits(lambda builder: [ir.Constant(FLOAT_VECTOR, [0.0] * WIDTH)] * ROWS * COLUMNS)


@intrinsic
def zero_double_block(typing: Any) -> Any:
    zeros = ir.Constant(DOUBLE_VECTOR, [0.0] * (WIDTH // 2))
    return _double_block(), emits(lambda builder: [zeros] * ROWS * COLUMNS)


@intrinsic
def zero_narrow_block(typing: Any) -> Any:
    """A block of zeros with rows of only 16 floats."""
    return _narrow(), emits(lambda builder: [ir.Constant(FLOAT_VECTOR, [0.0] * WIDTH)] * ROWS)


@intrinsic
def load_block(typing: Any, array: Any, offset: Any, stride: Any, more: Any, more_offset: Any) -> Any:
    """Load 4 rows of an array, `stride` apart, and add one element of `more` to each."""

    def write(builder: Any, array: Any, offset: Any, stride: Any, more: Any, more_offset: Any) -> list[Any]:
        block = []
        for row in range(ROWS):
            constant = repeated(builder, more.scalar(plus(builder, more_offset, row)), FLOAT_VECTOR)
            places = _vector_offsets(builder, _row_of(builder, offset, stride, row), COLUMNS)
            block += [builder.fadd(array.load(place), constant) for place in places]
        return block

    return _block(array, _INDEX, _INDEX, more, _INDEX), emits(write)


@intrinsic
def multiply_add_block(typing: Any, block: Any, weights: Any, weights_offset: Any, x: Any, offset: Any) -> Any:
    """Add x times a weight to each row of a block; the 4 weights are adjacent."""

    def write(builder: Any, block: Any, weights: Any, weights_offset: Any, x: Any, offset: Any) -> list[Any]:
        columns = len(block) // ROWS
        values = [x.load(place) for place in _vector_offsets(builder, offset, columns, x.vector.count)]
        added = []
        for row in range(ROWS):
            weight = repeated(builder, weights.scalar(plus(builder, weights_offset, row)), x.vector)
            for column, value in enumerate(values):
                added.append(fma(builder, weight, value, block[row * columns + column]))
        return added

    return block(block, weights, _INDEX, x, _INDEX), emits(write)


@intrinsic
def add_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Add a block of doubles to 4 rows of an array, `stride` apart."""

    def write(builder: Any, block: Any, array: Any, offset: Any, stride: Any) -> None:
        for place, part in zip(_block_offsets(builder, offset, stride, WIDTH // 2), block, strict=True):
            array.store(builder.fadd(array.load(place), part), place)

    return types.void(block, array, _INDEX, _INDEX), emits(write)


@intrinsic
def add_row(typing: Any, weight: Any, source: Any, source_offset: Any, target: Any, offset: Any) -> Any:
    """Add a weight times 32 doubles of one array to 32 doubles of another."""

    def write(builder: Any, weight: Any, source: Any, source_offset: Any, target: Any, offset: Any) -> None:
        weights = repeated(builder, weight, source.vector)
        offsets = (_vector_offsets(builder, begin, COLUMNS, WIDTH // 2) for begin in (source_offset, offset))
        for source_place, place in zip(*offsets, strict=True):
            target.store(fma(builder, weights, source.load(source_place), target.load(place)), place)

    return types.void(types.float64, source, _INDEX, target, _INDEX), emits(write)


@intrinsic
def store_block(typing: Any, block: Any, array: Any, offset: Any, stride: Any) -> Any:
    """Store the 4 rows of a block in an array, `stride` apart."""

    def write(builder: Any, block: Any, array: Any, offset: Any, stride: Any) -> None:
        for place, part in zip(_block_offsets(builder, offset, stride), block, strict=True):
            array.store(part, place)

    return types.void(block, array, _INDEX, _INDEX), emits(write)


@intrinsic
def initial_best(typing: Any) -> Any:
    """The initial lowest value, infinity, and its code at each of 64 positions."""
    infinite, zeros = ir.Constant(FLOAT_VECTOR, [float("inf")] * WIDTH), ir.Constant(INT_VECTOR, [0] * WIDTH)
    return _best(), emits(lambda builder: ([infinite] * COLUMNS, [zeros] * COLUMNS))


@intrinsic
def update_best(typing: Any, block: Any, best: Any, first: Any) -> Any:
    """Update the lowest values and their codes with a block whose rows are the codes first, first + 1, ..."""

    def write(builder: Any, block: Any, best: Any, first: Any) -> Any:
        values, codes = best
        for row in range(ROWS):
            code = repeated(builder, builder.add(first, INT(row)), INT_VECTOR)
            for column in range(COLUMNS):
                value = block[row * COLUMNS + column]
                closer = builder.fcmp_ordered("<", value, values[column])
                values[column] = builder.select(closer, value, values[column])
                codes[column] = builder.select(closer, code, codes[column])
        return values, codes

    return _best(block, best, types.int32), emits(write)


@intrinsic
def store_best_codes(typing: Any, best: Any, array: Any, offset: Any) -> Any:
    """Store the codes of 64 positions."""

    def write(builder: Any, best: Any, array: Any, offset: Any) -> None:
        for place, part in zip(_vector_offsets(builder, offset, COLUMNS), best[1], strict=True):
            array.store(part, place)

    return types.void(best, array, _INDEX), emits(write)


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
            begin = _code_row_of(builder, codes, plus(builder, t, row), rank, offset)
            places = _vector_offsets(builder, _row_of(builder, h_offset, rank, row), columns)
            code_places = _vector_offsets(builder, begin, columns)
            for place, code_place, more in zip(places, code_places, shifts, strict=True):
                block.append(builder.fsub(builder.fadd(h.load(place), more), table.load(code_place)))
        return block

    return like(like, h, _INDEX, shift, _INDEX, table, _INDEX, codes, _INDEX), emits(write)


@intrinsic
def gather_block(typing: Any, table: Any, offset: Any, codes: Any, t: Any) -> Any:
    """Load 16 elements of table[code] from `offset` on for each of 4 positions, whose codes start at t."""

    def write(builder: Any, table: Any, offset: Any, codes: Any, t: Any) -> list[Any]:
        places = [plus(builder, t, row) for row in range(ROWS)]
        return [table.load(_code_row_of(builder, codes, place, table.last_axis, offset)) for place in places]

    return _narrow(table, _INDEX, codes, _INDEX), emits(write)


@intrinsic
def add_squares(typing: Any, sums: Any, block: Any) -> Any:
    """Add the squares of each row of a block to the row's 16 sums."""

    def write(builder: Any, sums: Any, block: Any) -> Any:
        columns = len(block) // ROWS
        for k, part in enumerate(block):
            sums[k // columns] = fma(builder, part, part, sums[k // columns])
        return sums

    return _narrow(sums, block), emits(write)


@intrinsic
def store_norms(typing: Any, sums: Any, array: Any, offset: Any) -> Any:
    """Store the square root of the total of each row's 16 sums."""

    def write(builder: Any, sums: Any, array: Any, offset: Any) -> None:
        short = ir.VectorType(ir.FloatType(), ROWS)
        lengths = ir.Constant(short, ir.Undefined)
        for row, part in enumerate(sums):
            lengths = builder.insert_element(lengths, summed(builder, part), INT(row))
        array.store(root(builder, lengths), offset)

    return types.void(sums, array, _INDEX), emits(write)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _row_of(builder: Any, offset: Any, stride: Any, row: int) -> Any:
    return builder.add(offset, builder.mul(stride, ir.Constant(stride.type, row)))


def _code_row_of(builder: Any, codes: Any, place: Any, width: Any, offset: Any) -> Any:
    return builder.add(builder.mul(builder.sext(codes.scalar(place), width.type), width), offset)


def _block_offsets(builder: Any, offset: Any, stride: Any, width: int = WIDTH) -> list[Any]:
    rows = [_row_of(builder, offset, stride, row) for row in range(ROWS)]
    return [place for row in rows for place in _vector_offsets(builder, row, COLUMNS, width)]


def _vector_offsets(builder: Any, offset: Any, columns: int, width: int = WIDTH) -> list[Any]:
    return [plus(builder, offset, width * column) for column in range(columns)]
