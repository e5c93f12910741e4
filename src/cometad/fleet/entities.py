"""The readings of entities: from a table with an entity column, a folder of files, or objects.

Any text can name an entity. A worker opens the readings itself if it shares this disk; otherwise they are sent to it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import polars as pl

from cometad.data.columns import Columns, Matching, Part
from cometad.data.resample import parse_resampling
from cometad.data.table_sources import SUFFIXES, by_name, check_source, suffix_of
from cometad.data.tables import ReadOptions
from cometad.detector import Detector
from cometad.errors import InputError, ParameterError
from cometad.files import status_of
from cometad.fleet.split import DATA, Segments, by_entity, rows_of, split_table
from cometad.progress import show_progress
from cometad.series import Series, as_series, refuse_text, together

UNNAMED = "__HIVE_DEFAULT_PARTITION__"  # folder name that Hive, Spark and pyarrow use for a missing value


class EntityReadings:
    """The readings of one entity; can be sent to another process."""

    def open(self, detector: Detector | None = None) -> Series:
        """The checked series, with the columns of a detector; a missing value is left to the detector to refuse."""
        return self.carried().open(detector)

    def carried(self) -> "EntityReadings":
        """The same with the readings in memory, for a worker that does not share this disk."""
        return self


@dataclass(frozen=True)
class FileReadings(EntityReadings):
    """An entity in one or more files of its own."""

    files: tuple[Path, ...]
    options: ReadOptions
    without: str | None = None  # an entity column that the files may have

    def open(self, detector: Detector | None = None) -> Series:
        reader = self.options.reader(self.files, _variables(detector))
        return _series(reader.whole(_selection(detector, self.without)), self.options)

    def carried(self) -> "CarriedReadings":
        reader = self.options.reader(self.files)
        reader.put_in_order()
        return CarriedReadings(f"'{reader.shown}'", reader.rows().frame, self.options, self.without)


@dataclass(frozen=True)
class SplitReadings(EntityReadings):
    """An entity whose rows were split off a table."""

    name: str
    data: Path
    segments: Segments
    options: ReadOptions

    def carried(self) -> "CarriedReadings":
        return CarriedReadings(f"entity {self.name!r}", rows_of(self.data, self.segments), self.options)


@dataclass(frozen=True)
class CarriedReadings(EntityReadings):
    """An entity whose rows are in memory, as they were in the file."""

    shown: str
    frame: pl.DataFrame
    options: ReadOptions
    without: str | None = None

    def open(self, detector: Detector | None = None) -> Series:
        part = Part(self.frame, lambda row: f"row {row + 1} of {self.shown}")
        time_column, dialect = self.options.time_column, self.options.dialect
        columns = Columns(self.shown, time_column, dialect, variables=_variables(detector))
        frame = _selection(detector, self.without)(columns.apply(part, lambda: [part]))
        for column in frame:
            if column.dtype == pl.String:
                refuse_text(column.name, column, part.where, dialect.decimal)
        return _series(frame, self.options)


@dataclass(frozen=True)
class ObjectReadings(EntityReadings):
    """An entity passed as an array or a frame."""

    value: Any

    def open(self, detector: Detector | None = None) -> Series:
        return as_series(self.value, missing=True)


def _variables(detector: Detector | None) -> tuple[str, ...]:
    return detector.names_ if detector is not None and detector.named_ else ()


def _selection(detector: Detector | None, without: str | None) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Selects the columns of a detector, and never the one that names the entity."""

    def select(frame: pl.DataFrame) -> pl.DataFrame:
        own = frame if without is None else frame.drop(without, strict=False)
        if detector is None or not detector.named_:
            return own
        return Matching(detector.names_, detector.gaps.allowed)(own)

    return select


def _series(frame: pl.DataFrame, options: ReadOptions) -> Series:
    if options.resample is None:
        return as_series(frame, missing=True)
    run = parse_resampling(options.resample).start()
    return together([run.push(frame), run.finish()])


@contextmanager
def entities_of(
    data: object, by: str | None, options: ReadOptions, scratch: Path | None = None, verbose: bool = False
) -> Iterator[Mapping[str, EntityReadings]]:
    """The entities of a table with a column `by`, of a folder of files, of a frame, or of a mapping.

    A table is split into a `scratch` folder, which is kept, or into a temporary one.
    """
    if options.resample is not None:
        parse_resampling(options.resample)
    if isinstance(data, Mapping):
        yield {_checked_name(name): ObjectReadings(value) for name, value in data.items()}
    elif not isinstance(data, str | os.PathLike):
        yield _from_frame(data, by, options)
    else:
        path = Path(os.fspath(data))
        files = _files(path)
        if by is None:
            yield _one_each(files, path, options)
        elif (found := _hive(files, path, by, options)) is not None:
            yield found
        else:
            with nullcontext(scratch) if scratch is not None else TemporaryDirectory(prefix="cometad-fleet-") as folder:
                yield _split(files, by, options, Path(folder), verbose)


def _split(files: list[Path], by: str, options: ReadOptions, folder: Path, verbose: bool) -> dict[str, SplitReadings]:
    reader = options.reader(tuple(files), variables=(by,), text=(by,))
    reader.put_in_order()
    with show_progress("table", verbose) as report:
        split = split_table(reader, by, folder, _signature(files, by, options), options.dialect, report=report)
    return {name: SplitReadings(name, folder / DATA, segments, options) for name, segments in split.items()}


def _signature(files: list[Path], by: str | None, options: ReadOptions) -> str:
    """A hash of the names, sizes and modification times of files, and of how they are read."""
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([[by, options.as_json()], facts]).encode()).hexdigest()[:32]


def data_signature(data: object, by: str | None, options: ReadOptions) -> str | None:
    """The signature of the files of data, without reading them; None for objects."""
    if not isinstance(data, str | os.PathLike):
        return None
    return _signature(_files(Path(os.fspath(data))), by, options)


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


def _one_each(files: list[Path], root: Path, options: ReadOptions) -> dict[str, FileReadings]:
    if not root.is_dir():
        raise InputError(
            f"'{root}' is one table. Name the column with its entities (--by COLUMN), or pass a folder with one file "
            "per entity."
        )
    found: dict[str, FileReadings] = {}
    for file in files:
        relative = file.relative_to(root)  # a/pump.csv is a/pump
        name = relative.with_name(relative.name[: -len(suffix_of(file))] or relative.name).as_posix()
        if name in found:
            raise InputError(
                f"Two files in '{root}' name the same entity {name!r}: '{found[name].files[0].name}' and "
                f"'{file.name}'. Rename or remove one of them."
            )
        found[name] = FileReadings((file,), options)
    return dict(sorted(found.items()))


def _hive(files: list[Path], path: Path, by: str, options: ReadOptions) -> dict[str, FileReadings] | None:
    """The entities, if folders name the entities, as in machine=7/part-0.parquet; None otherwise."""
    root = path if path.is_dir() else path.parent
    found: dict[str, list[Path]] = {}
    for file in files:
        parts = dict(part.split("=", 1) for part in file.relative_to(root).parts[:-1] if "=" in part)
        if by not in parts:
            return None
        if parts[by] in ("", UNNAMED):
            raise InputError(f"The folder of '{file}' names no entity. Every reading needs one.")
        found.setdefault(unquote(parts[by]), []).append(file)
    return {name: FileReadings(tuple(own), options, without=by) for name, own in sorted(found.items())}


def _from_frame(data: object, by: str | None, options: ReadOptions) -> dict[str, CarriedReadings]:
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
