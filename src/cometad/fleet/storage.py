"""The folder of a fleet: a manifest, a journal of later changes, and packs with the saved detectors.

    fleet.json         format, detector, parameters and how the readings were read
    manifest.parquet   one row per entity
    journal.jsonl      rows that replace or extend those of the manifest, one per line; usually empty
    pack-00001.bin     saved detectors, concatenated; the manifest has the position of each

A detector is appended to a pack and synced, then its row is appended to the journal and synced: a row never refers to
bytes that are not on disk. If a killed process left bytes after a pack's last row, the next writer cuts them off. A
finished run folds the journal into the manifest, which is replaced atomically.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from cometad.errors import ModelFileError, OutputError
from cometad.files import lock, status_of, write_whole

FORMAT = 1
ABOUT, MANIFEST, JOURNAL, LOCK, SCRATCH = "fleet.json", "manifest.parquet", "journal.jsonl", ".lock", ".scratch"
PACK = 64 * 2**20  # size at which the next pack begins
BATCH, PATIENCE = 64, 1.0  # rows and seconds to wait before syncing together
WASTE = 2**20  # tolerated bytes of replaced detectors

_PACK = re.compile(r"pack-(\d{5,})\.bin")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the manifest: an entity and its detector, or why it has none."""

    name: str
    status: str  # "fitted" or "failed"
    error: str | None = None
    detector: str | None = None  # class name
    parameters: str | None = None  # JSON
    variables: tuple[str, ...] = ()
    readings: int | None = None  # used to fit
    fingerprint: str | None = None  # of these readings
    threshold: float | None = None
    seconds: float = 0.0  # of the fit
    donors: tuple[str, ...] = ()  # entities it borrowed readings from
    source: str | None = None  # signature of the files and of the settings
    pack: int | None = None
    offset: int | None = None
    length: int | None = None
    sha256: str | None = None

    @property
    def is_fitted(self) -> bool:
        return self.status == "fitted"


_DTYPES: dict[Any, Any] = {
    **dict.fromkeys((str, str | None), pl.String),
    **dict.fromkeys((float, float | None), pl.Float64),
    int | None: pl.Int64,
    tuple[str, ...]: pl.List(pl.String),
}
SCHEMA = {field.name: _DTYPES[field.type] for field in fields(Entry)}


def entry_of(row: Mapping[str, Any]) -> Entry:
    """An entry from a row of the manifest or a line of the journal."""
    known: dict[str, Any] = {name: row.get(name) for name in SCHEMA}
    parameters = known["parameters"]
    known["parameters"] = None if parameters is None else sys.intern(parameters)  # identical in most rows
    known["variables"] = _interned(tuple(known["variables"] or ()))
    known["donors"] = tuple(known["donors"] or ())
    return Entry(**known)


@lru_cache(maxsize=1024)
def _interned(names: tuple[str, ...]) -> tuple[str, ...]:
    """One shared tuple for equal ones, because most entities have the same variables."""
    return names


def manifest_of(entries: Mapping[str, Entry]) -> pl.DataFrame:
    rows = [entries[name] for name in sorted(entries)]
    return pl.DataFrame({field: [getattr(row, field) for row in rows] for field in SCHEMA}, schema=SCHEMA)


