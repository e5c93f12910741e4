"""The readings of entities: from a table with an entity column, a folder of files, or objects.

Any text can name an entity. A worker opens the readings itself if it shares this disk; otherwise they are sent to it.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import polars as pl

from cometad.data.columns import Columns, Matching, Part
from cometad.data.resample import parse_resampling
from cometad.data.table_sources import SUFFIXES, by_name, check_source, suffix_of
from cometad.data.tables import ReadOptions
from cometad.errors import InputError, ParameterError
from cometad.files import status_of
from cometad.fleet.split import DATA, Segment, by_entity, rows_of, split_table
from cometad.frames import refuse_text
from cometad.progress import show_progress
from cometad.series import Series, as_series, together

UNNAMED = "__HIVE_DEFAULT_PARTITION__"  # folder name that Hive, Spark and pyarrow use for a missing value


class Wanted(NamedTuple):
    """The variables needed by the detector that will score the readings."""

    names: tuple[str, ...]
    gaps: bool  # whether values may be missing


class EntityReadings(Protocol):
    """The readings of one entity; can be sent to another process."""

    def open(self, wanted: Wanted | None = None) -> Series:
        """The checked series; missing values are allowed here, but refused by a detector without a gap rule."""

    def carried(self) -> "EntityReadings":
        """The same with the readings in memory, for a worker that does not share this disk."""


@dataclass(frozen=True)
class FileReadings:
    """An entity in one or more files of its own."""

    files: tuple[Path, ...]
    options: ReadOptions
    without: str | None = None  # an entity column that the files may have

    def open(self, wanted: Wanted | None = None) -> Series:
        reader = self.options.reader(self.files, wanted.names if wanted else ())
        return _series(reader.whole(_selection(wanted, self.without)), self.options)

    def carried(self) -> "CarriedReadings":
        reader = self.options.reader(self.files)
        reader.put_in_order()
        return CarriedReadings(f"'{reader.shown}'", reader.rows().frame, self.options, self.without)


@dataclass(frozen=True)
class SplitReadings:
    """An entity whose rows were split off a table."""

    name: str
    data: Path
    segments: tuple[Segment, ...]
    options: ReadOptions

    def open(self, wanted: Wanted | None = None) -> Series:
        return self.carried().open(wanted)

    def carried(self) -> "CarriedReadings":
        return CarriedReadings(f"entity {self.name!r}", rows_of(self.data, self.segments), self.options)


@dataclass(frozen=True)
class CarriedReadings:
    """An entity whose rows are in memory, as they were in the file."""

    shown: str
    frame: pl.DataFrame
    options: ReadOptions
    without: str | None = None

    def open(self, wanted: Wanted | None = None) -> Series:
        part = Part(self.frame, lambda row: f"row {row + 1} of {self.shown}")
        time_column, dialect = self.options.time_column, self.options.dialect
        columns = Columns(self.shown, time_column, dialect, variables=wanted.names if wanted else ())
        frame = _selection(wanted, self.without)(columns.apply(part, lambda: [part]))
        for column in frame:
            if column.dtype == pl.String:
                refuse_text(column.name, column, part.where, dialect.decimal)
        return _series(frame, self.options)

    def carried(self) -> "CarriedReadings":
        return self


@dataclass(frozen=True)
class ObjectReadings:
    """An entity passed as an array or a frame."""

    value: Any

    def open(self, wanted: Wanted | None = None) -> Series:
        return as_series(self.value, missing=True)

    def carried(self) -> "ObjectReadings":
        return self


def _selection(wanted: Wanted | None, without: str | None) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Selects the wanted columns of a frame, `without` the one that names the entity."""
    matching = None if wanted is None else Matching(wanted.names, wanted.gaps)

    def select(frame: pl.DataFrame) -> pl.DataFrame:
        own = frame if without is None else frame.drop(without, strict=False)
        return own if matching is None else matching(own)

    return select


def _series(frame: pl.DataFrame, options: ReadOptions) -> Series:
    if options.resample is None:
        return as_series(frame, missing=True)
    run = parse_resampling(options.resample).start()
    return together([bins for bins in (run.push(frame), run.finish()) if len(bins)])


class Entities(NamedTuple):
    readings: Mapping[str, EntityReadings]
    signature: str | None  # of files: names, sizes and modification times; None for objects


@contextmanager
def entities_of(
    data: object, by: str | None, options: ReadOptions, scratch: Path | None = None, verbose: bool = False
) -> Iterator[Entities]:
    """The entities of a table with a column `by`, of a folder of files, of a frame, or of a mapping.

    A table is split into a `scratch` folder, which is kept, or into a temporary one.
    """
    if options.resample is not None:
        parse_resampling(options.resample)
    if isinstance(data, Mapping):
        yield Entities({_checked_name(name): ObjectReadings(value) for name, value in data.items()}, None)
    elif not isinstance(data, str | os.PathLike):
        yield Entities(_from_frame(data, by, options), None)
    else:
        path = Path(os.fspath(data))
        yield from _from_path(path, by, options, scratch, verbose)


