"""Splits a table with an entity column into one series per entity, with bounded memory.

One pass reads the table in blocks. Whenever enough rows are in memory, they are sorted by entity and appended to one
file, and each entity's position is recorded. So an entity can be read without the rest of the table, and the number
of files does not grow with the number of entities.
"""

import io
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cometad.data.columns import Part, TextNumbers, check_column
from cometad.data.dialect import Dialect
from cometad.data.tables import ROWS, TableReader, joined
from cometad.errors import InputError, OutputError
from cometad.files import write_whole
from cometad.progress import ProgressCallback

BUFFER = 128 * 2**20  # bytes of rows in memory; sorting them takes a few times that
DATA, INDEX = "rows.bin", "index.json"

Segments = list[tuple[int, int]]  # of an entity: where each begins in the file, and its length


def split_table(
    reader: TableReader,
    by: str,
    folder: Path,
    signature: str,
    dialect: Dialect = Dialect(),
    buffer: int = BUFFER,
    report: ProgressCallback = lambda done, total, note: None,
) -> dict[str, Segments]:
    """Split a table into the file `DATA` of a scratch folder, unless the folder holds it already, as `signature` says.

    Returns the segments of each entity; `report` gets the number of files.
    """
    index = folder / INDEX
    known = json.loads(index.read_text("utf-8")) if index.exists() else {}
    if known.get("signature") == signature:
        return {name: [(begin, length) for begin, length in own] for name, own in known["segments"].items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index.unlink(missing_ok=True)  # it refers to rows of another table, which are overwritten now
        with (folder / DATA).open("wb") as file:
            found = _split(_counted(reader, report), reader.shown, by, file, dialect, buffer)
    except OSError as error:
        raise OutputError(
            f"Cannot split the table by {by!r} into '{folder}': {error.strerror or error}. Free some space, or "
            "choose another folder."
        ) from error
    segments = dict(sorted(found.items()))
    text = json.dumps({"signature": signature, "segments": segments})
    write_whole(index, lambda temporary: temporary.write_text(text, "utf-8"))
    return segments


def _counted(reader: TableReader, report: ProgressCallback) -> Iterator[Part]:
    """The blocks of a table; reports files and rows."""
    began, file, rows = time.monotonic(), 0, 0
    for part in reader.blocks(ROWS):
        file += not part.repeats  # the first block of a file repeats nothing
        yield part
        rows += len(part.own)
        pace = rows / max(time.monotonic() - began, 1e-9)
        report(file - 1, len(reader.tables), f"{rows:,} rows read, {pace:,.3g} a second")
    report(file, len(reader.tables), f"{rows:,} rows read")


def _split(
    parts: Iterator[Part], shown: str, by: str, file: io.BufferedWriter, dialect: Dialect, buffer: int
) -> dict[str, Segments]:
    segments: dict[str, Segments] = defaultdict(list)
    waiting: list[pl.DataFrame] = []  # whole blocks, because many small frames take far more memory

    def append() -> None:
        for name, rows in _sorted_by_entity(pl.concat(waiting, how="vertical_relaxed"), by):
            begin = file.tell()
            _with_own_numbers(rows, dialect, shown).write_ipc(file, compression="uncompressed")
            segments[name].append((begin, file.tell() - begin))
        waiting.clear()

    for part in parts:
        rows = _named_rows(part, by, shown)
        # Join blocks only if the same columns hold text: numbers must never become text and back.
        if waiting and (_texts(rows) != _texts(waiting[0]) or sum(map(_size, waiting)) > buffer):
            append()
        waiting.append(rows)
    if not any(map(len, waiting)) and not segments:
        raise InputError(f"'{shown}' has a header but no readings. Pass a file with at least one.")
    append()
    file.flush()
    os.fsync(file.fileno())
    return segments


def _size(frame: pl.DataFrame) -> int:
    return int(frame.estimated_size())


def _texts(frame: pl.DataFrame) -> list[str]:
    return [column.name for column in frame if column.dtype == pl.String]


def _sorted_by_entity(rows: pl.DataFrame, by: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each entity in turn, without the entity column; only one is copied in memory."""
    rows = rows.sort(by, maintain_order=True)
    runs = rows[by].rle().struct.unnest()
    rows, begin = rows.drop(by), 0
    for name, length in zip(runs["value"], runs["len"], strict=True):
        yield name, rows[begin : begin + length]
        begin += length


def _with_own_numbers(rows: pl.DataFrame, dialect: Dialect, shown: str) -> pl.DataFrame:
    """The rows of an entity, with numbers where its own cells are numbers.

    A word in another entity's cells turns a column of the whole block into text.
    """
    texts = [column for column in rows if column.dtype == pl.String and _starts_with_a_number(column)]
    if not texts:
        return rows
    numbers = TextNumbers(dialect, shown).converted(pl.DataFrame(texts), lambda row: f"'{shown}'")
    return rows.with_columns(numbers)


def _starts_with_a_number(column: pl.Series) -> bool:
    first = column.drop_nulls().head(1).str.strip_chars().str.replace(",", ".", literal=True)
    return first.cast(pl.Float64, strict=False).null_count() < len(first)


def by_entity(part: Part, by: str, shown: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each entity in a part of a table, without the entity column."""
    return _sorted_by_entity(_named_rows(part, by, shown), by)


def _named_rows(part: Part, by: str, shown: str) -> pl.DataFrame:
    """The rows with names as text; empty columns have no type, so that they join with any other."""
    check_column(part.frame, by, shown)
    names = _names(part.own[by], shown)
    unnamed = names.is_null() | (names == "")
    if unnamed.any():
        raise InputError(
            f"The column {by!r} is empty in {part.own_place(unnamed.arg_max() or 0)}. Every row needs an entity."
        )
    empty = [column.name for column in part.own if column.dtype == pl.String and column.null_count() == len(column)]
    return part.own.with_columns(names, pl.col(empty).cast(pl.Null))


def _names(column: pl.Series, shown: str) -> pl.Series:
    """The names of entities as text: 7 for 7.0, because a column with missing values turns 7 into 7.0."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise InputError(
            f"The column {column.name!r} of '{shown}' holds values of type {column.dtype}, which cannot name "
            "entities. Choose a column of text or numbers."
        )
    if not column.dtype.is_float():
        return column.cast(pl.String)
    numbers = column.fill_nan(None)
    whole = numbers.cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with((whole == numbers).fill_null(False), numbers.cast(pl.String))


def rows_of(data: Path, segments: Segments) -> pl.DataFrame:
    """The rows of an entity, in the order of the table."""
    try:
        with data.open("rb") as file:
            frames = []
            for begin, length in segments:
                file.seek(begin)
                frames.append(pl.read_ipc(io.BytesIO(file.read(length))))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"Cannot read the scratch file '{data}' ({error}). Delete it and start again.") from error
    return joined(frames)
