"""Verdicts on the events of a stream: how its last events looked, and what a person called them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cometad.alerting.alerts import AlertRun, Change, Event
from cometad.alerting.verdicts import Called, Verdict, check_called, restored_verdict
from cometad.arrays import Array
from cometad.errors import InputError, ParameterError
from cometad.parameters import is_integer
from cometad.saving import part_of, require_state, taken, with_part
from cometad.scoring.scores import Scores
from cometad.scoring.signatures import Gathering, Signature, Signatures, packed, unpacked

if TYPE_CHECKING:
    from cometad.views.panel import ViewsRun

REMEMBERED = 64  # events
MOST = 64  # verdicts


class EventSignature(NamedTuple):
    """An event, and how it looked up to now."""

    number: int
    start: int
    stop: int
    signature: Signature


class Verdicts:
    """The last events of a stream and the verdicts on them, in bounded memory.

    An event's signature covers its time steps and the quiet ones that closed it: views look at windows, so errors
    outlast an event.
    """

    def __init__(self, run: "ViewsRun", given: Signatures, names: Sequence[str]) -> None:
        self._run, self._given, self._names = run, given, names  # `given` are the signatures of the detector
        self._closed: dict[int, EventSignature] = {}  # the last events, oldest first
        self.gathering: Gathering | None = None  # of the open event, or of a candidate for one
        self._verdicts: dict[int, Verdict] = {}
        self._signatures: dict[int, Signature] = {}  # of the verdicts

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(self._verdicts[number] for number in sorted(self._verdicts))

    def see(self, start: int, scores: Scores, changes: Sequence[Change], alerts: AlertRun) -> None:
        """Gather how events look: these are the scores from step `start` on, `alerts` has just caused `changes`.

        Scores without an event or a candidate for one, before or after them, change nothing.
        """
        since = alerts.since
        for change in changes:
            if change.kind == "closed":
                self.close(change, start, scores)
        self.gathering = None if since is None else self._gathered(since, start + len(scores.alerts), start, scores)

    def close(self, change: Change, start: int = 0, scores: Scores | None = None) -> None:
        event = change.event
        gathering = self.gathering if scores is None else self._gathered(event.start, change.step + 1, start, scores)
        if gathering is not None:
            self._closed[event.number] = EventSignature(event.number, event.start, event.stop, gathering.signature())
        while len(self._closed) > REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _gathered(self, since: int, stop: int, start: int, scores: Scores) -> Gathering:
        """What was gathered from step `since` up to `stop`, some of it before these scores."""
        rows, errors = self._run.latest
        gathering = self.gathering
        if gathering is None or gathering.start != since:
            gathering = Gathering(since, *errors.shape[1:])
            gathering.stop = max(since, start)  # a snapshot of an earlier version lacks what came before
        own = slice(gathering.stop - start, stop - start)
        gathering.add(rows[own], errors[own], scores.variables[own])
        return gathering

    def verdict(self, event: object, called: Called | None, alerts: AlertRun) -> Verdict | None:
        number = _event_number(event)
        if called is None:
            self._withdraw(number, alerts)
            return None
        check_called(called)
        seen = self._seen(number, alerts)
        if number not in self._verdicts and len(self._verdicts) >= MOST:
            raise ParameterError(
                f"A stream holds at most {MOST} verdicts. Withdraw one with stream.verdict(event, None), or teach the "
                "detector with learn_normal."
            )
        if not len(seen.signature.variables):
            raise InputError(f"Nothing in event {number} is unusual enough to recognize it. Raise the threshold.")
        worst = tuple(self._names[i] for i in seen.signature.worst())
        self._verdicts[number] = Verdict(number, seen.start, seen.stop, called, worst)
        self._signatures[number] = seen.signature
        self._apply()
        return self._verdicts[number]

    def _withdraw(self, number: int, alerts: AlertRun) -> None:
        if number not in self._verdicts:
            _check_exists(number, alerts)
            raise InputError(f"There is no verdict on event {number} to withdraw.")
        del self._verdicts[number], self._signatures[number]
        self._apply()

    def _seen(self, number: int, alerts: AlertRun) -> EventSignature:
        """The event as it is now: open, closed, or forgotten but for its verdict."""
        _check_exists(number, alerts)
        event = alerts.event
        if event is not None and event.number == number and self.gathering is not None:
            return EventSignature(number, event.start, event.stop, self.gathering.signature())
        if number in self._closed:
            return self._closed[number]
        if number in self._verdicts:
            earlier = self._verdicts[number]
            return EventSignature(number, earlier.start, earlier.stop, self._signatures[number])
        raise InputError(
            f"Event {number} is too long ago: a stream remembers its last {REMEMBERED} events. "
            "Call its readings normal with detector.learn_normal."
        )

    def _apply(self) -> None:
        own: dict[str, list[Signature]] = {"normal": [], "fault": []}
        for verdict in self.verdicts:
            own[verdict.called].append(self._signatures[verdict.number])
        given = self._given
        self._run.follow_signatures(
            replace(given, normal=(*given.normal, *own["normal"]), faults=(*given.faults, *own["fault"]))
        )

    # -- state ------------------------------------------------------------------------------------------------------

    def take(self, facts: Sequence[Mapping[str, Any]]) -> None:
        """Take saved verdicts, before `restore` takes their signatures."""
        self._verdicts = {verdict.number: verdict for verdict in map(restored_verdict, facts)}

    def state(self) -> dict[str, Array]:
        """The arrays that `restore` needs besides the verdicts, by name; none if there was no event."""
        closed, judged = list(self._closed.values()), [self._signatures[verdict.number] for verdict in self.verdicts]
        state = with_part("case", packed([one.signature for one in closed])) | with_part("verdict", packed(judged))
        if closed:
            state["case.steps"] = np.array([one[:3] for one in closed], np.int64)
        return state | ({} if self.gathering is None else with_part("open", self.gathering.state()))

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = self._run.latest.values.shape[1:]  # views and variables
        case, gathering = part_of(state, "case"), part_of(state, "open")
        closed, judged = unpacked(case, *sizes), unpacked(part_of(state, "verdict"), *sizes)
        steps = taken(case, "steps", (len(closed), 3), np.int64).tolist() if closed else []
        fits = len(closed) <= REMEMBERED and len(self._verdicts) == len(judged) <= MOST
        require_state(fits, "it has too many events")
        pairs = zip(steps, closed, strict=True)
        self._closed = {number: EventSignature(number, start, stop, seen) for (number, start, stop), seen in pairs}
        self._signatures = dict(zip(self._verdicts, judged, strict=True))
        if gathering:
            self.gathering = Gathering(0, *sizes)
            self.gathering.restore(gathering)
        self._apply()


def _event_number(event: object) -> int:
    if isinstance(event, Event):
        return event.number
    if is_integer(event):
        return int(event)  # type: ignore[call-overload, no-any-return]
    raise ParameterError(f"Cannot give a verdict on {event!r}. Pass an event of the stream or its number.")


def _check_exists(number: int, alerts: AlertRun) -> None:
    if not 1 <= number <= alerts.opened:
        had = {0: "no event", 1: "1 event"}.get(alerts.opened, f"{alerts.opened:,} events")
        raise InputError(f"This stream has had {had}; there is no event {number}.")
