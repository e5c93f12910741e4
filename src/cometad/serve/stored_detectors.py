"""The detectors of the service: saved ones that were uploaded, and those it fits itself."""

import hashlib
import json
import queue
import re
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog
from sqlalchemy import ColumnElement, Table, case, delete, func, select, true, update

from cometad.alerting.budget import Budget
from cometad.data.text import Layout
from cometad.detector import Detector
from cometad.detectors import load_bytes
from cometad.errors import CometadError, OutputError
from cometad.serve.live_stream import threshold_of
from cometad.serve.models import DetectorState, StreamSettings
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

MOST_FITS = 10  # waiting or running: their readings are kept until then
MISTAKE = 2  # exit code of the command line for bad input
_DONE = re.compile(r"(\d+)/(\d+)")  # progress, as the command line prints it

_log = structlog.get_logger("cometad.serve")


class Missing(CometadError):
    """There is nothing of this name."""


class Conflict(CometadError):
    """What was asked for does not fit the present state."""


class _Opened(NamedTuple):
    """A detector in memory, with each threshold rule that streams ask for."""

    sha256: str
    layout: Layout
    by_rule: dict[Budget | None, Detector]  # None for its own


class StoredDetectors:
    """Detectors by name. `used` counts the streams of each; `lock` keeps them apart from changes of streams."""

    def __init__(
        self, store: Store, settings: Settings, lock: threading.RLock, used: Callable[[], Counter[str]]
    ) -> None:
        self._store, self._most, self._lock, self._used = store, settings.max_detectors, lock, used
        self._open: dict[str, _Opened] = {}
        # Not `lock`: the recorder opens detectors between transactions, and others wait for it with `lock` held.
        self._opening = threading.Lock()
        self._fits = FitQueue(settings.data_dir / "fits", self.add, self._fit_failed)

    def close(self) -> None:
        self._fits.stop()

    def add(self, name: str, content: bytes, *, fitted: bool = False) -> DetectorState:
        """Keep a saved detector; a damaged or unknown file is refused."""
        detector = load_bytes(content, "The file")
        with self._lock:
            if not fitted and name in self._fits:
                raise Conflict(f"The detector {name!r} is being fitted. Wait until it is ready, or delete it.")
            self._check_unused(name, "Upload it under another name.")
            check_room(self._store, schema.detectors, self._most, "detectors", name)
            row = {
                "name": name,
                "state": "ready",
                "kind": type(detector).__name__,
                "variables": json.dumps(detector.names_),
                "content": content,
                "sha256": hashlib.sha256(content).hexdigest(),
                "error": None,
                "created": time.time(),
            }
            with self._store.write() as connection:
                self._store.upsert(connection, schema.detectors, [row])
            self._forget(name)
        return self.get(name)

    def fit(self, name: str, body: bytes, suffix: str, options: Sequence[str]) -> DetectorState:
        """Fit a detector in the background, on a table in the format that a suffix names.

        One of this name that is there already stays until the new one is ready.
        """
        with self._lock:
            self._check_unused(name, "Fit one under another name.")
            if name in self._fits:
                raise Conflict(f"The detector {name!r} is being fitted already. Wait until it is ready.")
            if len(self._fits) >= MOST_FITS:
                raise Conflict(f"{MOST_FITS} detectors are being fitted or wait for that. Try again later.")
            check_room(self._store, schema.detectors, self._most, "detectors", name)
            row = {"name": name, "state": "fitting", "error": None, "created": time.time()}
            file = self._fits.keep(body, suffix)
            with self._store.write() as connection:
                self._store.upsert(connection, schema.detectors, [row])
            self._fits.begin(name, file, options)
        return self.get(name)

    def _fit_failed(self, name: str, reason: str) -> None:
        self._end_fits(schema.detectors.c.name == name, reason)

    def _end_fits(self, which: ColumnElement[bool], reason: str) -> None:
        """Note that fits failed; what was there before them is ready again."""
        before = case((schema.detectors.c.content.is_(None), "failed"), else_="ready")
        self._store.change(update(schema.detectors).where(which).values(state=before, error=reason))

    def close_interrupted_fits(self) -> None:
        """Mark fits that were running when the service ended as failed, and delete their files."""
        reason = "The service stopped during the fit. Send the readings again."
        self._end_fits(schema.detectors.c.state == "fitting", reason)
        self._fits.clean_up()

    def get(self, name: str) -> DetectorState:
        found = self._described(schema.detectors.c.name == name)
        if not found:
            raise Missing(f"There is no detector {name!r}. Upload one with PUT /v1/detectors/{name}, or fit it.")
        return found[0]

    def all(self) -> list[DetectorState]:
        return self._described(true())

    def _described(self, which: ColumnElement[bool]) -> list[DetectorState]:
        table = schema.detectors
        columns = [column for column in table.c if column.name != "content"]
        size = func.coalesce(func.length(table.c.content), 0).label("bytes")
        rows = self._store.rows(select(*columns, size).where(which).order_by(table.c.name))
        used = self._used()
        return [
            DetectorState(
                name=row.name,
                state=row.state,
                kind=row.kind,
                variables=json.loads(row.variables),
                progress=1.0 if row.state == "ready" else self._fits.progress(row.name),
                error=row.error,
                sha256=row.sha256,
                bytes=row.bytes,
                created=row.created,
                streams=used[row.name],
            )
            for row in rows
        ]

    def delete(self, name: str) -> None:
        with self._lock:
            self.get(name)
            self._check_unused(name, "Delete them first.")
            self._fits.cancel(name)
            self._store.change(delete(schema.detectors).where(schema.detectors.c.name == name))
            self._forget(name)

    def _check_unused(self, name: str, advice: str) -> None:
        streams = self._used()[name]
        if streams:
            which = "a stream" if streams == 1 else f"{streams:,} streams"
            raise Conflict(f"The detector {name!r} is used by {which}. {advice}")

    def _forget(self, name: str) -> None:
        with self._opening:
            self._open.pop(name, None)

    def for_stream(self, settings: StreamSettings) -> tuple[Detector, Layout]:
        """The detector that settings ask for, and the layout of its readings; both are shared by its streams."""
        name = settings.detector
        with self._opening:
            known = self._open.get(name)
            if known is None or self._is_replaced(name, known):
                known = self._open[name] = self._opened(name)
            rule = threshold_of(settings, known.by_rule[None])
            if rule is not None and rule not in known.by_rule:
                known.by_rule[rule] = known.by_rule[None].with_threshold(rule)
            return known.by_rule[rule], known.layout

    def _is_replaced(self, name: str, known: _Opened) -> bool:
        """Whether another process has uploaded a detector of this name since."""
        if self._store.is_sqlite:
            return False
        sha256 = select(schema.detectors.c.sha256).where(schema.detectors.c.name == name)
        return bool(self._store.value(sha256) != known.sha256)

    def _opened(self, name: str) -> _Opened:
        row = self._store.row(select(schema.detectors).where(schema.detectors.c.name == name))
        if row is None:
            raise Missing(f"There is no detector {name!r}. Upload or fit it first.")
        if row.content is None:
            raise Conflict(f"The detector {name!r} is not ready: {row.error or 'it is being fitted.'}")
        fitted = load_bytes(row.content, "The file")
        return _Opened(row.sha256, Layout(fitted.names_, fitted.named_, gaps=fitted.gaps.allowed), {None: fitted})

    def stored_layout(self, name: str) -> Layout:
        """The layout of readings for a detector that cannot be loaded."""
        variables = self._store.value(select(schema.detectors.c.variables).where(schema.detectors.c.name == name))
        return Layout(json.loads(variables or "[]"), named=True)


