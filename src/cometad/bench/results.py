"""Results as append-only JSON lines: one trial each, with all that is needed to repeat it, or with its error.

A line has these fields; `identity` is made of those marked with *.

    experiment*, dataset*, entity*   what was asked, of which series ("all": entities one after the other)
    fingerprint*                     of that series
    arm*, seed*, setting*            the row of a table; and, where an experiment has such, what was done to the series
    detector*, hyper_parameters*     the detector and all its parameters (the device is not part of the identity)
    parameters                       how many numbers it learned, or null
    fit_seconds, score_seconds, peak_bytes, device, threads, versions, when
    source                           a name for the state of this package's code; the oldest lines have none
    metrics                          the nine metrics, as fractions
    at_threshold                     figures at the 99 % quantile of the training scores
    adapting, fixed, moved           of drift, in place of both: figures with and without adaptation, and between them
    points                           of embedding, in place of both: where its patches and codes lie
    error                            null, or one line that says why it failed; then there are no figures

The state of the code is no part of the identity: after a change to a detector begin a new folder, or take out its
lines.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

from cometad.errors import InputError, OutputError

Record = dict[str, Any]
# What a line must have for anybody to know which trial it is of, and how that ended.
IDENTITY = (
    *("experiment", "dataset", "entity", "fingerprint", "arm", "seed", "setting", "detector", "hyper_parameters"),
    "error",
)
_KINDS = {"seed": int, "setting": dict, "hyper_parameters": dict}  # fields that something is done with
Key = tuple[str, str, str, str, int, str]


def key(record: Record) -> Key:
    """Which cell of which table a result belongs to.

    >>> from cometad.bench.results import key
    >>> key({"experiment": "main", "dataset": "MSL", "entity": "all", "arm": "pca", "seed": 0, "setting": {}})
    ('main', 'MSL', 'all', 'pca', 0, '{}')
    """
    setting = json.dumps(record["setting"], sort_keys=True)
    return (*(record[name] for name in ("experiment", "dataset", "entity", "arm", "seed")), setting)


def identity(record: Record) -> str:
    """What makes a trial this one and no other: the same series, detector, parameters, seed and setting."""
    given = record["hyper_parameters"]
    parameters = {name: value for name, value in given.items() if name not in ("device", "verbose")}
    if "threshold_quantile" in parameters:  # before there were threshold rules
        rate = round(1 - parameters.pop("threshold_quantile"), 12)
        parameters["threshold"] = {"kind": "Quantile", "rate": rate}
    parameters.setdefault("gaps", {"kind": "RefuseGaps"})  # before there were rules for them
    return json.dumps([key(record), record["fingerprint"], record["detector"], parameters], sort_keys=True)


def latest(records: Iterable[Record]) -> list[Record]:
    """The last result of each cell, in the order in which the cells were first filled; failed ones are left out.

    >>> from cometad.bench.results import latest
    >>> cell = {"experiment": "main", "dataset": "MSL", "entity": "all", "arm": "pca", "seed": 0, "setting": {}}
    >>> tries = [cell | {"error": "MemoryError"}, cell | {"error": None, "fit_seconds": 1.0}]
    >>> [result["fit_seconds"] for result in latest(tries)]
    [1.0]
    """
    return list({key(record): record for record in records if record["error"] is None}.values())


def failed(records: Iterable[Record]) -> list[Record]:
    """The last try of each cell that has no result, only errors.

    >>> from cometad.bench.results import failed
    >>> cell = {"experiment": "main", "dataset": "MSL", "entity": "all", "arm": "pca", "seed": 0, "setting": {}}
    >>> [trial["error"] for trial in failed([cell | {"error": "MemoryError"}])]
    ['MemoryError']
    """
    tries = list(records)
    filled = {key(record) for record in latest(tries)}
    return list({key(record): record for record in tries if key(record) not in filled}.values())


class Results:
    """The results in one file. Several processes may append to it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.bench.results import IDENTITY, Results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = Results(Path(folder) / "main.jsonl")
    ...     trial = dict.fromkeys(IDENTITY) | {"seed": 0, "setting": {}, "hyper_parameters": {}}
    ...     results.append(trial | {"dataset": "MSL"})
    ...     [result["dataset"] for result in results.read()]
    ['MSL']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._locks = self.path.parent / ".locks"
        self._read = self._lines = 0  # bytes and lines that `new` gave out

    def read(self) -> list[Record]:
        """All results so far. A line that was cut off when a process was killed does not count."""
        return Results(self.path).new()

    def new(self) -> list[Record]:
        """The results that were added since the last call, by whichever process."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # without an end of line, the end was not written yet
        records = []
        for number, line in enumerate(whole.split(b"\n")[:-1], start=self._lines + 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"Line {number} of '{self.path}' is not a result ({error}). Remove that line."
                ) from error
            problem = _problem(record)
            if problem:
                raise InputError(f"Line {number} of '{self.path}' is not a result: {problem}. Remove that line.")
            records.append(record)
        self._read += len(whole)
        self._lines += whole.count(b"\n")
        return records

    def append(self, record: Record) -> None:
        """Add one result: a whole line, or nothing."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with self.lock("append"):
            try:
                self._end_last_line()
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise OutputError(f"Cannot write '{self.path}': {error.strerror or error}. Choose another.") from error

    def lock(self, name: str) -> FileLock:
        """A lock that only one process holds at a time, and that ends with the process at the latest."""
        try:
            self._locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"Cannot write to '{self.path.parent}': {error.strerror or error}. Choose another folder."
            ) from error
        return FileLock(self._locks / f"{self.path.stem}-{name}.lock")

    def _end_last_line(self) -> None:
        """Take off what a killed process left behind the last end of line; end it where it is a whole result."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if _is_result(content[whole:]):
                file.write(b"\n")
            else:
                file.truncate(whole)


def _problem(record: object) -> str:
    """What is wrong with what should be a result, or nothing."""
    if not isinstance(record, dict):
        return "it is no object"
    for name in IDENTITY:
        if name not in record:
            return f"it has no {name!r}"
    for name, kind in _KINDS.items():
        if not isinstance(record[name], kind):
            return f"its {name!r} is {record[name]!r}"
    return ""


def _is_result(line: bytes) -> bool:
    try:
        return not _problem(json.loads(line))
    except ValueError:
        return False
