"""Results as append-only JSON lines: one trial per line, with everything needed to repeat it, or with its error.

A result has these fields; those marked with * make up its `identity`.

    experiment*, dataset*, entity*   what was run, on which series ("all": the entities joined end to end)
    fingerprint*                     of that series
    arm*, seed*, setting*            the row of a table, and how the experiment changed the series, if at all
    detector*, hyper_parameters*     the detector and all its parameters (the device is not part of the identity)
    parameters                       how many numbers it learned, or null
    fit_seconds, score_seconds, device, threads, versions, when
    start_bytes, peak_bytes          memory in use when the trial started, and at its peak; results without start_bytes
                                     are older, and their peak includes what earlier trials left behind
    source                           fingerprint of this package's source code; the oldest results have none
    metrics                          the nine metrics, as fractions
    untied                           VUS-PR with ties of scores broken at random; older results have none
    window                           tsb-ad only: the widest window of VUS
    at_threshold                     figures at the 99 % quantile of the training scores
    adapting, fixed, moved           drift only, instead of both: figures with and without adaptation, and the change
    points                           embedding only, instead of both: coordinates of patches and codes
    error                            null, or one line on why the trial failed; then there are no figures

Parameters are stored once, in a line of their own, which must come before the results that refer to it:

    {"kind": "arm", "id": "5d0c...", "hyper_parameters": {"neighbors": 10, ...}}
    {"experiment": "main", ..., "hyper_parameters": {"arm": "5d0c...", "seed": 0}, ...}

New lines go to `NAME.jsonl`. `Results.pack` moves them into `NAME.jsonl.gz`; both files together are the results.

The source fingerprint is not part of the identity: after changing a detector, start a new folder or delete its lines.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from cometad.errors import InputError, OutputError
from cometad.files import write_whole

Record = dict[str, Any]
# The fields that every result must have: those that identify the trial, and its error.
IDENTITY = (
    *("experiment", "dataset", "entity", "fingerprint", "arm", "seed", "setting", "detector", "hyper_parameters"),
    "error",
)
_TYPES = {"seed": int, "setting": dict, "hyper_parameters": dict}
_ARM = '{"kind": "arm", '  # how a line with the parameters of an arm starts
Key = tuple[str, str, str, str, int, str]


def key(record: Record) -> Key:
    setting = json.dumps(record["setting"], sort_keys=True)
    return (*(record[name] for name in ("experiment", "dataset", "entity", "arm", "seed")), setting)


def identity(record: Record) -> str:
    """Return the text that identifies a trial: its series, detector, parameters, seed and setting."""
    given = record["hyper_parameters"]
    parameters = {name: value for name, value in given.items() if name not in ("device", "verbose")}
    if "threshold_quantile" in parameters:  # results from before threshold rules
        rate = round(1 - parameters.pop("threshold_quantile"), 12)
        parameters["threshold"] = {"kind": "Quantile", "rate": rate}
    parameters.setdefault("gaps", {"kind": "RefuseGaps"})  # results from before gap rules
    normalization = parameters.get("normalization")
    if isinstance(normalization, dict) and normalization.get("kind") == "EmaMinMax":  # and from before `windows`
        parameters["normalization"] = {"windows": None, **normalization}
    return json.dumps([key(record), record["fingerprint"], record["detector"], parameters], sort_keys=True)


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the last successful result of each cell, in the order in which the cells first succeeded."""
    return list({key(record): record for record in records if record["error"] is None}.values())


def failed(records: Iterable[Record]) -> list[Record]:
    """Return the last attempt of each cell that never succeeded."""
    attempts = list(records)
    succeeded = {key(record) for record in latest(attempts)}
    return list({key(record): record for record in attempts if key(record) not in succeeded}.values())


@contextmanager
def writing(what: str, other: str = "another") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"Cannot write {what}: {error.strerror or error}. Choose {other} folder.") from error