def check_room(store: Store, table: Table, most: int, what: str, name: str = "") -> None:
    """Refuse another row if there are as many as the settings allow; the row of this name may be replaced."""
    if store.value(select(func.count()).select_from(table).where(table.c.name != name)) >= most:
        raise Conflict(f"There are {most:,} {what} already, which is the limit. Delete some, or raise it.")


@dataclass
class _FitJob:
    name: str
    file: Path  # readings to fit on, deleted afterwards
    options: Sequence[str]  # of `cometad fit`
    progress: float = 0.0
    cancelled: bool = False
    process: "subprocess.Popen[str] | None" = None  # while it runs

    def cancel(self) -> None:
        """Do not begin, or end what runs; called under the lock of the queue."""
        self.cancelled = True
        if self.process is not None:
            self.process.terminate()


class FitQueue:
    """Fits detectors with `cometad fit`, one after the other, each in a process of its own: scoring goes on.

    `done` gets the name and the saved detector, `failed` the name and why. `folder` holds what is being fitted on.
    """

    def __init__(self, folder: Path, done: Callable[..., object], failed: Callable[[str, str], None]) -> None:
        self._folder, self._done, self._failed = folder, done, failed
        self._queue: queue.Queue[_FitJob | None] = queue.Queue()
        self._lock = threading.Lock()
        self._jobs: dict[str, _FitJob] = {}  # running or waiting
        self._thread = threading.Thread(target=self._run, name="cometad-fitting", daemon=True)
        self._thread.start()

    def clean_up(self) -> None:
        """Delete what a service that was killed left behind."""
        for file in self._folder.glob("*"):
            file.unlink(missing_ok=True)

    def keep(self, body: bytes, suffix: str) -> Path:
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
        job = _FitJob(name, file, options)
        with self._lock:
            self._jobs[name] = job
        self._queue.put(job)

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    def progress(self, name: str) -> float:
        job = self._jobs.get(name)
        return 0.0 if job is None else job.progress

    def cancel(self, name: str) -> None:
        with self._lock:
            if name in self._jobs:
                self._jobs[name].cancel()

    def stop(self) -> None:
        """End the thread and the fit that runs; those that wait are given up."""
        self._queue.put(None)
        with self._lock:
            for job in self._jobs.values():
                job.cancel()
        self._thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                if not job.cancelled:
                    self._fit(job)
            except Exception as error:  # later fits must go on
                _log.error("fit failed", detector=job.name, problem=str(error))
                if not job.cancelled:
                    self._tell_failure(job.name, str(error))
            finally:
                with self._lock:
                    del self._jobs[job.name]
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
                    job.process = process
                    if job.cancelled:  # meanwhile
                        process.terminate()
                said = _followed(job, process)
            with self._lock:
                job.process = None
            if job.cancelled:
                return
            if process.returncode == 0:
                self._done(job.name, output.read_bytes(), fitted=True)
            else:
                self._failed(job.name, _problem(said, process.returncode, job.file))
        finally:
            with suppress(OSError):
                output.unlink()


def _followed(job: _FitJob, process: "subprocess.Popen[str]") -> str:
    """Note the progress that a fit prints; returns the last line that is something else."""
    last = ""
    assert process.stderr is not None
    for line in process.stderr:
        found = _DONE.search(line)
        if found is not None and int(found[2]):
            job.progress = min(int(found[1]) / int(found[2]), 1.0)
        elif line.strip():
            last = line.strip()
    return last


def _problem(said: str, code: int, file: Path) -> str:
    """Why a fit failed: what the command line said about bad input, without the name of a temporary file."""
    said = said.removeprefix("cometad: ")
    if code == MISTAKE and said:
        return said.replace(f"'{file}'", "The body").replace(str(file), "the body")
    return f"The fit ended with code {code}. {said}".strip()
