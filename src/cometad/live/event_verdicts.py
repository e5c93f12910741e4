"""Verdicts on the events of a stream: how its last events looked, and what a person called them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from cometad.alerting.alerts import AlertRun, Change, Event
from cometad.alerting.verdicts import Called, Verdict, check_called, restored_verdict
from cometad.arrays import Array, Floats
from cometad.errors import InputError, ParameterError
from cometad.parameters import is_integer
from cometad.saving import require_state, taken
from cometad.scoring.scores import Scores
from cometad.scoring.signatures import Gathering, Signature, Signatures, packed, unpacked

REMEMBERED = 64  # events
MOST = 64  # verdicts


class ExcusingRun(Protocol):
    """What verdicts need: a run that shows what its scores come from, and excuses what a person called normal."""

    latest: tuple[Floats, Floats]  # rows (time, variable) and errors (time, view, variable) of the last scores

    def follow_signatures(self, signatures: Signatures) -> None:
        """Use other signatures for the alert scores from the next reading on."""


class Case(NamedTuple):
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

    def __init__(self, run: ExcusingRun, given: Signatures, names: Sequence[str]) -> None:
        self._run, self._given, self._names = run, given, names  # `given` are the signatures of the detector
        self._cases: dict[int, Case] = {}  # closed events, oldest first
        self._gathering: Gathering | None = None  # of the open event, or of a candidate for one
        self._verdicts: dict[int, Verdict] = {}
        self._signatures: dict[int, Signature] = {}  # of the verdicts

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts, by event."""
        return tuple(self._verdicts[number] for number in sorted(self._verdicts))

    def see(self, start: int, part: Scores, changes: Sequence[Change], alerts: AlertRun) -> None:
        """Gather how events look: `part` are the scores from step `start` on, `alerts` has just caused `changes`."""
        since = alerts.since
        if self._gathering is None and since is None and not changes:  # nothing unusual
            return
        for change in changes:
            if change.kind == "closed":
                self.close(change, start, part)
        self._gathering = None if since is None else self._gathered(since, start + len(part.alerts), start, part)

    def close(self, change: Change, start: int = 0, part: Scores | None = None) -> None:
        """Remember an event that closed."""
        event = change.event
        gathering = self._gathering if part is None else self._gathered(event.start, change.step + 1, start, part)
        if gathering is not None:
            self._cases[event.number] = Case(event.number, event.start, event.stop, gathering.signature())
        while len(self._cases) > REMEMBERED:
            del self._cases[next(iter(self._cases))]

    def _gathered(self, since: int, stop: int, start: int, part: Scores) -> Gathering:
        """What was gathered from step `since` up to `stop`, some of it before this part."""
        rows, errors = self._run.latest
        gathering = self._gathering
        if gathering is None or gathering.start != since:
            gathering = Gathering(since, *errors.shape[1:])
            gathering.stop = max(since, start)  # a snapshot of an earlier version lacks what came before
        own = slice(gathering.stop - start, stop - start)
        gathering.add(rows[own], errors[own], part.variables[own])
        return gathering

    def verdict(self, event: object, called: Called | None, alerts: AlertRun) -> Verdict | None:
        """Take or withdraw a verdict."""
        number = _event_number(event)
        if called is None:
            self._withdraw(number, alerts)
            return None
        check_called(called)
        case = self._case(number, alerts)
        if number not in self._verdicts and len(self._verdicts) >= MOST:
            raise ParameterError(
                f"A stream holds at most {MOST} verdicts. Withdraw one with stream.verdict(event, None), or teach the "
                "detector with learn_normal."
            )
        if not len(case.signature.variables):
            raise InputError(f"Nothing in event {number} is unusual enough to recognize it. Raise the threshold.")
        worst = tuple(self._names[i] for i in case.signature.worst())
        self._verdicts[number] = Verdict(number, case.start, case.stop, called, worst)
        self._signatures[number] = case.signature
        self._apply()
        return self._verdicts[number]

    def _withdraw(self, number: int, alerts: AlertRun) -> None:
        if number not in self._verdicts:
            _check_exists(number, alerts)
            raise InputError(f"There is no verdict on event {number} to withdraw.")
        del self._verdicts[number], self._signatures[number]
        self._apply()

    def _case(self, number: int, alerts: AlertRun) -> Case:
        """The event as it is now: open, closed, or forgotten but for its verdict."""
        _check_exists(number, alerts)
        event = alerts.event
        if event is not None and event.number == number and self._gathering is not None:
            return Case(number, event.start, event.stop, self._gathering.signature())
        if number in self._cases:
            return self._cases[number]
        if number in self._verdicts:
            earlier = self._verdicts[number]
            return Case(number, earlier.start, earlier.stop, self._signatures[number])
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

    def facts(self) -> list[dict[str, Any]]:
        """The verdicts, in types that JSON can hold."""
        return [asdict(verdict) for verdict in self.verdicts]

    def state(self) -> dict[str, Array]:
        """The arrays that `restore` needs besides `facts`, by name; none if there was no event."""
        cases = list(self._cases.values())
        state = {f"case.{name}": array for name, array in packed([case.signature for case in cases]).items()}
        if cases:
            state["case.steps"] = np.array([case[:3] for case in cases], np.int64)
        signatures = [self._signatures[verdict.number] for verdict in self.verdicts]
        state |= {f"verdict.{name}": array for name, array in packed(signatures).items()}
        if self._gathering is not None:
            state |= {f"open.{name}": array for name, array in self._gathering.state().items()}
        return state

    def restore(self, facts: Sequence[Mapping[str, Any]], state: Mapping[str, Array]) -> None:
        """Restore what `facts` and `state` returned."""
        parts: dict[str, dict[str, Array]] = {"case": {}, "verdict": {}, "open": {}}
        for name, array in state.items():
            part, _, field = name.partition(".")
            parts[part][field] = array
        sizes = self._run.latest[1].shape[1:]  # views and variables
        cases, signatures = unpacked(parts["case"], *sizes), unpacked(parts["verdict"], *sizes)
        steps = taken(parts["case"], "steps", (len(cases), 3), np.int64).tolist() if cases else []
        verdicts = {verdict.number: verdict for verdict in map(restored_verdict, facts)}
        require_state(len(cases) <= REMEMBERED and len(verdicts) == len(signatures) <= MOST, "it has too many events")
        self._cases = {step[0]: Case(step[0], step[1], step[2], case) for step, case in zip(steps, cases, strict=True)}
        self._verdicts, self._signatures = verdicts, dict(zip(verdicts, signatures, strict=True))
        self._gathering = Gathering.restored(parts["open"], *sizes) if parts["open"] else None
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
