"""Numbers that mean a missing reading, such as -999, in columns of numbers."""

import polars as pl

from cometad.data.cells import marked_numbers
from cometad.data.dialect import Dialect


def without_marked(column: pl.Series, dialect: Dialect) -> pl.Series:
    """A column of numbers without those that mean a missing reading."""
    marked = marked_numbers(dialect.missing)
    if not marked or not column.dtype.is_numeric():
        return column
    dtype = pl.Float32() if column.dtype == pl.Float32 else pl.Float64()  # -99.9 is another number in 32 bits
    return column.set(column.cast(dtype).is_in(pl.Series(marked, dtype=dtype)), None)
