"""Feeds values of single variables to a stream: aligned to a grid, checked, and stored with the table's state."""

import json
import math
import time
from datetime import UTC, datetime

from cometad.connect.address import Address
from cometad.connect.contract import Lost, ReadingBatch
from cometad.connect.intake import Intake, Unused
from cometad.connect.tags import HOLD, PATIENCE, Row, TagTable, stacked
from cometad.errors import ParameterError

AHEAD = 86_400.0  # seconds; a value with a wrong year would make all others late
BEHIND = 60.0  # seconds that values may be behind before it is reported
GAP_RULE = "Fit the detector with a gap rule, such as --gaps forward-fill:5"


class TagFeed:
    """Collects values in a `TagTable` and stores the rows; added values are on disk once `store` returns.

    The state of the table is stored with the rows, as the position of the connection, so that a value can be
    acknowledged before its row is complete, and a restart emits the same rows.
    """

    def __init__(self, address: Address, intake: Intake, hold: int | None = HOLD) -> None:
        self.stream, period = checked_stream(address), checked_period(address)
        layout = intake.layout(self.stream)
        _check_tags(address, list(layout.names), layout.gaps)
        self._intake, self._layout = intake, layout
        self.table = TagTable(layout.names, period, hold=hold)
        self.period = period
        position = intake.position
        if isinstance(position, dict) and isinstance(position.get("tags"), dict):
            self.table.restore(position["tags"])
        self._rows: list[Row] = []
        self._aside: list[Unused] = []
        self._behind = 0.0  # seconds from the next row back to the value that came last
        self._arrived: float | None = None  # arrival of the newest value, by the monotonic clock

    def add(self, name: str, at: float, value: float, where: str) -> None:
        """Add a value; one more than a day ahead of the local clock is set aside."""
        if at > time.time() + AHEAD:
            reason = f"The time {_shown_time(at)} of {name!r} is more than a day ahead of the local clock. Correct it."
            self.set_aside(where, json.dumps({"time": at, "value": value}).encode(), reason)
            return
        newest = self.table.newest
        self._rows += self.table.add(name, at, value)
        self._behind = 0.0 if newest is None else newest - at
        if newest is None or at > newest:
            self._arrived = time.monotonic()

    def set_aside(self, where: str, content: bytes, reason: str) -> None:
        """Set an unusable message aside; it is on disk once `store` returns."""
        self._aside.append(Unused(where, content, reason))

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
        aside, self._aside = self._aside, []
        await self._intake.put_all_aside(aside, self.stream)
        times, values = stacked(rows)
        lines = range(1, len(times) + 1)
        batches = [ReadingBatch(self.stream, layout.names, values, times, [None] * len(times), lines)] if rows else []
        if batches or news:
            await self._intake.deliver(batches, position={"tags": self.table.state()})

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
        """The complete rows; the others are set aside, because the detector has no gap rule."""
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
            self.set_aside(_shown_time(at), json.dumps(values).encode(), reason)
        return complete


def checked_stream(address: Address) -> str:
    """The stream that the tags of an address belong to."""
    if address.stream is None:
        raise ParameterError(f"The tags of {address.shown} need a stream. Name it with stream or --stream.")
    return address.stream


def checked_period(address: Address) -> float:
    """Seconds between the rows of the grid."""
    if address.seconds is None:
        raise ParameterError(
            f"The tags of {address.shown} need a period: the time between the readings the detector was fitted on. "
            "Set period or --period, such as 1s."
        )
    return address.seconds


def _check_tags(address: Address, names: list[str], gaps: bool) -> None:
    """Refuse tags that do not match the detector's variables."""
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
