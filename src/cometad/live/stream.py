"""Online scoring: readings in, scores out."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Change, Event, Judged
from cometad.alerting.verdicts import Called, Verdict, restored_verdict
from cometad.alerting.watch import UNKNOWN
from cometad.arrays import Flags, Floats, Integers
from cometad.checkpoint import Checkpoint, from_bytes, restoring, to_bytes
from cometad.data.gaps import Filled, GapRun, complete
from cometad.data.prepare import TrendRun, all_exact
from cometad.detector import Detector
from cometad.errors import InputError, ModelFileError
from cometad.saving import Table, array, counted, each, fact, load_state, of_type, part, saved_state
from cometad.scoring.scores import Scores, joined
from cometad.series import Order, Series, as_series, check_like, unchecked_series, with_all_columns

_PLAIN, _DOUBLE = frozenset((np.ndarray, list, tuple)), np.dtype(np.float64)

KIND = "Stream"
SOURCE = "The snapshot"
EARLIEST, LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2, 9999))  # seconds; leaves room for bins


@dataclass(frozen=True, init=False)
class Scored:
    """Scores that became final; converts to an array of the ranking scores, as `decision_function` returns them.

    The alert scores, with all that belongs to them, are of the time steps `steps`. The ranking scores are of
    `ranking_steps`, which may come later.

    >>> import numpy as np
    >>> from cometad.live.stream import Scored
    >>> flags, thresholds, own = np.array([0, 1]), np.array([2.0, 2.0]), np.ones((2, 1))
    >>> scored = Scored(7, np.array([0.1, 3.0]), flags, thresholds, own, (), ranking_start=4, scores=np.array([0.5]))
    >>> np.concatenate([scored, scored]), list(scored.steps), list(scored.ranking_steps)
    (array([0.5, 0.5]), [7, 8], [4])
    """

    start: int  # the time step of the first alert score, counted from the start of the stream
    alert_scores: Floats  # (time,)
    flags: NDArray[np.int64]  # (time,)  1 if the alert score is above the threshold and the time step is not imputed
    thresholds: Floats  # (time,)  the threshold each alert score was compared with
    variables: Floats  # (time, variable)  each variable's calibrated score
    changes: Sequence[Change]  # events that opened, were updated or closed
    ranking_start: int  # the time step of the first ranking score
    scores: Floats  # (ranking time,)  ranking scores
    left_out: Flags | None = None  # (time, variable)  counted as normal because its readings were imputed

    def __init__(
        self,
        start: int,
        alert_scores: Floats,
        flags: NDArray[np.int64],
        thresholds: Floats,
        variables: Floats,
        changes: Sequence[Change],
        ranking_start: int,
        scores: Floats,
        left_out: Flags | None = None,
    ) -> None:
        # At once: to set the fields of a frozen object one by one takes longer than a view takes to score a reading.
        self.__dict__.update(
            start=start,
            alert_scores=alert_scores,
            flags=flags,
            thresholds=thresholds,
            variables=variables,
            changes=changes,
            ranking_start=ranking_start,
            scores=scores,
            left_out=left_out,
        )

    def __len__(self) -> int:
        return len(self.alert_scores)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.scores, dtype=dtype, copy=copy)

    @property
    def imputed(self) -> Flags:
        """Which time steps (time,) depend on imputed readings only and are not judged."""
        return np.zeros(len(self), bool) if self.left_out is None else np.asarray(self.left_out.all(axis=1))

    @property
    def steps(self) -> range:
        """The time steps of the alert scores."""
        return range(self.start, self.start + len(self))

    @property
    def ranking_steps(self) -> range:
        """The time steps of the ranking scores."""
        return range(self.ranking_start, self.ranking_start + len(self.scores))


def _micros(at: float) -> int:
    """A time in seconds since 1970, in microseconds."""
    if not EARLIEST <= at < LATEST:
        raise InputError(f"The time {at} is out of range. Send seconds since 1970.")
    return round(at * 1e6)


def _flag(value: object, name: str) -> bool:
    return bool(of_type(value, bool, name))


def _last_time(value: object, name: str) -> np.datetime64 | None:
    return None if value is None else np.datetime64(of_type(value, str, name), "ns")


# What a snapshot holds.
FACTS: Table = {
    "seen": fact("_seen", counted),
    "given": fact("_given", counted),
    "ranked": fact("_ranked", counted),
    "finished": fact("_finished", _flag),
    "dropped": fact("_order.dropped", counted),
    "last_time": fact("_order.last", _last_time, pack=lambda last: None if last is None else str(last)),
    "verdicts": fact("_verdicts.verdicts", each(restored_verdict), pack=lambda given: list(map(asdict, given))),
}
ARRAYS: Table = {
    "": part("_run"),
    "judge": part("_judge"),
    "waiting_times": array("_waiting", "waiting", dtype=np.int64, optional=True),
    "trends": part("_trends"),
    "season": part("_season"),
    "filling": part("_filling"),
    "events": part("_verdicts"),
}


class Stream:
    """Scores readings as they arrive, in constant memory; created by `detector.stream()`.

    >>> import numpy as np
    >>> from cometad import NetworkComet
    >>> from cometad.network import OneCycle
    >>> normal = np.random.default_rng(0).normal(size=(600, 2))
    >>> detector = NetworkComet(schedule=OneCycle(20)).fit(normal)
    >>> stream = detector.stream()
    >>> scored = [stream.update(row) for row in normal[:300]] + [stream.finish()]
    >>> bool(np.array_equal(np.concatenate(scored), detector.decision_function(normal[:300])))
    True
    """

    def __init__(self, detector: Detector, adaptation: Any, alerts: Alerts, late: str) -> None:
        self._detector, self._adaptation, self._alerts, self._late = detector, adaptation, alerts, late
        self._fingerprint = detector.fingerprint(adaptation, alerts)
        self._scaling, self._names, self._named = detector.scaling_, detector.names_, detector.named_
        self._shape = (len(self._names),)
        # Most updates of a network return this.
        self._nothing = (np.empty(0), np.empty(0, np.int64), np.empty(0), np.empty((0, len(self._names))), ())
        self.reset()

    def reset(self) -> None:
        """Return to the fitted state: forget all readings and everything learned from them."""
        self._run, self._verdicts = self._detector.open_run(self._adaptation)
        self._judge = self._detector.judge(self._alerts)
        gaps, usual = self._detector.gaps, self._detector.statistics_
        self._filling = GapRun(gaps, usual.center, usual.usual) if gaps.allowed else None
        trends = self._detector.trends_
        self._trends = TrendRun(trends) if trends.any else None
        self._season = copy.deepcopy(self._detector.season_)
        self._order = Order(self._late)
        self._warned = False  # about columns that are missing
        self._seen = 0
        self._given = self._ranked = 0
        self._waiting = np.empty(0, np.int64)  # times of readings without an alert score, in microseconds since 1970
        self._finished = False

    @property
    def seen(self) -> int:
        """Number of readings received, not counting dropped ones."""
        return self._seen

    @property
    def given(self) -> int:
        """Number of alert scores returned."""
        return self._given

    @property
    def dropped(self) -> int:
        """Number of late readings dropped."""
        return self._order.dropped

    @property
    def adaptation_steps(self) -> tuple[int, int]:
        """Number of adaptation steps taken, and how many of them were rolled back."""
        return self._run.adaptation_steps

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What people said about events of this stream, by event; the detector's own are in `detector.verdicts_`."""
        return () if self._verdicts is None else self._verdicts.verdicts

    def verdict(self, event: Event | int, called: Called | None) -> Verdict | None:
        """Call an event of this stream, or the event with this number, "normal" or a "fault"; None withdraws that.

        From the next reading on, whatever looks like a normal event no longer raises alerts, unless it also looks like
        a fault. Another verdict on the same event replaces the first. A verdict on an open event is about its readings
        so far. A stream remembers how its last 64 events looked and holds at most 64 verdicts; its snapshot has both.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 1000, 3))
        >>> fresh[[300, 600, 900], 1] = 12.0
        >>> stream = Comet().fit(normal).stream()
        >>> opened = [one.event for one in stream.update_many(fresh[:400]).changes if one.kind == "opened"]
        >>> said = stream.verdict(opened[-1], "normal")
        >>> said.start, said.variables
        (300, ('v1',))
        >>> later = stream.update_many(fresh[400:])
        >>> later.flags[[200, 500]]
        array([0, 0])
        """
        if self._verdicts is None:
            raise self._detector._cannot("take verdicts", "fit it on readings like those of the event")
        return self._verdicts.verdict(event, called, self._judge.alerts)

    def update(self, reading: Sequence[float] | NDArray[Any] | Mapping[str, float], at: float | None = None) -> Scored:
        """Add one reading, as values in the order of the variables or by name; returns the scores that become final.

        Events know their times if `at` has that of the reading, in seconds since 1970. A refused reading leaves the
        stream unchanged.
        """
        times = None if at is None else np.array([_micros(at)])
        values = self._plain(reading)
        if values is not None:
            self._take(1, times)
            return self._scored(self._push(values[None]))
        if isinstance(reading, Mapping) or (hasattr(reading, "index") and hasattr(reading, "items")):  # a pandas row
            reading = self._by_name(reading) if self._named or isinstance(reading, Mapping) else list(reading)
        if isinstance(reading, list):
            self._check_words(reading)
        one = reading.ndim == 1 if isinstance(reading, np.ndarray) else isinstance(reading, Sequence)
        if not one:
            raise InputError(
                f"Expected one reading of shape (variable,), got {np.shape(reading)}. "
                "Pass several at once to update_many."
            )
        return self._update_many(reading[None] if isinstance(reading, np.ndarray) else [reading], times)

    def _check_words(self, reading: Sequence[object]) -> None:
        """Refuse text in a reading, and name its variable."""
        for name, value in zip(self._names, reading, strict=False):
            if isinstance(value, str):
                raise InputError(
                    f"Variable {name!r} is {value!r} at time step {self._seen}, not a number. Send a number, or None "
                    "if it is missing."
                )

    def _plain(self, reading: object) -> Floats | None:
        """Fast path: the values of a plain valid reading, or None for any other reading."""
        if self._finished or type(reading) not in _PLAIN:
            return None
        try:
            values = np.array(reading)
        except ValueError:  # a ragged list
            return None
        if values.dtype is not _DOUBLE:
            if values.dtype.kind not in "iuf":
                return None
            values = values.astype(np.float64)
        return values if values.shape == self._shape and all_exact(values) else None

    def update_many(self, readings: object, at: Sequence[float | None] | None = None) -> Scored:
        """Add readings, an array (time, variable) or a frame; returns the scores that become final.

        `at` has the times of an array's readings, in seconds since 1970.
        """
        times = [_micros(each) for each in (() if at is None else at) if each is not None]
        return self._update_many(readings, np.array(times) if times else None)

    def _update_many(self, readings: object, times: Integers | None = None) -> Scored:
        if self._finished:
            raise InputError("The stream is finished. Open a new one with detector.stream().")
        if isinstance(readings, np.ndarray) and readings.ndim == 2 and len(readings) == 0:
            return self._scored([])
        arrived = unchecked_series(readings, self._names, self._seen)
        series = as_series(self._order.on_time(arrived), missing=self._filling is not None)
        if self._filling is not None and self._named:
            series = self._complete(series)
        check_like(series, self._names, self._named, type(self._detector).__name__)
        times = times if series.times is None else series.micros
        if times is not None and len(times) != len(series):
            raise InputError(f"Expected {len(series):,} times, one for each reading, got {len(times):,}.")
        self._take(len(series), times)
        if series.times is not None:
            self._order.dropped += len(arrived) - len(series)
            if len(series):
                self._order.last = series.times[-1].astype("datetime64[ns]")
        return self._scored(self._push(series.values))

    def _take(self, count: int, times: Integers | None) -> None:
        """Count readings, and remember their times until they have alert scores; nothing as long as there are none."""
        if self._season is not None and count:
            self._season.require_times(times is not None)
        self._seen += count
        if times is not None or len(self._waiting):
            known = np.full(count, UNKNOWN) if times is None else times
            earlier = np.full(self._seen - self._given - count - len(self._waiting), UNKNOWN)
            self._waiting = np.concatenate([earlier, self._waiting, known])

    def _push(self, values: Floats) -> Iterable[Scores]:
        if self._filling is None:
            return self._run.push(self._scaling(self._moved(values)))
        filled = self._filling.push(values)
        return self._push_filled(filled)

    def _push_filled(self, filled: Filled) -> Iterable[Scores]:
        imputed = filled.imputed if filled.imputed.any() else None
        scaled = self._scaling(self._moved(filled.values, imputed))
        return self._run.push(self._detector.substituted(scaled, filled.doubtful), imputed)

    def _moved(self, values: Floats, imputed: Flags | None = None) -> Floats:
        """What is scored of complete readings."""
        moved = values if self._trends is None else self._trends.push(values, imputed)
        if self._season is None:
            return moved
        stop = len(self._waiting) - (0 if self._filling is None else self._filling.waits)
        return self._season.push(moved, self._waiting[max(stop - len(values), 0) : max(stop, 0)], imputed)

    def _complete(self, series: Series) -> Series:
        """The series with all columns; missing ones are logged once."""
        whole = with_all_columns(series, self._names) if self._warned else complete(series, self._names)
        self._warned = self._warned or whole is not series
        return whole

    def finish(self) -> Scored:
        """End the stream: returns the scores that still wait for later readings, and closes an open event."""
        parts: Iterable[Scores] = ()
        if self._filling is not None:
            filled = self._filling.finish()
            parts = self._push_filled(filled)
        last = self._scored(chain(parts, self._run.finish()))
        closed = [] if self._finished else self._judge.finish()
        if closed and self._verdicts is not None:
            self._verdicts.close(closed[0])
        self._finished = True
        return replace(last, changes=[*last.changes, *closed])

    def snapshot(self) -> bytes:
        """The full state of the stream; `detector.stream(snapshot)` resumes from it, bit for bit."""
        facts = {"detector": self._fingerprint, **saved_state(self, FACTS)}
        return to_bytes(Checkpoint(KIND, facts, saved_state(self, ARRAYS)))

    def restore(self, snapshot: bytes) -> None:
        """Resume from a snapshot of a stream of the same detector, with the same settings."""
        checkpoint = from_bytes(snapshot, KIND, SOURCE, needs=("detector", "seen", "given", "finished"))
        taken_from = checkpoint.facts["detector"]
        earlier = self._detector.earlier_fingerprint
        if taken_from != self._fingerprint and taken_from != earlier(self._adaptation, self._alerts):
            raise ModelFileError(
                "The snapshot is from another detector, or from other threshold, adaptation or alert settings. "
                "Resume with the same ones."
            )
        self.reset()
        facts = {"ranked": checkpoint.facts["given"], "verdicts": []} | checkpoint.facts  # 0.1 had one score only
        try:
            with restoring("stream", SOURCE):
                load_state(self, FACTS, facts, dict)
                load_state(self, ARRAYS, checkpoint.arrays, lambda: {"waiting": self._seen - self._given})
        except ModelFileError:
            self.reset()  # not half of one state
            raise

    def _by_name(self, reading: Any) -> list[float]:
        missing = [name for name in self._names if name not in reading]
        if self._filling is not None and len(missing) < len(self._names):
            return [reading.get(name, np.nan) for name in self._names]
        if missing:
            raise InputError(
                f"The reading has no value for {missing[0]!r}. Send every variable the detector was fitted on."
            )
        return [reading[name] for name in self._names]

    def _scored(self, parts: Iterable[Scores]) -> Scored:
        found, judged = [], []
        for scores in parts:  # judged at once, because a run reuses the memory that verdicts look at
            found.append(scores)
            judged.append(self._judged(scores))
        if not found:
            return Scored(self._given, *self._nothing, self._ranked, np.empty(0))
        alerts, variables, left_out, ranking = found[0] if len(found) == 1 else joined(found)
        flags, thresholds, changes = judged[0] if len(judged) == 1 else Judged.joined(judged)
        ranking = alerts if ranking is None else ranking
        first = self._ranked
        self._ranked += len(ranking)
        start = self._given - len(alerts)
        return Scored(start, alerts, flags, thresholds, variables, changes, first, ranking, left_out)

    def _judged(self, part: Scores) -> Judged:
        count, times = len(part.alerts), None
        if len(self._waiting):
            times, self._waiting = self._waiting[:count], self._waiting[count:]
        judged = self._judge.push(part.alerts, None if part.left_out is None else part.imputed, times)
        verdicts, alerts = self._verdicts, self._judge.alerts
        if verdicts is not None and (judged.changes or verdicts.gathering is not None or alerts.since is not None):
            verdicts.see(self._given, part, judged.changes, alerts)
        self._given += count
        return judged
