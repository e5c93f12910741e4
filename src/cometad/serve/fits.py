"""Fits in the background: each in a process of its own, so that scoring goes on, and one after the other."""

import queue
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from cometad.errors import CometadError, OutputError

MISTAKE = 2  # exit code of the command line for bad input
_DONE = re.compile(r"(\d+)/(\d+)")  # progress, as the command line prints it

_log = structlog.get_logger("cometad.serve")


class _FitJob(NamedTuple):
    name: str
    file: Path  # readings to fit on, deleted afterwards
    options: Sequence[str]  # of `cometad fit`


class FitQueue:
    """Fits detectors with `cometad fit`; `done` gets the name and the saved detector, `failed` the name and why.

    `folder` holds what is being fitted on.
    """

    def __init__(self, folder: Path, done: Callable[..., object], failed: Callable[[str, str], None]) -> None:
        self._folder, self._done, self._failed = folder, done, failed
        self._jobs: queue.Queue[_FitJob | None] = queue.Queue()
        self._progress: dict[str, float] = {}
        self._running: tuple[str, subprocess.Popen[str]] | None = None
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="cometad-fitting", daemon=True)
        self._thread.start()

    def clean_up(self) -> None:
        """Delete what a service that was killed left behind."""
        for file in self._folder.glob("*"):
            file.unlink(missing_ok=True)

    def keep(self, body: bytes, suffix: str) -> Path:
        """Write a table to a file, to fit on it later."""
        file = self._folder / f"{secrets.token_hex(8)}{suffix}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise OutputError(f"Cannot keep the readings to fit on: {error.strerror}. Free some space.") from error
        return file

    def begin(self, name: str, file: Path, options: Sequence[str]) -> None:
        """Fit a detector on a file, once those before it are done; the file is deleted afterwards."""
        self._progress[name] = 0.0
        self._cancelled.discard(name)
        self._jobs.put(_FitJob(name, file, options))

    @property
    def count(self) -> int:
        """How many fits run or wait."""
        return len(self._progress)

    def is_fitting(self, name: str) -> bool:
        """Whether a detector is being fitted, or waits for that."""
        return name in self._progress

    def progress(self, name: str) -> float:
        """How much of a fit is done, from 0 to 1."""
        return self._progress.get(name, 0.0)

    def cancel(self, name: str) -> None:
        """Stop fitting a detector."""
        with self._lock:
            if name in self._progress:
                self._cancelled.add(name)
            if self._running is not None and self._running[0] == name:
                self._running[1].terminate()

    def stop(self) -> None:
        """End the thread and the fit that runs; those that wait are given up."""
        self._jobs.put(None)
        with self._lock:
            self._cancelled.update(self._progress)
            if self._running is not None:
                self._running[1].terminate()
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if job.name not in self._cancelled:
                    self._fit(job)
            except Exception as error:  # later fits must go on
                _log.error("fit failed", detector=job.name, problem=str(error))
                if job.name not in self._cancelled:
                    self._tell_failure(job.name, str(error))
            finally:
                self._progress.pop(job.name, None)
                with suppress(OSError):
                    job.file.unlink()

    def _tell_failure(self, name: str, reason: str) -> None:
        try:
            self._failed(name, reason)
        except CometadError as error:  # the database is away; at the next start, the fit counts as interrupted
            _log.error("fit failed", detector=name, problem=str(error))

    def _fit(self, job: _FitJob) -> None:
        output = job.file.with_suffix(".comet")
        command = [sys.executable, "-m", "cometad", "fit", str(job.file), "-o", str(output), "--force", *job.options]
        try:
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as process:
                with self._lock:
                    self._running = (job.name, process)
                    if job.name in self._cancelled:  # meanwhile
                        process.terminate()
                said = self._follow(job.name, process)
            with self._lock:
                self._running = None
            if job.name in self._cancelled:
                return
            if process.returncode == 0:
                self._done(job.name, output.read_bytes(), fitted=True)
            else:
                self._failed(job.name, _problem(said, process.returncode, job.file))
        finally:
            with suppress(OSError):
                output.unlink()

    def _follow(self, name: str, process: "subprocess.Popen[str]") -> str:
        """Note the progress that a fit prints; returns the last line that is something else."""
        last = ""
        assert process.stderr is not None
        for line in process.stderr:
            found = _DONE.search(line)
            if found is not None and int(found[2]):
                self._progress[name] = min(int(found[1]) / int(found[2]), 1.0)
            elif line.strip():
                last = line.strip()
        return last


def _problem(said: str, code: int, file: Path) -> str:
    """Why a fit failed: what the command line said about bad input, without the name of a temporary file."""
    said = said.removeprefix("cometad: ")
    if code == MISTAKE and said:
        return said.replace(f"'{file}'", "The body").replace(str(file), "the body")
    return f"The fit ended with code {code}. {said}".strip()
