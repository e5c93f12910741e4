"""One CSV file, read in blocks of rows as its dialect, or a look at its beginning, says that it is written."""

import codecs
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from io import IncrementalNewlineDecoder
from typing import Any, BinaryIO

import polars as pl

from cometad.data.cells import clean_header, numbered_names
from cometad.data.dialect import UTF_8, Dialect, recognize_encoding, recognize_separator, separator_hint
from cometad.data.table_sources import TableFile, check_content
from cometad.data.text_numbers import TextNumbers
from cometad.data.text_rows import Rows, TextRows
from cometad.errors import InputError

SAMPLE = 2**16  # bytes from the start of a text, to recognize how it is written
AHEAD = 2**16  # rows at a time, to find the decimal mark


class TextTable:
    """A CSV file, as its dialect or a look at its beginning says that it is written."""

    def __init__(
        self, file: TableFile, dialect: Dialect, time_column: str | None = None, text: Sequence[str] = ()
    ) -> None:
        self.file, self._dialect, self._time_column = file, dialect, time_column
        self._text = text  # columns that stay as they are written: 007 is no number there
        with self._errors(), file.open() as source:
            sample = source.read(SAMPLE)
        check_content(sample, file)
        self._encoding = dialect.encoding or recognize_encoding(sample)
        text = sample.decode(self._encoding, errors="replace").removeprefix("\ufeff")
        if "\0" in text:
            raise InputError(f"'{file.shown}' is not a text file. Pass a CSV or Parquet file.")
        lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
        if len(sample) == SAMPLE and len(lines) > 1:
            del lines[-1]  # it may be incomplete
        # A file with the line breaks of old Macs has no line feed at all.
        self._translates = "\n" not in text and "\r" in text
        hint = separator_hint(lines[0]) if lines else None
        self._skips_hint = hint is not None
        tabs = "\t" if file.suffix == ".tsv" else None
        self._separator = dialect.separator or hint or tabs or recognize_separator(lines[self._skips_hint :])
        self._numbers, self._looked_ahead = TextNumbers(dialect, file.shown), False

    def blocks(self, rows: int | None) -> Generator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""
        if rows is None:
            self._looked_ahead = True  # there is nothing ahead
        with self._errors(), self.file.open() as source:
            source_rows = self._rows(source)
            names = self._names(source_rows)
            first = source_rows.take(1)
            block = source_rows.take(None if rows is None else rows - 1)
            yield self._parsed(first, block, names, self.where)
            seen = first.length + block.length
            while rows is not None and (block := source_rows.take(rows)).length:
                yield self._parsed(first, block, names, _after_the_first(self.where, seen - 1))
                seen += block.length

    def where(self, row: int) -> str:
        """The line on which a row starts, counted from 1 as an editor does, and the file."""
        with self._errors(), self.file.open() as source:
            rows = self._rows(source)
            self._names(rows)
            rows.take(row)
            rows.take(1)
            return f"row {rows.start} of '{self.file.shown}'"

    def _rows(self, source: BinaryIO) -> TextRows:
        """The rows of the file, after a hint about the separator."""
        rows = TextRows(self._lines(source), self._separator, self.file.shown)
        if self._skips_hint:
            rows.skip()
        return rows

    def _lines(self, source: BinaryIO) -> Iterator[bytes]:
        """The lines in UTF-8, or in whatever was taken for UTF-8."""
        if self._dialect.encoding is None and self._encoding == UTF_8 and not self._translates:
            lines: Iterator[bytes] = iter(source)
        else:
            lines = _recoded(source, self._encoding, self._translates)
        yield next(lines, b"").removeprefix(codecs.BOM_UTF8)
        yield from lines

    def _names(self, rows: TextRows) -> list[str]:
        """The names of the columns, from the first row."""
        cells = rows.first(keep=not self._dialect.header)
        if cells is None:
            raise InputError(f"'{self.file.shown}' is empty. Pass a file with a header row and readings.")
        if not self._dialect.header:
            return numbered_names(len(cells))
        return clean_header(cells, f"The first row of '{self.file.shown}'", self._time_column)

    def _parsed(self, first: Rows, block: Rows, names: list[str], place: Callable[[int], str]) -> pl.DataFrame:
        text = self._separator.join(f"c{column}" for column in range(len(names))).encode()
        text = b"\n".join([text, first.text + block.text])
        # Infer types from all rows: a word in the last row then makes the column text instead of failing halfway.
        frame = pl.read_csv(
            text,
            separator=self._separator,
            infer_schema_length=None,
            infer_schema=self._dialect.decimal != ",",  # with a given decimal comma, 1.234 is no number
        )
        if len(frame) != first.length + block.length:  # never lose or invent a reading
            raise pl.exceptions.ComputeError(f"{first.length + block.length} rows became {len(frame)}")
        frame.columns = names

        def raw(name: str) -> pl.Series:
            column = names.index(name)
            return pl.read_csv(text, separator=self._separator, columns=[column], infer_schema=False)[:, 0].alias(name)

        kept = [raw(name).str.strip_chars() for name in self._text if name in names]
        numbers = self._numbers.converted(frame.drop(column.name for column in kept), raw, place, self._look_ahead)
        return numbers.with_columns(kept).select(names) if kept else numbers

    def _look_ahead(self) -> None:
        """Read on until a number shows the decimal mark of the file."""
        if self._looked_ahead:
            return
        self._looked_ahead = True
        other = TextTable(self.file, self._dialect, self._time_column)
        other._looked_ahead = True
        for _ in other.blocks(AHEAD):
            if other._numbers.decided:
                self._numbers.comma, self._numbers.point = other._numbers.comma, other._numbers.point
                return

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except pl.exceptions.NoDataError as error:
            raise InputError(f"'{self.file.shown}' is empty. Pass a file with a header row and readings.") from error
        except UnicodeError as error:
            raise InputError(f"'{self.file.shown}' is not text in {self._encoding}.", advice="encoding") from error
        except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError) as error:
            raise self.file.unreadable(
                "a complete CSV file with as many cells in each row as in the header", error
            ) from error


def _recoded(source: BinaryIO, encoding: str, translates: bool) -> Iterator[bytes]:
    """Lines in another encoding as UTF-8; `translates` also breaks lines at carriage returns."""
    decoder: Any = codecs.getincrementaldecoder(encoding)()
    if translates:
        decoder = IncrementalNewlineDecoder(decoder, translate=True)
    partial, more = "", True
    while more:
        chunk = source.read(SAMPLE)
        more = bool(chunk)
        *lines, partial = (partial + decoder.decode(chunk, final=not more)).split("\n")
        yield from ((line + "\n").encode(errors="replace") for line in lines)
    if partial:
        yield partial.encode(errors="replace")


def _after_the_first(where: Callable[[int], str], offset: int) -> Callable[[int], str]:
    """The places of the rows of a block that repeats the first row on top; `offset` is added to the others."""
    return lambda row: where(row + offset if row else 0)
