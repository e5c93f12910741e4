"""How many files one reading passes: those of `src/cometad` with a function that is called for it, after a warm-up.

Sibling views count as one file. Compiled kernels do not show. Only the reading itself is watched: each is sent once
the one before it was answered.
"""

import os
import re
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import cometad
from cli_case import table_of_readings
from cometad import Budget, Comet
from cometad.cli import main
from serve_case import as_readings, faulty, frame, in_process, plant, post, put, until, upload

# These only ever go down; docs/trace.md is the walk.
MOST_FILES_OF_STREAM = 12
MOST_FILES_OF_SERVICE = 25

WARM = 1000  # readings that open sessions and fast paths
PACKAGE = f"{Path(cometad.__file__).parent}{os.sep}"
SIBLINGS = re.compile(r"views/(patterns|joint|forecast|balance|activity)\.py")
TICKING = re.compile("membership|sharing|upkeep|deliveries|connections")  # threads that wake up by the clock


class Trace:
    """Notes the files whose functions are called, in all threads that it watches."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.on = False

    def __call__(self, frame, event, _):
        name = frame.f_code.co_filename
        if (
            self.on
            and event == "call"
            and name.startswith(PACKAGE)
            and not TICKING.search(threading.current_thread().name)
        ):
            self.files.add(SIBLINGS.sub("views/one.py", name.removeprefix(PACKAGE)))

    def check(self, most: int) -> None:
        if len(self.files) > most:
            listed = "\n".join(sorted(self.files))
            pytest.fail(f"A reading passes {len(self.files)} files, more than {most}:\n{listed}", pytrace=False)


class Answers:
    """Standard output of a stream: each answer sends the next reading, and the one after the warm-up is traced."""

    encoding = "utf-8"

    def __init__(self, lines: list[str], send: int, trace: Trace) -> None:
        self.lines, self.send, self.trace = iter(lines), send, trace
        self.count = 0

    def write(self, text: str) -> int:
        self.count += 1
        sys.setprofile(self.trace if self.count == WARM else None)
        self.trace.on = self.count == WARM
        line = next(self.lines, None)
        if line is None:
            os.close(self.send)
        else:
            os.write(self.send, line.encode())
        return len(text)

    def flush(self) -> None:
        pass


def test_a_reading_on_its_way_through_a_stream(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Comet().fit(table_of_readings(600, seed=0)).save("plant.comet")
    lines = table_of_readings(WARM + 10, seed=1).write_csv().splitlines(keepends=True)
    receive, send = os.pipe()
    trace = Trace()
    answers = Answers(lines[2:], send, trace)
    os.write(send, "".join(lines[:2]).encode())  # the header and a reading
    with os.fdopen(receive, "rb") as source:
        monkeypatch.setattr("sys.stdin", type("Input", (), {"buffer": source}))
        monkeypatch.setattr("sys.stdout", answers)
        assert main(["stream", "plant.comet"]) == 0
    assert answers.count == WARM + 10
    trace.check(MOST_FILES_OF_STREAM)


def stored(folder: Path, query: str) -> int:
    """A number from the database of a service."""
    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchone()[0] or 0


def test_a_reading_on_its_way_through_the_service(tmp_path):
    detector = Comet(threshold=Budget(rate=0.01)).fit(frame(plant(1500)))
    trace = Trace()
    threading.setprofile(trace)
    try:
        with in_process(tmp_path) as (_, client):
            upload(client, "pump", detector.to_bytes())
            put(client, "pump", min_length=1)
            normal, fault = as_readings(plant(WARM)), as_readings(faulty(61)[-1:], first=WARM)
            for first in range(0, WARM, 100):
                post(client, "pump", normal[first : first + 100])
            until(lambda: stored(tmp_path, "SELECT sum(count) FROM scores") == WARM)
            assert not stored(tmp_path, "SELECT count(*) FROM events WHERE start = 1000")
            trace.on = True
            post(client, "pump", fault)
            until(lambda: stored(tmp_path, "SELECT count(*) FROM events WHERE start = 1000"))
            time.sleep(0.5)  # whoever listens is told after that
            trace.on = False
    finally:
        threading.setprofile(None)
    trace.check(MOST_FILES_OF_SERVICE)
