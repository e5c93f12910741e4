"""A live stream: readings in, answers out, and one snapshot file to resume from.

A session checks the order of readings (`Clock`) or resamples them (`Grid`), scores them with a detector's stream and
returns one answer per reading, with its alert score: a dictionary ready for JSON. Ranking scores come too late to act
on and are not part of it. A session does not depend on the command line, so a service, a broker consumer or a cluster
worker can use it unchanged.
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cometad.alerting.alerts import EPOCH, Alerts, Change
from cometad.alerting.verdicts import Called, Verdict
from cometad.arrays import Floats
from cometad.checkpoint import Checkpoint, from_bytes, read, restoring, to_bytes
from cometad.data.cells import CORRECT, StreamDates
from cometad.data.resample import Resampling, summary
from cometad.data.text import Reading
from cometad.detector import Detector
from cometad.errors import InputError, ModelFileError
from cometad.files import write_whole
from cometad.live.stream import EARLIEST, LATEST, Scored
from cometad.saving import (
    InvalidState,
    Saved,
    Table,
    counted,
    fact,
    load_state,
    of_type,
    part,
    require_state,
    saved_state,
)
from cometad.series import Order, Series

KIND = "stream snapshot"
TOP = 3  # variables listed with each score
_NEEDS = ("times", "gate")  # facts of a snapshot

Answer = dict[str, Any]
Time = str | float | None  # as it was sent

_log = logging.getLogger("cometad")


# -- gates: what readings pass before they are scored -----------------------------------------------------------------


class Ordered(Saved):
    """A gate that passes every reading: whoever feeds the session has put them in order and left out the late ones."""

    kind = "ordered"
    leaves_gaps: ClassVar[bool] = False  # as an empty bin does
    saved_arrays: ClassVar[Table] = {}  # `saved` has facts
    admitted = 0  # not counted here

    def admit(self, reading: Reading) -> Iterable[Reading]:
        """The readings to score now."""
        return (reading,)

    def finish(self) -> Iterable[Reading]:
        """The readings that were held back."""
        return ()

    def summary(self) -> list[str]:
        """Sentences that sum up what the gate did."""
        return []


class _TimedGate(Ordered):
    """A gate that reads the times, and refuses or drops late readings."""

    saved: ClassVar[Table] = {"dropped": fact("_order.dropped", counted), "": part("_dates")}
    _order: Order

    def __init__(self, date_order: str | None) -> None:
        self._dates, self.admitted = StreamDates(date_order), 0

    def _admits(self, time: float | np.datetime64, problem: str) -> bool:
        """Whether a reading is on time; a late one is counted, or refused with `problem` as the message."""
        order = self._order
        if order.last is None or time > order.last:
            return True
        if order.late == "refuse":
            raise InputError(problem, advice="late")
        order.dropped += 1
        return False

    def summary(self) -> list[str]:
        """The number of dropped readings, if there are any."""
        dropped = self._order.dropped
        return [f"Dropped {dropped:,} late or repeated readings."] if dropped else []


def _a_time(value: object, name: str) -> Time:
    """A saved time, as it was sent."""
    require_state(value is None or type(value) in (str, int, float), f"its {name!r} is not a time")
    return value  # type: ignore[return-value]


class Clock(_TimedGate):
    """A gate that passes readings in time order; late ones are refused or dropped.

    Readings without times pass, but either all of them have one or none has. A time that is neither a number nor a
    date is refused. `date_order` is that of dates with the year last; else the first date that tells decides.

    >>> from cometad.data.text import Reading
    >>> from cometad.live import Clock
    >>> clock = Clock(late="drop")
    >>> [len(clock.admit(Reading(2, [1.5], time))) for time in (10, 11, 11, 9, 12)], clock.summary()
    ([1, 1, 0, 0, 1], ['Dropped 2 late or repeated readings.'])
    """

    kind = "clock"
    saved: ClassVar[Table] = {"last": fact("_last", _a_time), **_TimedGate.saved}

    def __init__(self, late: str = "refuse", date_order: str | None = None) -> None:
        super().__init__(date_order)
        self._order = Order(late)
        self._last: Time = None

    def admit(self, reading: Reading) -> Sequence[Reading]:
        time = self._dates.seconds(reading.time, reading.line)
        if time is None and self._dates.known:
            raise InputError(f"Line {reading.line} has no time, but the readings before it have one. {CORRECT}")
        if time is not None:
            if self.admitted and self._last is None:
                raise InputError(
                    f"Line {reading.line} has a time, but the readings before it have none. Send one with every "
                    "reading, or with none."
                )
            late = f"Line {reading.line}: the time {reading.time} is not after {self._last}, the previous time."
            if not self._admits(time, late):
                return ()
            self._last = reading.time
            self._order.last = time
        self.admitted += 1
        return (reading if time is None or not self._dates.dated(time) else reading._replace(at=time),)

    def check_state(self) -> None:
        """Refuse a last time that is none; readings up to it are late."""
        try:
            self._order.last = self._dates.seconds(self._last, line=0)
        except InputError as error:
            raise InvalidState("its 'last' is not a time.") from error


class Grid(_TimedGate):
    """A gate that resamples readings; a bin passes with the first reading after it, labeled with its left edge.

    >>> from cometad.data.resample import Resampling
    >>> from cometad.data.text import Reading
    >>> from cometad.live import Grid
    >>> grid = Grid(Resampling("60s", "mean"), ["flow"])
    >>> [bin for second in (0, 30, 70) for bin in grid.admit(Reading(2, [second], second))]
    [Reading(line=2, values=[15.0], time='1970-01-01T00:00:00+00:00', at=0.0)]
    """

    leaves_gaps: ClassVar[bool] = True
    saved_arrays: ClassVar[Table] = {"grid": part("_run")}

    def __init__(
        self, resampling: Resampling, names: Sequence[str], late: str = "refuse", date_order: str | None = None
    ) -> None:
        super().__init__(date_order)
        self.kind = repr(resampling)
        self._run, self._names = resampling.start(late), tuple(names)
        self._order = self._run.order

    def admit(self, reading: Reading) -> Iterator[Reading]:
        """The bins that a reading completes; a reading for an earlier bin is late."""
        time = self._dates.seconds(reading.time, reading.line)
        if time is None:
            raise InputError(
                f"Line {reading.line}: resampling needs a time, in seconds or like 2024-03-01 04:10:00. "
                "Send one with every reading."
            )
        if not EARLIEST <= time < LATEST:
            raise InputError(f"Line {reading.line}: the time {reading.time} is out of range. {CORRECT}")
        at = np.datetime64(round(time * 1e6), "us")
        late = f"Line {reading.line}: the time {reading.time} belongs to a bin that is already complete."
        if not self._admits(at, late):
            return iter(())
        self.admitted += 1
        values = np.array([reading.values], np.float64)
        return self._readings(self._run.push(Series(values, self._names, np.array([at]), True)), reading.line)

    def finish(self) -> Iterator[Reading]:
        return self._readings(self._run.finish(), 0)

    def summary(self) -> list[str]:
        return [summary(self._run), *super().summary()]

    def check_state(self) -> None:
        """Refuse an open bin of other variables."""
        width = self._run.state()["rows"].shape[1]
        require_state(width in (0, len(self._names)), "its open bin has another number of variables")

    def _readings(self, bins: Series, line: int) -> Iterator[Reading]:
        times = () if bins.times is None else bins.times.astype("datetime64[us]").astype(np.int64).tolist()
        for values, time in zip(bins.values.tolist(), times, strict=True):
            yield Reading(line, values, (EPOCH + timedelta(microseconds=time)).isoformat(), time / 1e6)


# -- sessions ---------------------------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """Scores that became final, and the times of their readings."""

    scored: Scored
    times: list[Time]  # (time,) of the alert scores


class Session:
    """A detector's stream behind a gate (a `Clock`, a `Grid` or `Ordered`); gives one answer per reading.

    >>> import numpy as np
    >>> from cometad import Comet
    >>> from cometad.data.text import Reading
    >>> from cometad.live import Clock, Session
    >>> normal = np.random.default_rng(0).normal(size=(600, 2))
    >>> session = Session(Comet().fit(normal), Clock())
    >>> (answer,) = session.take(Reading(1, [9.0, 0.5], "2026-03-01T12:00"))
    >>> list(answer)
    ['step', 'time', 'alert_score', 'threshold', 'anomaly', 'variables']
    """

    def __init__(self, detector: Detector, gate: Ordered, alerts: Alerts | None = None) -> None:
        if gate.leaves_gaps and not detector.gaps.allowed:
            raise InputError("An empty bin is a gap, and this detector has no gap rule.", advice="no gap rule")
        self.detector, self.gate = detector, gate
        self._stream = detector.stream(alerts=alerts)
        self._times: deque[Time] = deque()  # of readings without an alert score yet
        self.position: dict[str, Any] = {}  # given to `save` by whoever feeds the session

    @classmethod
    def resume(
        cls, saved_in: str | os.PathLike[str] | bytes, detector: Detector, gate: Ordered, alerts: Alerts | None = None
    ) -> Self:
        """Resume what `save` wrote to a file or `snapshot` returned, with the same kind of gate and the same alerts."""
        if isinstance(saved_in, str | os.PathLike):
            source, saved = f"'{saved_in}'", read(saved_in, KIND, needs=_NEEDS)
        else:
            source = "The snapshot"
            saved = from_bytes(saved_in, KIND, source, needs=_NEEDS)
        if "stream" not in saved.arrays:
            raise ModelFileError(f"{source} is not a complete stream snapshot. Pass a file written by a stream.")
        with restoring(KIND, source):
            times = _checked_times(saved.facts["times"])
            facts = of_type(saved.facts["gate"], dict, "gate")
            if facts["kind"] != gate.kind:
                raise ModelFileError(
                    "The snapshot was taken with different resampling, or with none. Resume with the same resampling."
                )
            load_state(gate, gate.saved_arrays, saved.arrays, dict)
            gate.restore(facts)
            position = of_type(saved.facts.get("position", {}), dict, "position")
        session = cls(detector, gate, alerts)
        session._stream.restore(saved.arrays["stream"].tobytes())
        session._times.extend(times)
        session.position = position
        waiting = session._stream.seen - session._stream.given
        if len(times) != waiting:
            raise ModelFileError(f"{source} is not a valid {KIND}: it has {len(times)} times for {waiting} readings.")
        return session

    @property
    def answered(self) -> int:
        """Number of answers to readings, also before a snapshot: the next one has this step."""
        return self._stream.given

    def take(self, reading: Reading) -> list[Answer]:
        """Take one reading; returns the answers that become final."""
        return [answer for admitted in self.gate.admit(reading) for answer in self._score(admitted)]

    def take_many(self, values: Floats, times: Sequence[Time]) -> list[Timed]:
        """Take readings (time, variable) with their times; returns the scores that become final, as arrays.

        The same scores as from `take`, one reading at a time, without a dictionary for each.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> from cometad.live.session import Ordered, Session
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> session = Session(Comet().fit(normal), Ordered())
        >>> (timed,) = session.take_many(normal[:3], [0.0, 1.0, 2.0])
        >>> timed.times, len(timed.scored.alert_scores)
        ([0.0, 1.0, 2.0], 3)
        """
        if type(self.gate) is Ordered:
            return [self._score_many(values, times, times)] if len(values) else []
        rows = zip(values.tolist(), times, strict=True)
        admitted = [passed for row, time in rows for passed in self.gate.admit(Reading(0, row, time))]
        if not admitted:
            return []
        values, ats = np.array([one.values for one in admitted]), [one.at for one in admitted]
        return [self._score_many(values, [one.time for one in admitted], ats)]

    def verdict(self, event: int, called: Called | None) -> Verdict | None:
        """Call the event with this number "normal" or a "fault"; None withdraws that. See `Stream.verdict`."""
        return self._stream.verdict(event, called)

    def finish(self) -> list[Answer]:
        """End the stream: returns the answers for readings that still wait, and closes an open event."""
        if self.gate.admitted == 0 and self._stream.seen == 0:
            raise InputError("No readings arrived.", advice="no readings")
        answers = [answer for last in self.gate.finish() for answer in self._score(last)]
        return [*answers, *self._answers(self._stream.finish())]

    def save(self, path: Path, position: Mapping[str, Any] | None = None, *, quiet: bool = False) -> None:
        """Write a snapshot to a file, completely or not at all.

        `position` says in JSON where the input and the output are; a resumed session has it as `session.position`.
        """
        self.position = {} if position is None else dict(position)
        content = self.snapshot()
        write_whole(path, lambda temporary: temporary.write_bytes(content))
        if quiet:
            return
        waiting = f"; the scores of the last {len(self._times)} will follow with the next readings"
        _log.info("Wrote '%s' after %s readings%s.", path, f"{self._stream.seen:,}", waiting if self._times else "")

    def snapshot(self) -> bytes:
        """The state of the session as bytes, for `resume`."""
        gate = {"kind": self.gate.kind, **self.gate.state()}
        facts = {"times": list(self._times), "gate": gate, "position": self.position}
        arrays = {"stream": np.frombuffer(self._stream.snapshot(), np.uint8)}
        return to_bytes(Checkpoint(KIND, facts, arrays | saved_state(self.gate, self.gate.saved_arrays)))

    def _score_many(self, values: Floats, times: Sequence[Time], ats: Sequence[Any]) -> Timed:
        at = None if self.detector.season_ is None else ats  # only a season needs it: who asks knows when events were
        if len(values) == 1:
            scored = self._stream.update(values[0], None if at is None else at[0])
        else:
            scored = self._stream.update_many(values, at)
        self._times.extend(times)
        return Timed(scored, [self._times.popleft() for _ in range(len(scored))])

    def _score(self, reading: Reading) -> Iterator[Answer]:
        scored = self._stream.update(reading.values, reading.at)
        self._times.append(reading.time)
        return self._answers(scored)

    def _answers(self, scored: Scored) -> Iterator[Answer]:
        changes = deque(scored.changes)
        for i in range(len(scored)):
            yield self._answer(scored, i, changes)
        if changes:  # the end of the stream closed an event whose readings were already answered
            yield {"step": changes[0].step, "events": [_as_json(change) for change in changes]}

    def _answer(self, scored: Scored, i: int, changes: deque[Change]) -> Answer:
        """The answer to one reading; removes its event changes from `changes`."""
        own = scored.variables[i]
        left_out = [] if scored.left_out is None else scored.left_out[i].nonzero()[0].tolist()
        top = [variable for variable in (-own).argsort(kind="stable").tolist() if variable not in left_out][:TOP]
        gaps: Answer = {"imputed": int(len(left_out) == len(own))} if self.detector.gaps.allowed else {}
        if left_out:
            gaps |= {"left_out": [self.detector.names_[variable] for variable in left_out]}
        step, time = scored.start + i, self._times.popleft()
        events = []
        while changes and changes[0].step == step:
            events.append(_as_json(changes.popleft()))
        return {
            "step": step,
            **({} if time is None else {"time": time}),
            "alert_score": float(scored.alert_scores[i]),
            "threshold": float(scored.thresholds[i]),
            "anomaly": int(scored.flags[i]),
            **gaps,
            "variables": {self.detector.names_[variable]: float(own[variable]) for variable in top},
            **({"events": events} if events else {}),
        }


def _checked_times(times: object) -> list[Time]:
    """The times of a saved session, as they were sent."""
    fits = isinstance(times, list) and all(time is None or type(time) in (str, int, float) for time in times)
    require_state(fits, "its 'times' are not a list of times")
    return list(times)  # type: ignore[call-overload, no-any-return]


def _as_json(change: Change) -> Answer:
    return {"change": change.kind, **change.event.as_json()}
