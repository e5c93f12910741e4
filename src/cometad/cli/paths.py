"""Checks of output paths before any work starts: nobody's data is overwritten, and the folder can be written."""

import glob
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cometad.errors import OutputError, ParameterError
from cometad.files import status_of

_HEAD = 1 << 16  # bytes that show what a file is
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Output(NamedTuple):
    """A file to write, and what this command writes there: a key of `KINDS`."""

    path: Path | None  # None if the user did not ask for it
    kind: str


def check_outputs(outputs: Sequence[Output], inputs: Iterable[Path] = (), force: bool = False) -> None:
    """Refuse outputs that cannot be written, that are an input or each other, or that would replace something else.

    Paths are compared by the file they lead to, so links do not help. Standard input and output count too, and all
    files of an input that is a folder or a pattern. `force` allows replacing a file of another kind or one that is
    read-only, never an input.
    """
    from cometad.data.table_sources import names_behind, would_mean

    wanted = [(output.path, output.kind) for output in outputs if output.path is not None]
    meant = {path: names_behind(path) or [] if _is_several(path) else [path] for path in inputs}
    sources = [(f"'{file}'", _status(file)) for files in meant.values() for file in files]
    sources.append(("on standard input", _redirected(sys.stdin)))
    printed = _redirected(sys.stdout)
    for name, status in sources:
        if _same(status, printed):
            raise OutputError(f"Standard output is redirected to the input {name}. Choose another file.")
    for number, (path, kind) in enumerate(wanted):
        check_writable(path)
        own = _status(path)
        for name, status in sources:
            if _same(own, status):
                raise OutputError(f"The output '{path}' would overwrite the input {name}. Choose another file.")
        for each in meant if own is None else ():
            if _is_several(each) and would_mean(each, path):
                raise OutputError(
                    f"The output '{path}' would itself be one of the inputs '{each}' the next time. Choose another "
                    "folder."
                )
        others = [(_status(other), os.path.realpath(other)) for other, _ in wanted[:number]]
        if _same(own, printed) or any(_same(own, other) or os.path.realpath(path) == place for other, place in others):
            raise OutputError(f"Two outputs cannot both go to '{path}'. Choose another file for one of them.")
        if own is not None and not force and not (own.st_mode & _WRITABLE and os.access(path, os.W_OK)):
            raise OutputError(f"'{path}' is read-only. Choose another file, or pass --force to replace it.")
        if own is not None and not force and not is_ours(path, kind):
            raise OutputError(
                f"'{path}' exists and is not {KINDS[kind].name} written by cometad. Choose another file, or pass "
                "--force to overwrite it."
            )


def check_ending(path: Path, *endings: str) -> None:
    if path.suffix.lower() not in endings:
        raise ParameterError(f"The name '{path}' does not end in {endings[0]}. Choose a name that does.")


def check_writable(path: Path) -> None:
    try:
        status = status_of(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise OutputError(f"Cannot write '{path}': it is a folder. Pass the name of a file in it.")
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise OutputError(f"Cannot write '{path}': it is not a regular file. Choose another name.")
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        raise OutputError(
            f"Cannot write '{path}': {error.strerror or error}. Choose a folder that exists, is writable and has space."
        ) from error


def _is_several(path: Path) -> bool:
    status = _status(path)
    return glob.has_magic(str(path)) if status is None else stat.S_ISDIR(status.st_mode)


def is_ours(path: Path, kind: str) -> bool:
    """Whether a file is empty or, by its content, of a kind that cometad writes."""
    try:
        return path.stat().st_size == 0 or KINDS[kind].recognize(path)
    except OSError:
        return False


class FileKind(NamedTuple):
    """A kind of file that cometad writes, in words, and how to recognize one."""

    name: str
    recognize: Callable[[Path], bool]


def _contains(*marks: bytes) -> Callable[[Path], bool]:
    return lambda path: any(mark in head(path) for mark in marks)


def _has_columns(*first: str, also: set[str]) -> Callable[[Path], bool]:
    def recognize(path: Path) -> bool:
        columns = _columns(path)
        return tuple(columns[: len(first)]) == first and also <= set(columns)

    return recognize


def _holds(is_that_kind: Callable[[str], bool]) -> Callable[[Path], bool]:
    def recognize(path: Path) -> bool:
        from cometad.checkpoint import kind_of

        return is_that_kind(kind_of(path))

    return recognize


def _is_answers(path: Path) -> bool:
    line, end, _ = head(path).partition(b"\n")
    if not end:  # killed in its first line
        return line[: len(_FIRST)] == _FIRST[: len(line)]
    first = _object(line)
    return next(iter(first), "") == "step" and not first.keys().isdisjoint(_ANSWER)


_FIRST = b'{"step": '
_ANSWER = ("alert_score", "score", "events")

KINDS = {
    "detector": FileKind("a detector", _holds(lambda kind: kind not in ("", "stream snapshot", "Stream"))),
    "snapshot": FileKind("a snapshot of a stream", _holds(lambda kind: kind == "stream snapshot")),
    "scores": FileKind("a table of scores", _has_columns("step", also={"score", "anomaly"})),
    "events": FileKind("a table of events", _has_columns("number", also={"start", "stop", "peak", "severity"})),
    "fleet scores": FileKind("a table of scores of a fleet", _has_columns("entity", "step", also={"score", "anomaly"})),
    "overview": FileKind(
        "an overview of a fleet", _contains(b'<meta name="generator" content="cometad fleet report">')
    ),
    "answers": FileKind("the output of a stream", _is_answers),
    # Reports of 0.1 have no generator tag, only this heading.
    "report": FileKind(
        "a report", _contains(b'<meta name="generator" content="cometad report">', "<p>cometad report ·".encode())
    ),
    # Field 2 of the message, right after the version: the name of the producer.
    "onnx": FileKind("an ONNX file", lambda path: b"\x12\x07cometad" in head(path)[:16]),
    "picture": FileKind("a picture", _contains(b"Software\0cometad")),
}


def head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def _columns(path: Path) -> list[str]:
    """The column names of a CSV, Parquet or JSON lines file; empty if it is none of them."""
    start = head(path)
    if start.startswith(b'{"'):
        return list(_object(start.partition(b"\n")[0]))
    if not start.startswith(b"PAR1"):
        return start.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    import polars as pl

    try:
        return list(pl.read_parquet_schema(path))
    except pl.exceptions.PolarsError:
        return []


def _object(line: bytes) -> dict[str, Any]:
    """A JSON object; empty if the line is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def _redirected(stream: TextIO) -> os.stat_result | None:
    """The file that standard input or output is redirected to, if any."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return None
    return status if stat.S_ISREG(status.st_mode) else None
