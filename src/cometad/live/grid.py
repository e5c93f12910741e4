"""The gate that resamples a stream to a regular grid: each complete bin becomes one reading."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np

from cometad.arrays import Array
from cometad.data.cells import CORRECT, StreamDates
from cometad.data.resample import Resampling, summary
from cometad.data.text import Reading
from cometad.errors import InputError
from cometad.live.clock import check_gate, dropped
from cometad.saving import counted, require_state
from cometad.series import Series

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST, LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2, 9999))  # seconds; leaves room for bins


class Grid:
    """A gate that resamples readings; a bin passes with the first reading after it, labeled with its left edge.

    >>> from cometad.live.grid import Grid
    >>> from cometad.data.text import Reading
    >>> from cometad.data.resample import Resampling
    >>> grid = Grid(Resampling("60s", "mean"), ["flow"])
    >>> [bin for second in (0, 30, 70) for bin in grid.admit(Reading(2, [second], second))]
    [Reading(line=2, values=[15.0], time='1970-01-01T00:00:00+00:00', at=0.0)]
    """

    leaves_gaps: ClassVar[bool] = True  # an empty bin

    def __init__(
        self, resampling: Resampling, names: Sequence[str], late: str = "refuse", date_order: str | None = None
    ) -> None:
        self._run, self._names = resampling.start(late), tuple(names)
        self._dates = StreamDates(date_order)
        self._kind = repr(resampling)
        self.admitted = 0

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
        if not self._run.order.admits(at, late):
            return iter(())
        self.admitted += 1
        values = np.array([reading.values], np.float64)
        return self._readings(self._run.push(Series(values, self._names, np.array([at]), True)), reading.line)

    def finish(self) -> Iterator[Reading]:
        """The bin that is still open."""
        return self._readings(self._run.finish(), 0)

    def summary(self) -> list[str]:
        """Sentences that sum up what the gate did."""
        return [summary(self._run), *dropped(self._run.order)]

    def facts(self) -> dict[str, Any]:
        """The part of the state to save as JSON."""
        return {"kind": self._kind, "dropped": self._run.order.dropped, **self._dates.facts()}

    def arrays(self) -> dict[str, Array]:
        """The part of the state to save as arrays."""
        return {f"grid.{name}": array for name, array in self._run.state().items()}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Continue from a saved state."""
        check_gate(facts, self._kind)
        self._dates.restore(facts)
        self._run.restore({name: arrays[f"grid.{name}"] for name in self._run.state()})
        width = self._run.state()["rows"].shape[1]
        require_state(width in (0, len(self._names)), "its open bin has another number of variables")
        self._run.order.dropped = counted(facts["dropped"], "dropped")

    def _readings(self, bins: Series, line: int) -> Iterator[Reading]:
        times = () if bins.times is None else bins.times.astype("datetime64[us]").astype(np.int64).tolist()
        for values, time in zip(bins.values.tolist(), times, strict=True):
            yield Reading(line, values, (EPOCH + timedelta(microseconds=time)).isoformat(), time / 1e6)
