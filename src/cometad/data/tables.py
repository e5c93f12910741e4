"""Tables of readings in CSV and Parquet files: one row per reading, one column per variable, optionally the time."""

import os
from collections.abc import Iterator, Sequence

import polars as pl

from cometad.data.columns import Columns, some_zones
from cometad.data.dialect import Dialect
from cometad.data.joined import Part, Tables
from cometad.data.sources import check_source


def read_table(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    counters: bool = False,
) -> pl.DataFrame:
    r"""Read CSV (.csv, .csv.gz, .csv.zst, .tsv) or Parquet readings into a frame that detectors accept.

    `path` is a file, a folder or a pattern of files, which are put in order of time, or "-" for standard input.
    Separator, decimal mark, encoding and the order of day and month are recognized, unless the `dialect` gives them.

    Numbers become floats, and an empty cell (also NA, null, none) becomes NaN. The time column is `time_column` if
    given, else a column of dates, else one named like a time. It becomes datetimes; times with a zone are converted to
    UTC. Numbers in a column that is given or named as the time must be seconds, milli-, micro- or nanoseconds since
    1970. A column named like a time that only counts (0, 1, 2) is refused, because as a variable it would leave its
    training range with every new reading; `counters` keeps it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.data.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plant.csv"
    ...     _ = path.write_text("time;flow\n31.03.2024 04:10;1,5\n31.03.2024 04:11;\n")
    ...     read_table(path).rows()
    [(datetime.datetime(2024, 3, 31, 4, 10), 1.5), (datetime.datetime(2024, 3, 31, 4, 11), nan)]
    """
    tables = Tables(path, drop, dialect)
    columns = Columns(tables.shown, time_column, dialect, counters)
    columns.put_in_order(tables)
    block = Part(tables.whole(), False, 0)
    return columns.apply(block, lambda: [block])


def table_chunks(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    rows: int = 2**16,
) -> Iterator[pl.DataFrame]:
    r"""Read a table like `read_table`, in frames of `rows` rows, with only one in memory at a time.

    A missing file is refused at once; its content is checked as it is read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.data.tables import table_chunks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plant.csv"
    ...     _ = path.write_text("flow,level\n1,2\n3,4\n5,6\n")
    ...     [chunk.rows() for chunk in table_chunks(path, rows=2)]
    [[(1.0, 2.0), (3.0, 4.0)], [(5.0, 6.0)]]
    """
    tables = Tables(path, drop, dialect)
    return _chunks(tables, Columns(tables.shown, time_column, dialect), rows)


def check_table(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a file, folder or pattern of files in a format that `read_table` supports.

    >>> from cometad.data.tables import check_table
    >>> check_table("plant.xlsx")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The name 'plant.xlsx' does not end in .csv, .csv.gz, .csv.zst, .tsv or .parquet. Choose
    one of these formats.
    """
    check_source(path)


def _chunks(tables: Tables, columns: Columns, rows: int) -> Iterator[pl.DataFrame]:
    columns.put_in_order(tables)
    zones: list[object] | None = None
    for block in tables.blocks(rows):
        frame = columns.apply(block, lambda: tables.blocks(rows))
        times = [dtype for dtype in frame.dtypes if dtype.is_temporal()]
        if zones is None:
            zones = [getattr(dtype, "time_zone", None) for dtype in times]
        elif zones != [getattr(dtype, "time_zone", None) for dtype in times]:
            raise some_zones(tables.shown)
        yield frame
