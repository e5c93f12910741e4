"""Moves streams between processes that share a database: releases them, and finishes those of dead processes."""

import math
import time
from collections.abc import Collection, Iterable
from functools import partial

from cometad.serve.live_stream import LiveStream
from cometad.serve.members import SharedMembers
from cometad.serve.recorder import Recorder
from cometad.serve.regular import RegularWork, paced
from cometad.serve.scorer import LiveScorer
from cometad.serve.stored_streams import StoredStreams

LEFT_FOR = 10.0  # seconds until the streams of a dead process are finished, unless new readings arrive
TRIES = 100  # to release a stream while readings arrive
TICK = 2.0  # seconds


class StreamSharing(RegularWork):
    def __init__(self, streams: StoredStreams, members: SharedMembers, recorder: Recorder, scorer: LiveScorer) -> None:
        self._streams, self._members, self._recorder, self._scorer = streams, members, recorder, scorer
        self._orphans: dict[str, float] = {}  # when a stream was found without a process
        # Not the heartbeat thread: this one waits for the scorer, and a process without heartbeat is declared dead.
        super().__init__("sharing", paced(TICK), self.finish_orphans)

    def start(self) -> None:
        if self._members.alone:  # after a crash, nobody else could take them
            self._orphans = dict.fromkeys(self._members.orphans(), -math.inf)
        super().start()

    def take(self, name: str) -> None:
        """Take a stream; raises `Elsewhere` if another process has it."""
        elsewhere = self._recorder.exclusive(partial(self._members.take, [name]))
        if elsewhere:
            raise elsewhere[name]
        if (stream := self._streams.get(name)) is not None:  # whoever had it may have left readings without scores
            self._scorer.open_later(stream)

    def release(self, names: Iterable[str]) -> None:
        """Release streams once all their readings are scored and stored."""
        left = [stream for name in names if (stream := self._streams.get(name)) is not None]
        for _ in range(TRIES):
            if not left:
                return
            left = self._scorer.do(partial(self._released, left)).result()
        # The others keep receiving readings: another source feeds them here.

    def _released(self, streams: list[LiveStream]) -> list[LiveStream]:
        """Save and release streams, in the scoring thread; returns those that received readings meanwhile."""
        self._scorer.save(streams)
        self._recorder.flush()

        def release() -> None:
            self._members.release([one for one in streams if one.row.paused or self._scorer.lag(one) is None])

        self._recorder.exclusive(release)
        return [stream for stream in streams if stream.owned]

    def leave_part(self, connection: str, part: int, names: Collection[str]) -> None:
        self.release(names)
        self._recorder.exclusive(partial(self._members.leave_part, connection, part))

    def finish_orphans(self) -> None:
        """Score what dead processes had stored but not scored, unless their streams were taken meanwhile.

        The same for streams whose release failed in this process.
        """
        now = time.monotonic()
        self._orphans = {name: self._orphans.get(name, now) for name in self._members.orphans()}
        due = [name for name, since in self._orphans.items() if now - since >= LEFT_FOR]
        if due:
            self._recorder.exclusive(partial(self._members.take, due))
        mine = [stream for name in due if (stream := self._streams.get(name)) is not None]
        for opened in [self._scorer.open_later(stream) for stream in mine]:
            opened.result()
        self.release(one.name for one in mine if one.row.paused or one.scoring.session is not None)
