"""Tags: values that arrive variable by variable, each at its own rate, become readings on one grid, one per period."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from cometad.connect.address import Address, seconds_of
from cometad.connect.contract import Lost, ReadingBatch, Rejection
from cometad.connect.intake import Intake
from cometad.errors import ParameterError
from cometad.saving import Saved, Table, fact

HOLD = 10  # periods for which a value is valid
LONGEST_HOLD = 1000  # periods; also the longest silence that values without a limit bridge
PATIENCE = 2  # periods that a row waits for slow variables
AHEAD = 86_400.0  # seconds; a value with a wrong year would make all others late
BEHIND = 60.0  # seconds that values may be behind before it is reported
GAP_RULE = "Fit the detector with a gap rule, such as --gaps forward-fill:5"

Row = tuple[float, list[float]]  # time in seconds, and a value per variable
Timed = Sequence[Any]  # a time in microseconds and a value, None if it is bad; as JSON has them


class TagTable(Saved):
    """The last value of each variable; emits a row (variable,) per period, once it is complete.

    Rows fall on whole multiples of the period since 1970. A row has each variable's last value up to the row's time, or
    NaN if that is bad or at least `hold` periods old (None: no limit). A row is emitted as soon as every variable has a
    later value, or any has one more than two periods later, or `until` says that the clock has passed it. A
    value that arrives after its row was emitted is late: it never changes that row, and applies from the next row on,
    unless a newer one is known. The first rows wait until every variable has a value, for `hold` periods at most. No
    rows are emitted for a silence in which no value is valid, or for one of more than 1,000 periods.
    """

    saved: ClassVar[Table] = {
        **{name: fact(f"_{name}", lambda found, _: found) for name in ("names", "period", "next", "first", "newest")},
        "late": fact("late", lambda found, _: found),
        "known": fact("_known", lambda found, _: found, pack=dict),
        "waiting": fact("_waiting", lambda found, _: _by_row(found), pack=lambda waiting: list(_one_by_one(waiting))),
    }

    def __init__(self, names: Sequence[str], period: float, hold: int | None = HOLD) -> None:
        self._names, self._period = list(names), round(period * 1e6)  # microseconds, so that the grid does not drift
        self._hold = hold
        self._next: int | None = None  # number of the next row, in periods since 1970
        self._first = 0  # number of the row of the first value
        self._newest: int | None = None  # time of the newest value, in microseconds
        self._known: dict[str, Timed] = {}  # as of the last row
        self._waiting: dict[int, dict[str, Timed]] = {}  # the last value of each variable, by row
        self.late = 0

    @property
    def newest(self) -> float | None:
        return None if self._newest is None else self._newest / 1e6

    def continues(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is that of a table with the same variables and period."""
        return bool(state.get("names") == self._names and state.get("period") == self._period)

    def begin(self, at: float) -> None:
        """Emit no row before a time, and forget earlier values."""
        number = -(-round(at * 1e6) // self._period)
        self._next = self._first = number if self._next is None else max(number, self._next)
        self._known.clear()
        self._waiting.clear()

    def add(self, name: str, at: float, value: float) -> list[Row]:
        """Add a value, NaN if it is bad; returns the rows this completes, with their times."""
        timed = round(at * 1e6), None if math.isnan(value) else value
        number = -(-timed[0] // self._period)
        if self._next is None:
            self._next = self._first = number
        if number < self._next:
            self.late += 1
            _keep_newer(self._known, name, timed)
            return []
        _keep_newer(self._waiting.setdefault(number, {}), name, timed)
        self._newest = timed[0] if self._newest is None else max(self._newest, timed[0])
        return self._advance(self._complete(self._newest)) if number > self._next else []

    def until(self, now: float) -> list[Row]:
        return [] if self._next is None else self._advance(round(now * 1e6) // self._period)

    def _complete(self, newest: int) -> int:
        """The number of the last row that is complete, given the values so far."""
        # Strictly after `PATIENCE` periods: the row with the newest value is complete up to the one before.
        patient = math.ceil(newest / self._period) - 1 - PATIENCE
        seen = set[str]()
        for number in sorted(self._waiting, reverse=True):
            seen |= self._waiting[number].keys()
            if len(seen) == len(self._names):
                return max(number - 1, patient)
        return patient

    def _advance(self, last: int) -> list[Row]:
        assert self._next is not None
        rows = []
        while self._next <= last:
            following = min(self._waiting, default=last + 1)
            if following > self._next and self._is_silent(self._next, min(following, last + 1)):
                self._next = min(following, last + 1)
                continue
            row = self._row(self._next)
            if row is not None:
                rows.append(row)
            self._next += 1
        return rows

    def _is_silent(self, number: int, following: int) -> bool:
        """Whether no row is emitted from `number` until the row of the next value."""
        if self._hold is None:
            return following - number > LONGEST_HOLD
        return not any(self._holds(moment, number) for moment, _ in self._known.values())

    def _holds(self, moment: int, number: int) -> bool:
        return self._hold is None or moment > (number - self._hold) * self._period

    def _row(self, number: int) -> Row | None:
        """A row; None if it has no value, or if a variable may still be about to arrive."""
        for name, timed in self._waiting.pop(number, {}).items():
            _keep_newer(self._known, name, timed)
        if len(self._known) < len(self._names) and number < self._first + (self._hold or HOLD):
            return None
        row = []
        for name in self._names:
            moment, value = self._known.get(name, (0, None))
            row.append(math.nan if value is None or not self._holds(moment, number) else value)
        return None if all(map(math.isnan, row)) else (number * self._period / 1e6, row)


def _keep_newer(values: dict[str, Timed], name: str, timed: Timed) -> None:
    if name not in values or timed[0] >= values[name][0]:
        values[name] = timed


def _one_by_one(waiting: Mapping[int, Mapping[str, Timed]]) -> Iterator[list[Any]]:
    for number, slot in waiting.items():
        yield from ([number, name, *timed] for name, timed in slot.items())


def _by_row(waiting: Sequence[Any]) -> dict[int, dict[str, Timed]]:
    found: dict[int, dict[str, Timed]] = {}
    for number, name, *timed in waiting:
        found.setdefault(number, {})[name] = timed
    return found


class TagFeed:
    """Collects values in a `TagTable` and stores the rows; added values are on disk once `store` returns.

    The state of the table is stored with the rows, as the position of the connection, so that a value can be
    acknowledged before its row is complete, and a restart emits the same rows.
    """

    def __init__(self, address: Address, intake: Intake, hold: int | None = HOLD) -> None:
        self.stream, self.period = stream_and_period(address)
        layout = intake.layout(self.stream)
        _check_tags(address, list(layout.names), layout.gaps)
        self._intake, self._layout = intake, layout
        self.table = TagTable(layout.names, self.period, hold=hold)
        position = intake.position
        state = position.get("tags") if isinstance(position, dict) else None
        if isinstance(state, dict) and self.table.continues(state):
            self.table.restore(state)
        self._rows: list[Row] = []
        self._rejected: list[Rejection] = []
        self._behind = 0.0  # seconds from the next row back to the value that came last
        self._arrived: float | None = None  # arrival of the newest value, by the monotonic clock

    def add(self, name: str, at: float, value: float, where: str) -> None:
        """Add a value; one more than a day ahead of the local clock is set aside."""
        if at > time.time() + AHEAD:
            reason = f"The time {_shown_time(at)} of {name!r} is more than a day ahead of the local clock. Correct it."
            self.reject(where, json.dumps({"time": at, "value": value}).encode(), reason)
            return
        newest = self.table.newest
        self._rows += self.table.add(name, at, value)
        self._behind = 0.0 if newest is None else newest - at
        if newest is None or at > newest:
            self._arrived = time.monotonic()

    def reject(self, where: str, content: bytes, reason: str) -> None:
        """Set an unusable message aside; it is on disk once `store` returns."""
        self._rejected.append(Rejection(where, content, reason))

    def pass_time(self) -> None:
        """Complete rows when no values arrive: the source's clock is extrapolated from its newest value."""
        if self._arrived is not None and self.table.newest is not None:
            self.clock(self.table.newest + time.monotonic() - self._arrived)

    def clock(self, now: float) -> None:
        """Complete the rows whose waiting time is over when the source's clock is at `now`."""
        self._rows += self.table.until(now - PATIENCE * self.period)

    async def store(self, news: bool) -> None:
        """Store complete rows and, if there are any or `news` is true, the state of the table."""
        rows, self._rows = self._rows, []
        self._mention_clocks(bool(rows))
        layout = self._intake.layout(self.stream)
        if layout.names != self._layout.names:
            raise Lost(f"The detector of stream {self.stream!r} changed. Reading its tags again.")
        if not layout.gaps:
            rows = self._without_gaps(rows)
        rejected, self._rejected = self._rejected, []
        await self._intake.reject(rejected, self.stream)
        if rows or news:
            batch = ReadingBatch.on_grid(self.stream, layout.names, [at for at, _ in rows], [row for _, row in rows])
            await self._intake.deliver([batch] if rows else [], position={"tags": self.table.state()})

    def _mention_clocks(self, progress: bool) -> None:
        """Report why nothing is scored after a clock went back."""
        if progress:
            self._intake.connected()
        elif self._behind > max(BEHIND, 60 * self.period):
            self._intake.mark(
                "connected",
                f"Values arrive with times {self._behind:,.0f} s before those of earlier ones. Nothing is scored until "
                "they catch up; check the clocks.",
            )

    def _without_gaps(self, rows: list[Row]) -> list[Row]:
        complete = []
        for at, row in rows:
            named = dict(zip(self._layout.names, row, strict=True))
            missing = [name for name, value in named.items() if math.isnan(value)]
            if not missing:
                complete.append((at, row))
                continue
            listed = ", ".join(map(repr, missing[:3])) + (", ..." if len(missing) > 3 else "")
            reason = f"There is no good value for {listed} at {_shown_time(at)}. {GAP_RULE}, or fix the source."
            values = {name: None if math.isnan(value) else value for name, value in named.items()}
            self.reject(_shown_time(at), json.dumps(values).encode(), reason)
        return complete


def stream_and_period(address: Address) -> tuple[str, float]:
    """The stream that the tags of an address belong to, and the seconds between the rows of its grid."""
    if address.stream is None:
        raise ParameterError(f"The tags of {address.shown} need a stream. Name it with stream or --stream.")
    seconds = seconds_of(address.period)
    if seconds is None:
        raise ParameterError(
            f"The tags of {address.shown} need a period: the time between the readings the detector was fitted on. "
            "Set period or --period, such as 1s."
        )
    return address.stream, seconds


def _check_tags(address: Address, names: list[str], gaps: bool) -> None:
    stream = address.stream
    extra = next((name for name in address.tags if name not in names), None)
    if extra is not None:
        raise ParameterError(
            f"The detector of stream {stream!r} has no variable {extra!r} for the tag {address.tags[extra]!r}. "
            f"Its variables: {', '.join(names)}."
        )
    lacking = next((name for name in names if name not in address.tags), None)
    if lacking is not None and not gaps:
        raise ParameterError(
            f"There is no tag for variable {lacking!r} of stream {stream!r}. Add it with tags or --tag. "
            f"To do without it: {GAP_RULE[0].lower()}{GAP_RULE[1:]}."
        )


def _shown_time(at: float) -> str:
    """A time for display; one outside the calendar stays a number."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