class Results:
    """The results of one experiment. Several processes may append to them at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.packed = self.path.with_name(f"{self.path.name}.gz")
        self._locks = self.path.parent / ".locks"
        self._arms: dict[str, Record] = {}  # parameters by id, from the lines that `new` has read
        self._stored: set[str] = set()  # ids known to be in the files
        self._bytes = self._lines = 0  # how much `new` has read
        self._unpacked: tuple[object, bytes] = (None, b"")  # the packed file's inode, time and size, and its content

    def read(self) -> list[Record]:
        """Return all results so far. A last line cut off by a killed process is ignored."""
        return Results(self.path).new()

    def new(self) -> list[Record]:
        """Return the results added since the last call, by this or any other process."""
        text = self._text()
        fresh = text[self._bytes :]
        records = []
        for number, line in enumerate(fresh.split(b"\n")[:-1], start=self._lines + 1):
            try:
                record = self._parsed(line)
            except ValueError as error:
                raise InputError(f"{self._place(number)} is not a result: {error}. Remove that line.") from error
            if record is not None:
                records.append(record)
        self._bytes, self._lines = len(text), self._lines + fresh.count(b"\n")
        return records

    def append(self, record: Record) -> None:
        with self.lock("append"), writing(f"'{self.path}'"):
            self._end_last_line()
            lines = self._lines_of(record)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())

    def pack(self) -> None:
        """Move all lines into the compressed file. Other processes may keep reading and appending."""
        if not self.path.exists():
            return
        with self.lock("append"):
            self._end_last_line()
            self.read()  # raises an error if a line is not a result
            text = self._text()
            if text:
                write_whole(self.packed, lambda temporary: temporary.write_bytes(gzip.compress(text, mtime=0)))
            self.path.unlink(missing_ok=True)

    def check_writable(self) -> None:
        with writing(f"'{self.path}'", "a writable"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.lock("append"):
                is_new = not self.path.exists()
                self.path.open("a").close()
                if is_new:
                    self.path.unlink()

    def lock(self, name: str) -> FileLock:
        with writing(f"to '{self.path.parent}'"):
            self._locks.mkdir(parents=True, exist_ok=True)
        return FileLock(self._locks / f"{self.path.stem}-{name}.lock")

    # --- reading ------------------------------------------------------------------------------------------------------

    def _text(self) -> bytes:
        """Return all whole lines, packed ones first. As results are added and packed, this text only grows."""
        # In this order: lines packed in between then appear twice, which `_overlap` removes, and are never missed.
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            content = b""
        packed = self._unpack()
        tail = content[: content.rfind(b"\n") + 1]  # without a line that is still being written
        return packed + tail[_overlap(packed, tail) :]

    def _unpack(self) -> bytes:
        """Return the content of the packed file, decompressed again only if the file has changed."""
        if not self.packed.exists():
            return b""
        status = self.packed.stat()
        state = status.st_ino, status.st_mtime_ns, status.st_size
        if self._unpacked[0] != state:
            try:
                self._unpacked = state, gzip.decompress(self.packed.read_bytes())
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"'{self.packed}' is damaged ({error}). Restore it from a copy.") from error
        return self._unpacked[1]

    def _parsed(self, line: bytes) -> Record | None:
        record = _checked(json.loads(line))
        parameters = record["hyper_parameters"]
        if _is_arm(record):
            self._arms[record["id"]] = parameters
            return None
        if "arm" not in parameters:  # written before parameters were stored once, or without any
            return record
        own = dict(parameters)
        shared = own.pop("arm")
        if shared not in self._arms:
            raise ValueError(f"no line before it holds the parameters {shared!r}")
        return record | {"hyper_parameters": self._arms[shared] | own}

    def _place(self, number: int) -> str:
        packed = self._unpack().count(b"\n")
        return f"Line {number} of '{self.packed}'" if number <= packed else f"Line {number - packed} of '{self.path}'"

    # --- writing ------------------------------------------------------------------------------------------------------

    def _lines_of(self, record: Record) -> str:
        """Return the line of a result, after one with its parameters unless they are stored already."""
        own = dict(record["hyper_parameters"])
        seed = {"seed": own.pop("seed")} if "seed" in own else {}
        if not own:
            return json.dumps(record, allow_nan=False) + "\n"
        reference = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]
        line = json.dumps(record | {"hyper_parameters": {"arm": reference, **seed}}, allow_nan=False) + "\n"
        if reference not in self._stored:
            arms = [text for text in self._text().split(b"\n") if text.startswith(_ARM.encode())]
            self._stored |= {json.loads(text)["id"] for text in arms}
        if reference in self._stored:
            return line
        self._stored.add(reference)
        return json.dumps({"kind": "arm", "id": reference, "hyper_parameters": own}, allow_nan=False) + "\n" + line

    def _end_last_line(self) -> None:
        """Complete the last line: add a missing newline, or remove the fragment that a killed process left behind."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if _is_whole(content[whole:]):
                file.write(b"\n")
            else:
                file.truncate(whole)


def _overlap(packed: bytes, tail: bytes) -> int:
    """Return how many bytes at the start of the tail are packed already: packing was interrupted or is in progress."""
    start = packed.rfind(tail[: tail.find(b"\n") + 1]) if tail else -1
    if start < 0:
        return 0
    end = packed[start:]
    return min(len(end), len(tail)) if tail.startswith(end) or end.startswith(tail) else 0


def _is_arm(record: Record) -> bool:
    return record.get("kind") == "arm"


def _checked(record: object) -> Record:
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    for name in ("id", "hyper_parameters") if _is_arm(record) else IDENTITY:
        if name not in record:
            raise ValueError(f"it has no {name!r}")
    for name, kind in _TYPES.items():
        if name in record and not isinstance(record[name], kind):
            raise ValueError(f"its {name!r} is {record[name]!r}")
    return record


def _is_whole(line: bytes) -> bool:
    try:
        _checked(json.loads(line))
    except ValueError:
        return False
    return True
