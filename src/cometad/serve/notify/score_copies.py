"""Copies scores to Prometheus: a bounded queue, sent as fast as the receiver accepts it.

The scores themselves are in the database. If a receiver is down for long, the oldest copies are dropped and counted.
"""

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np
import structlog

from cometad.arrays import Floats
from cometad.connect.contract import Lost
from cometad.connect.out.notifier import Rejected
from cometad.connect.out.remote_write import RemoteWriter, ScoreSamples
from cometad.errors import CometadError
from cometad.serve.notify.notify_settings import NotifySettings
from cometad.serve.scorer import FreshScores

MOST = 500_000  # scores that wait
BATCH = 5000  # scores in a request
GATHER = 1.0  # seconds
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
BAD_REQUEST = 400  # also Prometheus's response to a request with one sample that is too old: it accepts none

_log = structlog.get_logger("cometad.serve")


class ScoreCopies:
    """The scores for one receiver. `count` is called with receiver, result and number of scores."""

    def __init__(
        self, settings: NotifySettings, url: str, writer: RemoteWriter, count: Callable[[str, str, int], None]
    ) -> None:
        self.name, self.url = settings.name, url  # without secrets
        self._settings, self._writer, self._count = settings, writer, count
        self._queue: deque[ScoreSamples] = deque()
        self._lock = threading.Lock()
        self.waiting = self.written = self.lost = 0  # scores
        self.last_written: float | None = None
        self.error: str | None = None  # why the last ones were not accepted

    def add(self, scores: FreshScores) -> None:
        """Queue new scores; called by the scoring thread."""
        if not self._settings.wants(scores.stream.name):
            return
        values = np.column_stack([scores.cells[:, :2], is_open(scores)])
        with self._lock:
            for first in range(0, len(values), BATCH):
                part = slice(first, first + BATCH)
                self._queue.append(ScoreSamples(scores.stream.name, scores.ats[part], values[part]))
            self.waiting += len(scores.ats)
            dropped = 0
            while self.waiting > MOST and len(self._queue) > 1:
                dropped += len(self._queue[0].ats)
                self.waiting -= len(self._queue.popleft().ats)
        if dropped:
            self._gone("dropped", dropped)

    async def run(self) -> None:
        """Send scores until cancelled."""
        failures, batches = 0, list[list[ScoreSamples]]()
        try:
            while True:
                batches = batches or self._taken()
                if not batches:
                    await asyncio.sleep(GATHER)
                    continue
                try:
                    batches[:1] = await self._write(batches[0])
                    failures = 0
                except Lost as error:
                    failures = min(failures + 1, 30)
                    self._failed(str(error))
                    wait = min(FIRST_WAIT * 2.0 ** (failures - 1), LONGEST_WAIT)
                    await asyncio.sleep(wait * random.uniform(0.8, 1.2))
        finally:
            await self._writer.close()

    async def _write(self, batch: list[ScoreSamples]) -> list[list[ScoreSamples]]:
        """Write scores; returns smaller batches to write instead if this one was refused as a whole."""
        count = sum(len(one.ats) for one in batch)
        try:
            await self._writer.write(batch)
        except Lost:
            raise
        except Exception as error:  # the next ones may be accepted
            streams = {one.stream for one in batch}
            if isinstance(error, Rejected) and error.status == BAD_REQUEST and len(streams) > 1:
                return [[one for one in batch if one.stream == stream] for stream in sorted(streams)]
            if not isinstance(error, CometadError):
                _log.exception("deliveries failed")
            self._failed(str(error))
            self._gone("refused", count)
        else:
            self.error, self.last_written = None, time.time()
            self.written += count
            self._count(self.name, "written", count)
        return []

    def _taken(self) -> list[list[ScoreSamples]]:
        """The next scores, as one batch if there are any."""
        found, count = list[ScoreSamples](), 0
        with self._lock:
            while self._queue and (not found or count + len(self._queue[0].ats) <= BATCH):
                found.append(self._queue.popleft())
                count += len(found[-1].ats)
            self.waiting -= count
        return [found] if found else []

    def _gone(self, result: str, count: int) -> None:
        self.lost += count
        self._count(self.name, result, count)

    def _failed(self, error: str) -> None:
        if self.error is None:  # once per outage
            _log.warning("receiver failed", receiver=self.name, problem=error)
        self.error = error


def is_open(scores: FreshScores) -> Floats:
    """1 at the times (time,) at which an event was open, else 0."""
    if not scores.events:
        return np.full(len(scores.ats), float(scores.stream.open_event is not None))
    found = np.zeros(len(scores.ats))
    for event in {event.id: event for _, event in scores.events}.values():  # the last state of each
        start = -np.inf if event.start_time is None else event.start_time
        stop = np.inf if event.state == "open" or event.stop_time is None else event.stop_time
        found[(scores.ats >= start) & (scores.ats <= stop)] = 1.0
    return found