class FleetFolder:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def is_fleet(self) -> bool:
        return (self.path / ABOUT).is_file()

    @property
    def about(self) -> dict[str, Any]:
        if not self.is_fleet:
            raise ModelFileError(
                f"'{self.path}' is not the folder of a fleet. Create one with cometad fleet fit DATA --by COLUMN -o "
                "FOLDER."
            )
        try:
            about = json.loads((self.path / ABOUT).read_text("utf-8"))
            number = about["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(ABOUT) from error
        if number > FORMAT:
            raise ModelFileError(
                f"'{self.path}' was written by a newer cometad (format {number}; this one reads format {FORMAT}). "
                "Upgrade cometad."
            )
        return dict(about)

    def entries(self) -> dict[str, Entry]:
        """The rows by name: those of the manifest, updated from the journal."""
        while True:
            before = self._manifest_status()
            found = self._rows()
            if self._manifest_status() == before:  # otherwise a writer has just folded the journal into a new manifest
                return found

    def _manifest_status(self) -> tuple[int, int, int] | None:
        status = status_of(self.path / MANIFEST)
        return None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)

    def _rows(self) -> dict[str, Entry]:
        rows: Iterable[Mapping[str, Any]] = ()
        if (self.path / MANIFEST).exists():
            try:
                rows = pl.read_parquet(self.path / MANIFEST).select(list(SCHEMA)).iter_rows(named=True)
            except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise self._damaged(MANIFEST) from error
        return {row["name"]: entry_of(row) for row in chain(rows, self._journaled())}

    def _journaled(self) -> Iterator[Mapping[str, Any]]:
        try:
            lines = (self.path / JOURNAL).read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for number, line in enumerate(lines):
            try:
                if line.strip(b"\0"):  # a power failure may leave zeros
                    yield json.loads(line)
            except ValueError as error:
                if number < len(lines) - 1:  # only the last line may be cut off
                    raise self._damaged(JOURNAL) from error

    def pack(self, number: int) -> Path:
        return self.path / f"pack-{number:05}.bin"

    def packs(self) -> dict[int, Path]:
        found = ((_PACK.fullmatch(file.name), file) for file in self.path.iterdir())
        return {int(match[1]): file for match, file in found if match}

    def content(self, entry: Entry) -> bytes:
        """The saved detector of an entry; refuses damaged bytes."""
        if entry.pack is None or entry.offset is None or entry.length is None:
            raise ModelFileError(f"The entity {entry.name!r} has no detector: {entry.error}")
        try:
            with self.pack(entry.pack).open("rb") as file:
                file.seek(entry.offset)
                content = file.read(entry.length)
        except OSError as error:
            raise ModelFileError(
                f"Cannot read '{self.pack(entry.pack)}': {error.strerror}. Restore the fleet from a backup, or fit it "
                "again."
            ) from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise ModelFileError(
                f"The detector of {entry.name!r} in '{self.pack(entry.pack)}' is damaged: it does not match its "
                "SHA-256. Restore the fleet from a backup, or fit that entity again with --refit."
            )
        return content

    def _damaged(self, name: str) -> ModelFileError:
        return ModelFileError(
            f"'{self.path / name}' is damaged. Restore the fleet from a backup, or fit it again in another folder."
        )


