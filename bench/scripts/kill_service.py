"""What `kill -9` of `cometad serve` under load loses or doubles. Used by `bench/scripts/kill.py --verb serve`.

A client posts readings of several streams and remembers what was acknowledged; whatever was not, it sends again after
the restart, as any client would. All kills happen over one data folder. At the end, readings, scores and events in the
database are compared with an uninterrupted run of `detector.stream()` over the same readings, bit by bit.
"""

import json
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl

from serving import START, Service

STREAMS, VARIABLES, BATCH = 4, 3, 20  # streams, variables, readings in a request
NAMES = ("flow", "level", "valve")


class Feed:
    """The readings of a stream, and how many of them were acknowledged."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.acknowledged, self.sent = name, 0, 0
        self._rng, self._rows = np.random.default_rng(seed), list[np.ndarray]()

    def values(self, start: int, stop: int) -> np.ndarray:
        """The readings (time, variable) from `start` on, before `stop`; now and then there is a fault."""
        while len(self._rows) < stop:
            i = len(self._rows)
            row = np.sin(i / np.array([5, 7, 9])) + 0.1 * self._rng.normal(size=VARIABLES)
            row[1] += 4.0 * (i % 100 >= 85)
            self._rows.append(np.round(row, 6))
        return np.array(self._rows[start:stop])

    def body(self) -> bytes:
        """The next readings as JSON; those that were not acknowledged come again."""
        rows = self.values(self.acknowledged, self.acknowledged + BATCH).tolist()
        times = [START + self.acknowledged + i for i in range(BATCH)]
        found = [dict(zip(("time", *NAMES), (at, *row), strict=True)) for at, row in zip(times, rows, strict=True)]
        return json.dumps(found).encode()


def kill_service(times: int, random_: random.Random) -> tuple[str, list[str]]:
    """Kill a service under load, start it again, and compare at the end: a sentence, and the problems."""
    from cometad import Comet, load

    problems: list[str] = []
    feeds = [Feed(f"pump-{i}", seed=i) for i in range(STREAMS)]
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name, "data"), Path(name, "plant.comet")
        Comet().fit(pl.DataFrame(Feed("", seed=99).values(0, 85 * 8), schema=NAMES)).save(file)
        service = _started(folder)
        service.put("/v1/detectors/plant", file.read_bytes())
        for feed in feeds:
            service.put(f"/v1/streams/{feed.name}", {"detector": "plant"})
        repeated = 0
        for _ in range(times):
            repeated += _load_until_killed(service, feeds, random_.uniform(0.02, 0.6), problems)
            service = _started(folder)
            for feed in feeds:
                known = service.get(f"/v1/streams/{feed.name}")["readings"]
                if known < feed.acknowledged:
                    problems.append(f"{feed.acknowledged - known} acknowledged readings of {feed.name} were lost.")
        _settle(service, feeds)
        service.stop()
        for number, feed in enumerate(feeds, 1):
            problems += _compared(folder, number, feed, load(file))
        total = sum(feed.acknowledged for feed in feeds)
        events = _count(folder, "SELECT count(*) FROM events")
    counts = f"{times} kills; {total:,} readings acknowledged, {repeated:,} known already when sent again; "
    return counts + f"{events} events; {len(problems)} problems", problems


def _started(folder: Path) -> Service:
    service = Service(folder, fork=True)
    service.wait_until_ready()
    return service


def _load_until_killed(service: Service, feeds: Sequence[Feed], after: float, problems: list[str]) -> int:
    """Post readings until a timer kills the service; the number of readings that it knew already."""
    killer, repeated = threading.Timer(after, service.process.kill), 0
    killer.start()
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            for feed in feeds:
                status, answer = service.ask("POST", f"/v1/streams/{feed.name}/readings", feed.body())
                if status != 200:
                    problems.append(f"A request under load got {status}: {answer[:200]!r}")
                    return repeated
                repeated += json.loads(answer)["repeated"]
                feed.acknowledged += BATCH
    except OSError:
        pass
    finally:
        killer.join()
        service.kill()
    return repeated


def _settle(service: Service, feeds: Sequence[Feed]) -> None:
    """Send every batch that was not acknowledged again, and wait until everything is scored and stored."""
    for feed in feeds:
        service.ask("POST", f"/v1/streams/{feed.name}/readings", feed.body())
        feed.acknowledged += BATCH
    end = time.monotonic() + 60
    while time.monotonic() < end and service.metrics()["cometad_readings_unscored"]:
        time.sleep(0.05)


def _compared(folder: Path, stream: int, feed: Feed, detector: object) -> list[str]:
    """How what is stored of a stream differs from a run that nobody interrupted."""
    with closing(sqlite3.connect(folder / "cometad.sqlite")) as connection:
        found = {table: _rows(connection, table, stream) for table in ("readings", "scores")}
        events = connection.execute(
            "SELECT number, start, stop, peak, steps, peak_score, threshold FROM events WHERE stream_id = ? "
            "ORDER BY number",
            [stream],
        ).fetchall()
    values = feed.values(0, feed.acknowledged)
    run = detector.stream()  # type: ignore[attr-defined]
    scored = run.update_many(pl.DataFrame(values, schema=NAMES))
    wanted = np.column_stack([scored.alert_scores, scored.thresholds, scored.flags])
    last = {change.event.number: change.event for change in scored.changes}
    ended = [(one.number, one.start, one.stop, one.peak, one.steps, one.peak_score) for one in last.values()]
    problems = []
    if found["readings"].tobytes() != values.tobytes():
        problems.append(f"The stored readings of {feed.name} are not those that were acknowledged.")
    if found["scores"].tobytes() != wanted.tobytes():
        same = len(found["scores"]) == len(wanted)
        what = (
            f"{int((found['scores'] != wanted).any(axis=1).sum())} differ" if same else f"{len(found['scores'])} stored"
        )
        problems.append(f"The {len(wanted)} scores of {feed.name} are not those of an uninterrupted run: {what}.")
    if [one[:6] for one in events] != ended:
        problems.append(f"The events of {feed.name} are not those of an uninterrupted run.")
    return problems


def _rows(connection: sqlite3.Connection, table: str, stream: int) -> np.ndarray:
    """All cells of a stream (row, column), checked to follow each other."""
    chunks = connection.execute(
        f"SELECT first, count, cells FROM {table} WHERE stream_id = ? ORDER BY first", [stream]
    ).fetchall()
    ends = np.cumsum([count for _, count, _ in chunks])
    if [first for first, _, _ in chunks] != [0, *ends[:-1].tolist()]:
        raise RuntimeError(f"The chunks of {table} have gaps or overlap.")
    cells = np.frombuffer(b"".join(cells for _, _, cells in chunks), "<f8")
    return cells.reshape(int(ends[-1]), -1)


def _count(folder: Path, query: str) -> int:
    with closing(sqlite3.connect(folder / "cometad.sqlite")) as connection:
        return int(connection.execute(query).fetchone()[0])
