"""One CSV file, read in blocks of rows as its dialect, or a look at its beginning, says that it is written."""

import codecs
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import IncrementalNewlineDecoder
from typing import Any, BinaryIO

import polars as pl

from cometad.data.cells import MISSING, clean_header, numbered_names
from cometad.data.dialect import UTF_8, Dialect, recognize_encoding, recognize_separator, separator_hint
from cometad.data.sources import TableFile
from cometad.data.text_rows import Rows, TextRows
from cometad.errors import InputError

SAMPLE = 2**16  # bytes from the start of a text, to recognize how it is written


class TextTable:
    """A CSV file, as its dialect or a look at its beginning says that it is written."""

    def __init__(self, file: TableFile, dialect: Dialect, time_column: str | None = None) -> None:
        self.file, self._dialect, self._time_column = file, dialect, time_column
        with self._errors(), file.open() as source:
            sample = source.read(SAMPLE)
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
        self._marks: dict[str, str] = {}  # the decimal mark of each column that has one

    def blocks(self, rows: int | None) -> Generator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""
        with self._errors(), self.file.open() as source:
            source_rows = self._rows(source)
            names = self._names(source_rows)
            first = source_rows.take(1)
            block = source_rows.take(None if rows is None else rows - 1)
            yield self._parsed(first, block, names)
            while rows is not None and (block := source_rows.take(rows)).length:
                yield self._parsed(first, block, names)

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

    def _parsed(self, first: Rows, block: Rows, names: list[str]) -> pl.DataFrame:
        top = self._separator.join(f"c{number}" for number in range(len(names))) + "\n"
        # Infer types from all rows: a word in the last row then makes the column text instead of failing halfway.
        frame = pl.read_csv(
            top.encode() + first.text + block.text,
            separator=self._separator,
            infer_schema_length=None,
            infer_schema=self._dialect.decimal != ",",  # with a given decimal comma, 1.234 is no number
        )
        if len(frame) != first.length + block.length:  # never lose or invent a reading
            raise pl.exceptions.ComputeError(f"{first.length + block.length} rows became {len(frame)}")
        frame.columns = names
        return frame.with_columns(self._converted(column) for column in frame)

    def _converted(self, column: pl.Series) -> pl.Series:
        """A column without missing markers, as numbers if all its cells are.

        polars leaves " 1.5" and "nan" as text.
        """
        if column.dtype != pl.String:
            if column.dtype.is_float():
                self._take_mark(column.name, ".", column)
            missing = [number for marker in self._dialect.missing if (number := _as_number(marker)) is not None]
            if not (missing and column.dtype.is_numeric()):
                return column
            return column.set(column.cast(pl.Float64).is_in(missing), None)
        text = column.str.strip_chars()
        markers = [*MISSING, *(marker.strip().lower() for marker in self._dialect.missing)]
        text = text.set(text.str.to_lowercase().is_in(markers), None)
        known = len(text) - text.null_count()
        for mark in _DECIMALS if self._dialect.decimal is None else (self._dialect.decimal,):
            numbers = _decimal(text, mark, self._separator).cast(pl.Float64, strict=False)
            if len(numbers) - numbers.null_count() == known:
                if known and mark == "," and text.str.contains(",", literal=True).any():
                    self._take_mark(column.name, mark, text)
                return numbers
        words = text.drop_nulls().str.to_lowercase()
        if known and words.is_in(["true", "false"]).all():
            return (text.str.to_lowercase() == "true").alias(column.name)
        return text

    def _take_mark(self, name: str, mark: str, column: pl.Series) -> None:
        if self._marks.setdefault(name, mark) != mark and self._dialect.decimal is None:
            cell = next(cell for cell in column if isinstance(cell, float) or "," in (cell or ""))
            raise InputError(
                f"Column {name!r} has numbers with a decimal point and with a decimal comma ({str(cell)!r}).",
                advice="decimal",
            )

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


_DECIMALS = (".", ",")
_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"


def _decimal(text: pl.Series, mark: str, separator: str) -> pl.Series:
    """Numbers with this decimal mark, written with a point; a number with the other mark is null."""
    if mark == ".":
        return text
    if separator == "," and text.drop_nulls().str.contains(_THOUSANDS).all():
        return text  # quoted cells: "1,234" may also be a thousand
    fits = text.str.contains(_COMMA).fill_null(False)
    points = text.str.contains(".", literal=True).fill_null(False)
    return text.str.replace(",", ".", literal=True).zip_with(fits, text.set(points, None))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
