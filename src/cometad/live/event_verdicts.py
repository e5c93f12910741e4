"""Verdicts on the events of a stream: how its last events looked, and what a person called them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cometad.alerting.alerts import AlertRun, Change, Event
from cometad.alerting.verdicts import CALLED, Called, Verdict, check_called
from cometad.errors import InputError, ParameterError
from cometad.parameters import is_integer
from cometad.saving import Saved, Table, array, part, require_state
from cometad.scoring.scores import Scores
from cometad.scoring.signatures import Gathering, Signature, Signatures, signatures

if TYPE_CHECKING:
    from cometad.views.panel import ViewsRun

REMEMBERED = 64  # events
MOST = 64  # verdicts


class Verdicts(Saved):
    """The last events of a stream and the verdicts on them, in bounded memory.

    An event's signature covers its time steps and the quiet ones that closed it: views look at windows, so errors
    outlast an event.
    """

    saved: ClassVar[Table] = {
        "case": signatures("_closed"),
        "case.steps": array("_steps", "case?", 3, dtype=np.int64, optional=True, pack=np.array, make=np.ndarray.tolist),
        "verdict": signatures("_signatures"),
        "open": part("gathering", lambda own: Gathering(0, *own.shape)),
    }

    def __init__(self, run: "ViewsRun", given: Signatures, names: Sequence[str]) -> None:
        self._run, self._given, self._names = run, given, names  # `given` are the signatures of the detector
        self._steps: Sequence[Sequence[int]] = ()  # number, start and stop of the last closed events, oldest first
        self._closed: Sequence[Signature] = ()  # their signatures
        self.gathering: Gathering | None = None  # of the open event, or of a candidate for one
        self.verdicts: tuple[Verdict, ...] = ()  # by event
        self._signatures: Sequence[Signature] = ()  # of the verdicts

    @property
    def shape(self) -> tuple[int, int]:
        """The number of views and of variables."""
        return self._run.latest.values.shape[1:]

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
            self._steps = [*self._steps, (event.number, event.start, event.stop)][-REMEMBERED:]
            self._closed = [*self._closed, gathering.signature()][-REMEMBERED:]

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
            _check_exists(number, alerts)
            if number not in self._known:
                raise InputError(f"There is no verdict on event {number} to withdraw.")
            self._replace(number, None)
            return None
        check_called(called)
        start, stop, seen = self._seen(number, alerts)
        if number not in self._known and len(self.verdicts) >= MOST:
            raise ParameterError(
                f"A stream holds at most {MOST} verdicts. Withdraw one with stream.verdict(event, None), or teach the "
                "detector with learn_normal."
            )
        if not len(seen.variables):
            raise InputError(f"Nothing in event {number} is unusual enough to recognize it. Raise the threshold.")
        found = Verdict(number, start, stop, called, tuple(self._names[i] for i in seen.worst()))
        self._replace(number, (found, seen))
        return found

    @property
    def _known(self) -> dict[int, tuple[Verdict, Signature]]:
        """The verdicts with their signatures, by the number of the event."""
        return {one.number: (one, seen) for one, seen in zip(self.verdicts, self._signatures, strict=True)}

    def _seen(self, number: int, alerts: AlertRun) -> tuple[int, int, Signature]:
        """Start, stop and signature of an event as it is now: open, closed, or forgotten but for its verdict."""
        _check_exists(number, alerts)
        event = alerts.event
        if event is not None and event.number == number and self.gathering is not None:
            return event.start, event.stop, self.gathering.signature()
        for (closed, start, stop), seen in zip(self._steps, self._closed, strict=True):
            if closed == number:
                return start, stop, seen
        if number in self._known:
            earlier, seen = self._known[number]
            return earlier.start, earlier.stop, seen
        raise InputError(
            f"Event {number} is too long ago: a stream remembers its last {REMEMBERED} events. "
            "Call its readings normal with detector.learn_normal."
        )

    def _replace(self, number: int, own: tuple[Verdict, Signature] | None) -> None:
        """Set or withdraw the verdict on an event."""
        known = self._known | {number: own}
        pairs = [pair for _, pair in sorted(known.items()) if pair is not None]
        self.verdicts, self._signatures = tuple(one for one, _ in pairs), tuple(seen for _, seen in pairs)
        self._apply()

    def _apply(self) -> None:
        judged = list(zip(self.verdicts, self._signatures, strict=True))
        normal, faults = ([seen for one, seen in judged if one.called == called] for called in CALLED)
        given = self._given
        self._run.follow_signatures(replace(given, normal=(*given.normal, *normal), faults=(*given.faults, *faults)))

    def sizes(self) -> dict[str, int]:
        return dict(zip(("view", "variable"), self.shape, strict=True))

    def check_state(self) -> None:
        """Refuse more events than are remembered, and apply the verdicts, which are loaded before their signatures."""
        require_state(len(self._steps) == len(self._closed), "it has no array 'case.steps'")
        fits = len(self._closed) <= REMEMBERED and len(self.verdicts) == len(self._signatures) <= MOST
        require_state(fits, "it has too many events")
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