def _from_path(
    path: Path, by: str | None, options: ReadOptions, scratch: Path | None, verbose: bool
) -> Iterator[Entities]:
    files = _files(path)
    root = path if path.is_dir() else path.parent
    if by is None:
        if not path.is_dir():
            raise InputError(
                f"'{path}' is one table. Name the column with its entities (--by COLUMN), or pass a folder with one "
                "file per entity."
            )
        yield Entities(_one_each(files, root, options), signature_of(files, [None, options.as_json()]))
        return
    signature = signature_of(files, [by, options.as_json()])
    folders = _hive(files, root, by)
    if folders is not None:
        own = {name: FileReadings(tuple(found), options, without=by) for name, found in folders.items()}
        yield Entities(own, signature)
        return
    with nullcontext(scratch) if scratch is not None else TemporaryDirectory(prefix="cometad-fleet-") as folder:
        reader = options.reader(tuple(files), variables=(by,), text=(by,))
        reader.put_in_order()
        with show_progress("table", verbose) as report:
            split = split_table(reader, by, Path(folder), signature, options.dialect, report=report)
        rows = {name: SplitReadings(name, Path(folder, DATA), segments, options) for name, segments in split.items()}
        yield Entities(rows, signature)


def signature_of(files: list[Path], more: object) -> str:
    """A hash of the names, sizes and modification times of files, and of `more`."""
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([more, facts]).encode()).hexdigest()[:32]


def data_signature(data: object, by: str | None, options: ReadOptions) -> str | None:
    """The signature of the data, without reading it; None for objects."""
    if not isinstance(data, str | os.PathLike):
        return None
    return signature_of(_files(Path(os.fspath(data))), [by, options.as_json()])


def _files(path: Path) -> list[Path]:
    """The files of a table or a folder; a folder is searched with its subfolders."""
    if str(path) == "-":
        raise InputError("A fleet is read from files, not from standard input. Pass a file or a folder.")
    if not path.is_dir():
        return check_source(path)
    try:
        found = [file for file in path.rglob("*") if _is_table(file, path)]
    except OSError as error:
        raise InputError(f"'{path}' cannot be read ({error.strerror}). Pass a folder of readings.") from error
    if not found:
        raise InputError(f"'{path}' is a folder without tables ({', '.join(SUFFIXES)}). Pass a file of readings.")
    return sorted(found, key=by_name)


def _is_table(file: Path, root: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
    if hidden or not file.name.lower().endswith(SUFFIXES):
        return False
    return status_of(file) is not None and file.is_file()


def _one_each(files: list[Path], root: Path, options: ReadOptions) -> dict[str, EntityReadings]:
    names = {file: _entity_of(file, root) for file in files}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        which = [str(file.name) for file, name in names.items() if name == twice[0]]
        raise InputError(
            f"Two files in '{root}' name the same entity {twice[0]!r}: '{which[0]}' and '{which[1]}'. Rename or remove "
            "one of them."
        )
    return {names[file]: FileReadings((file,), options) for file in sorted(files, key=names.__getitem__)}


def _entity_of(file: Path, root: Path) -> str:
    """The path of a file below the folder, without its suffix: a/pump.csv is a/pump."""
    relative = file.relative_to(root)
    return relative.with_name(relative.name[: -len(suffix_of(file))] or relative.name).as_posix()


def _hive(files: list[Path], root: Path, by: str) -> dict[str, list[Path]] | None:
    """Files by entity, if folders name the entities, as in machine=7/part-0.parquet; None otherwise."""
    found: dict[str, list[Path]] = {}
    for file in files:
        parts = dict(part.split("=", 1) for part in file.relative_to(root).parts[:-1] if "=" in part)
        if by not in parts:
            return None
        if parts[by] in ("", UNNAMED):
            raise InputError(f"The folder of '{file}' names no entity. Every reading needs one.")
        found.setdefault(unquote(parts[by]), []).append(file)
    return {name: found[name] for name in sorted(found)}


def _from_frame(data: object, by: str | None, options: ReadOptions) -> dict[str, EntityReadings]:
    import narwhals as nw

    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise ParameterError(
            f"Cannot read a fleet from a {type(data).__name__}. Pass a path, a frame with by=COLUMN, or a mapping from "
            "names to readings."
        )
    if by is None:
        raise ParameterError("A frame needs an entity column. Name it with by=COLUMN.")
    part = Part(frame.to_polars().drop(options.drop), lambda row: f"row {row + 1}")
    return {name: CarriedReadings(f"entity {name!r}", rows, options) for name, rows in by_entity(part, by, "the frame")}


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ParameterError(f"The name of an entity must be non-empty text. Got {name!r} instead.")
    return name
