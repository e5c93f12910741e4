"""Files of lines that a later run continues."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cometad.errors import OutputError
from cometad.files import lock
from cometad.saving import counted, of_type

TAIL = 4096  # bytes before a position, by which the file is recognized
BEGIN = b'{"step": '  # of each line


def checked_position(position: object) -> Mapping[str, Any] | None:
    """A saved position of an `OutputFile`, or None if there is none."""
    if position is None:
        return None
    saved: Mapping[str, Any] = of_type(position, dict, "position in the output")
    counted(saved.get("bytes"), "bytes")
    of_type(saved.get("tail"), str, "tail")
    return saved


class OutputFile:
    r"""Appends lines to a file at once; from a saved position on, they can be written again."""

    def __init__(self, path: Path, position: Mapping[str, Any] | None = None, overwrite: bool = False) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._failed(error) from error
        try:
            if not lock(self._file):
                raise OutputError(f"Another stream is writing to '{path}'. Stop it first, or choose another file.")
            if overwrite:
                self._cut(0)
            self.continues = not overwrite and self._size() > 0  # an empty file is a new one
            if self.continues:
                self._go_back(position)
            os.lseek(self._file, 0, os.SEEK_END)
        except BaseException:
            self.close()
            raise

    def write(self, text: str) -> None:
        content = memoryview(text.encode())
        try:
            while content:
                content = content[os.write(self._file, content) :]
        except OSError as error:
            raise self._failed(error) from error

    def position(self) -> dict[str, Any]:
        """Make sure that everything is on disk, and return the end of the file to save as JSON."""
        try:
            os.fsync(self._file)
            size = self._size()
            return {"bytes": size, "tail": self._tail(size)}
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        os.close(self._file)

    def _go_back(self, position: Mapping[str, Any] | None) -> None:
        size = self._size() + 1 if position is None else int(position["bytes"])
        if position is None or self._size() < size or self._tail(size) != position["tail"]:
            raise OutputError(
                f"'{self._path}' is not the output that belongs to the snapshot. Pass the file that this stream wrote "
                "before, or a new one."
            )
        self._check_rest(size)
        self._cut(size)

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise self._failed(error) from error

    def _check_rest(self, size: int) -> None:
        """Refuse to cut off lines that no stream wrote."""
        with self._path.open("rb") as file:
            file.seek(size)
            for line in file:
                text = line.strip(b"\0\n")  # a power failure may leave zeros
                if text[: len(BEGIN)] != BEGIN[: len(text)]:
                    shown = text.decode(errors="replace")[:60]
                    raise OutputError(
                        f"'{self._path}' has a line after the snapshot that the stream did not write: {shown!r}. Move "
                        "it to another file."
                    )

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def _tail(self, size: int) -> str:
        """A hash of the bytes before a position."""
        count = min(size, TAIL)
        return hashlib.sha256(os.pread(self._file, count, size - count)).hexdigest()

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(
            f"Cannot write '{self._path}': {error.strerror or error}. Free some space or write elsewhere, then send "
            "the readings again."
        )


class AnswersFile(OutputFile):
    r"""Appends the lines of many streams; those that the file has already are left out."""

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self._known: dict[str, list[tuple[int, float]]] = {}  # by stream: the first and the last line
        super().__init__(path, overwrite=overwrite)

    def write_lines(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines that the file does not have."""
        self.write("".join(f"{json.dumps(line)}\n" for line in lines if self._is_new(line)))

    def _is_new(self, line: Mapping[str, Any]) -> bool:
        known = self._known.get(line["stream"])
        if known is None:
            return True
        if any(step == line["step"] and time != line["time"] for step, time in known):
            raise OutputError(
                f"'{self._path}' has other readings of the stream {line['stream']!r}. Choose another file, or pass "
                "--force to overwrite it."
            )
        return bool(line["step"] > known[1][0])

    def _go_back(self, position: Mapping[str, Any] | None) -> None:
        """Learn what the file has, and cut off a line that is not complete."""
        size = 0
        with self._path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    break
                try:
                    line = json.loads(text)
                    own = (int(line["step"]), float(line["time"]))
                    first, _ = self._known.get(str(line["stream"]), (own, own))
                except (ValueError, TypeError, KeyError) as error:
                    raise OutputError(
                        f"Line {number} of '{self._path}' was not written by cometad connect. Choose another file, or "
                        "pass --force to overwrite it."
                    ) from error
                self._known[str(line["stream"])] = [first, own]
                size += len(text)
        self._cut(size)
