"""Tables of readings in CSV and Parquet files: one row per reading, one column per variable, optionally the time."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from cometad.data.columns import Columns, some_zones
from cometad.data.dialect import Dialect
from cometad.data.joined import Part, Tables
from cometad.data.table_sources import Source, check_source
from cometad.series import refuse_text

ROWS = 2**16  # of a chunk

Select = Callable[[pl.DataFrame], pl.DataFrame]
Check = Callable[[pl.DataFrame, Callable[[int], str]], object]  # of a frame, whose rows have places in words


@dataclass(frozen=True)
class ReadOptions:
    """How to read readings, from one file or from those of many entities."""

    time_column: str | None = None
    drop: tuple[str, ...] = ()
    resample: str | None = None
    dialect: Dialect = field(default_factory=Dialect)

    def reader(self, path: Source, variables: Collection[str] = ()) -> "TableReader":
        """The table at a path, not yet resampled; columns named in `variables` hold no times."""
        return TableReader(path, self.time_column, self.drop, self.dialect, variables=variables)

    def as_json(self) -> dict[str, Any]:
        """The options in types that JSON can hold."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


class TableReader:
    r"""A table that can be read as a whole or in chunks, and that knows where its rows are.

    Takes the arguments of `read_table`; columns named in `variables` hold no times. A missing file is refused at once;
    its content is checked as it is read.
    """

    def __init__(
        self,
        path: Source,
        time_column: str | None = None,
        drop: Sequence[str] = (),
        dialect: Dialect = Dialect(),
        counters: bool = False,
        variables: Collection[str] = (),
    ) -> None:
        self._decimal = dialect.decimal
        self._tables = Tables(path, drop, dialect, time_column)
        self._columns = Columns(self._tables.shown, time_column, dialect, counters, variables)

    def whole(self, select: Select | None = None, check: Check | None = None) -> pl.DataFrame:
        """The whole table; `select` chooses columns, and text in these is refused with its place in the file.

        `check` may then refuse rows.
        """
        self._columns.put_in_order(self._tables)
        part = self._tables.whole()
        frame = self._columns.apply(part, lambda: [part])
        return frame if select is None else self._checked(select(frame), part, check)

    def chunks(
        self, rows: int = ROWS, select: Select | None = None, check: Check | None = None
    ) -> Iterator[pl.DataFrame]:
        """The table in frames of `rows` rows, with only one in memory at a time; the rest as in `whole`."""
        self._columns.put_in_order(self._tables)
        zones: list[object] | None = None
        for part in self._tables.blocks(rows):
            frame = self._columns.apply(part, lambda: self._tables.blocks(rows))
            times = [dtype for dtype in frame.dtypes if dtype.is_temporal()]
            if zones is None:
                zones = [getattr(dtype, "time_zone", None) for dtype in times]
            elif zones != [getattr(dtype, "time_zone", None) for dtype in times]:
                raise some_zones(self._tables.shown)
            yield frame if select is None else self._checked(select(frame), part, check)

    def _checked(self, frame: pl.DataFrame, part: Part, check: Check | None) -> pl.DataFrame:
        """The frame, if no column holds text and the check passes."""
        for column in frame:
            if column.dtype == pl.String:
                refuse_text(column.name, column, part.own_place, self._decimal)
        if check is not None:
            check(frame, part.own_place)
        return frame

    def where(self, row: int) -> str:
        """The place of a row of the whole table, which was read before, in words."""
        return self._tables.where(row)


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
    """
    return TableReader(path, time_column, drop, dialect, counters).whole()


def table_chunks(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    rows: int = ROWS,
) -> Iterator[pl.DataFrame]:
    r"""Read a table like `read_table`, in frames of `rows` rows, with only one in memory at a time.

    A missing file is refused at once; its content is checked as it is read.
    """
    return TableReader(path, time_column, drop, dialect).chunks(rows)


def check_table(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a file, folder or pattern of files in a format that `read_table` supports."""
    check_source(path)
