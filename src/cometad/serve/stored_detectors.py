"""The detectors of the service: saved ones that were uploaded, and those it fits itself."""

import hashlib
import json
import re
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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


class _Fit:
    """A run of `cometad fit` on a file, in a process of its own: scoring goes on."""

    def __init__(self, file: Path, options: Sequence[str]) -> None:
        self.file, self.output, self._options = file, file.with_suffix(".comet"), options
        self.progress, self.cancelled = 0.0, False
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Do not begin, or end what runs."""
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.terminate()

    def run(self) -> str | None:
        """Fit; returns why that failed, as the command line says it about bad input."""
        command = [sys.executable, "-m", "cometad", "fit", str(self.file), "-o", str(self.output), "--force"]
        with self._lock:
            if self.cancelled:
                return None
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(
                [*command, *self._options], stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, text=True
            )
        with self._process as process:
            assert process.stderr is not None
            said = self._followed(process.stderr).removeprefix("cometad: ")
        if process.returncode == 0:
            return None
        if process.returncode == MISTAKE and said:  # without the name of a temporary file
            return said.replace(f"'{self.file}'", "The body").replace(str(self.file), "the body")
        return f"The fit ended with code {process.returncode}. {said}".strip()

    def _followed(self, lines: Iterable[str]) -> str:
        """Note the progress that is printed; returns the last line that is something else."""
        last = ""
        for line in lines:
            found = _DONE.search(line)
            if found is not None and int(found[2]):
                self.progress = min(int(found[1]) / int(found[2]), 1.0)
            elif line.strip():
                last = line.strip()
        return last

    def clean_up(self) -> None:
        for file in (self.file, self.output):
            with suppress(OSError):
                file.unlink()


class StoredDetectors:
    """Detectors by name; `lock` keeps their changes apart from those of streams."""

    def __init__(self, store: Store, settings: Settings, lock: threading.RLock) -> None:
        self._store, self._most, self._lock = store, settings.max_detectors, lock
        self._open: dict[str, _Opened] = {}
        # Not `lock`: the recorder opens detectors between transactions, and others wait for it with `lock` held.
        self._opening = threading.Lock()
        self._folder = settings.data_dir / "fits"  # what is being fitted on
        self._fits: dict[str, _Fit] = {}  # running or waiting
        self._fitter = ThreadPoolExecutor(1, "cometad-fitting")  # one after the other

    def close(self) -> None:
        """End the fit that runs; those that wait are given up."""
        for fit in list(self._fits.values()):
            fit.cancel()
        self._fitter.shutdown()

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
            self._upsert(row)
            self._forget(name)
        return self.get(name)

    def _upsert(self, row: dict[str, Any]) -> None:
        with self._store.write() as connection:
            self._store.upsert(connection, schema.detectors, [row])

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
            file = self._kept(body, suffix)
            self._upsert({"name": name, "state": "fitting", "error": None, "created": time.time()})
            self._fits[name] = _Fit(file, options)
            self._fitter.submit(self._run, name, self._fits[name])
        return self.get(name)

    def _kept(self, body: bytes, suffix: str) -> Path:
        file = self._folder / f"{secrets.token_hex(8)}{suffix}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise OutputError(f"Cannot keep the readings to fit on: {error.strerror}. Free some space.") from error
        return file

    def _run(self, name: str, fit: _Fit) -> None:
        try:
            problem = fit.run()
            if problem is None and not fit.cancelled:
                self.add(name, fit.output.read_bytes(), fitted=True)
        except Exception as error:  # later fits must go on
            _log.error("fit failed", detector=name, problem=str(error))
            problem = str(error)
        try:
            if problem is not None and not fit.cancelled:
                self._end_fits(schema.detectors.c.name == name, problem)
        except CometadError as error:  # the database is away; at the next start, the fit counts as interrupted
            _log.error("fit failed", detector=name, problem=str(error))
        finally:
            del self._fits[name]
            fit.clean_up()

    def _end_fits(self, which: ColumnElement[bool], reason: str) -> None:
        """Note that fits failed; what was there before them is ready again."""
        before = case((schema.detectors.c.content.is_(None), "failed"), else_="ready")
        self._store.change(update(schema.detectors).where(which).values(state=before, error=reason))

    def close_interrupted_fits(self) -> None:
        """Mark fits that were running when the service ended as failed, and delete their files."""
        reason = "The service stopped during the fit. Send the readings again."
        self._end_fits(schema.detectors.c.state == "fitting", reason)
        for file in self._folder.glob("*"):
            file.unlink(missing_ok=True)

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
                **{
                    **row._mapping,
                    "variables": json.loads(row.variables),
                    "progress": 1.0 if row.state == "ready" else self._progress(row.name),
                    "streams": used[row.name],
                }
            )
            for row in rows
        ]

    def _progress(self, name: str) -> float:
        fit = self._fits.get(name)
        return 0.0 if fit is None else fit.progress

    def delete(self, name: str) -> None:
        with self._lock:
            self.get(name)
            self._check_unused(name, "Delete them first.")
            if (fit := self._fits.get(name)) is not None:
                fit.cancel()
            self._store.change(delete(schema.detectors).where(schema.detectors.c.name == name))
            self._forget(name)

    def _used(self) -> Counter[str]:
        """How many streams use each."""
        return Counter(
            json.loads(row.settings)["detector"] for row in self._store.rows(select(schema.streams.c.settings))
        )

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