class FleetWriter:
    """Changes the folder of a fleet; only one process at a time."""

    def __init__(self, folder: FleetFolder) -> None:
        self.folder = folder
        self.entries = folder.entries() if folder.is_fleet else {}
        self._waiting: list[tuple[Entry, bytes | None]] = []
        self._since = time.monotonic()
        self._number, self._end = self._cut()

    def describe(self, about: Mapping[str, Any]) -> None:
        text = json.dumps({"format": FORMAT, **about}, indent=2, ensure_ascii=False)
        write_whole(self.folder.path / ABOUT, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))

    def add(self, entry: Entry, content: bytes | None = None) -> None:
        """Store an entry and its saved detector, replacing an earlier one of the same name."""
        self._waiting.append((entry, content))
        if len(self._waiting) >= BATCH or time.monotonic() - self._since >= PATIENCE:
            self.flush()

    def flush(self) -> None:
        """Write everything added to disk: detectors first, then their rows."""
        with _disk_errors(self.folder.path):
            rows = [self._packed(entry, content) for entry, content in self._waiting]
            if any(content is not None for _, content in self._waiting):
                self._sync(self.folder.pack(self._number))
            if rows:
                self._journal("".join(json.dumps(asdict(row)) + "\n" for row in rows).encode())
        self._waiting, self._since = [], time.monotonic()
        self.entries |= {row.name: row for row in rows}

    def _packed(self, entry: Entry, content: bytes | None) -> Entry:
        if content is None:
            return entry
        if self._end >= PACK:
            self._sync(self.folder.pack(self._number))
            self._number, self._end = self._number + 1, 0
        with self.folder.pack(self._number).open("ab") as file:
            if file.tell() != self._end:  # left by an earlier attempt that ran out of disk space
                file.truncate(self._end)
            file.write(content)
        place: dict[str, Any] = {"pack": self._number, "offset": self._end, "length": len(content)}
        self._end += len(content)
        return replace(entry, **place, sha256=hashlib.sha256(content).hexdigest())

    def _journal(self, lines: bytes) -> None:
        path = self.folder.path / JOURNAL
        with path.open("ab") as file:
            begin = file.tell()
            try:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:  # including an interrupt: half a line would make the rest unreadable
                with suppress(OSError):
                    file.close()
                os.truncate(path, begin)
                raise

    def _sync(self, path: Path) -> None:
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def _cut(self) -> tuple[int, int]:
        """Cut off bytes that no row refers to; returns the pack to append to and its end."""
        ends: Counter[int | None] = Counter()
        for entry in self.entries.values():
            ends[entry.pack] = max(ends[entry.pack], (entry.offset or 0) + (entry.length or 0))
        found, journal = self.folder.packs(), self.folder.path / JOURNAL
        with _disk_errors(self.folder.path):
            for number, path in found.items():
                if path.stat().st_size > ends[number]:
                    os.truncate(path, ends[number])
            if journal.exists():
                os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
        last = max(found, default=1)
        return last, ends[last]

    def remove(self, name: str) -> None:
        self.flush()
        del self.entries[name]
        self.settle()

    def settle(self) -> None:
        """Fold the journal into the manifest, and rewrite packs that are mostly unused."""
        self.flush()
        with _disk_errors(self.folder.path):
            wasteful = self._wasteful()
            if wasteful:
                self._rewrite(wasteful)
            frame = manifest_of(self.entries)
            write_whole(self.folder.path / MANIFEST, lambda temporary: frame.write_parquet(temporary))
            (self.folder.path / JOURNAL).unlink(missing_ok=True)
            for number in wasteful:
                self.folder.pack(number).unlink(missing_ok=True)

    def _wasteful(self) -> list[int]:
        """The packs with more unused than used bytes, beyond the tolerance."""
        used: Counter[int | None] = Counter()
        for entry in self.entries.values():
            used[entry.pack] += entry.length or 0
        sizes = {number: path.stat().st_size for number, path in self.folder.packs().items()}
        return [number for number, size in sizes.items() if size - used[number] > max(WASTE, used[number])]

    def _rewrite(self, wasteful: list[int]) -> None:
        """Copy the detectors of wasteful packs to a new one; the old ones are deleted after the manifest is written."""
        self._number, self._end = max(self.folder.packs()) + 1, 0
        moved = [entry for entry in self.entries.values() if entry.pack in wasteful]
        rows = [self._packed(entry, self.folder.content(entry)) for entry in moved]
        if rows:
            self._sync(self.folder.pack(self._number))
        self.entries |= {row.name: row for row in rows}


@contextmanager
def writing(folder: FleetFolder) -> Iterator[FleetWriter]:
    """A writer of a folder, which is created if necessary; refuses one that another process is writing to."""
    with _disk_errors(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        file = os.open(folder.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not lock(file):
            raise OutputError(f"Another process is writing to '{folder.path}'. Wait for it, or choose another folder.")
        writer = FleetWriter(folder)
        try:
            yield writer
        finally:
            writer.flush()  # even after an interrupt
    finally:
        os.close(file)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"Cannot write to '{path}': {error.strerror or error}. Choose a writable folder with enough free "
            "space; the same command resumes where it stopped."
        ) from error
