"""Readings of a stream on a regular grid: each bin that is complete is one reading."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from cometad.arrays import Array
from cometad.data.resample import Resampling, told
from cometad.errors import InputError
from cometad.live.clock import check_gate, dropped, instant
from cometad.live.readings import Reading
from cometad.series import Series

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Grid:
    """Resamples readings one by one; a bin comes with the first reading after it, and has the time of its left edge.

    >>> from cometad.live.grid import Grid
    >>> from cometad.live.readings import Reading
    >>> from cometad.data.resample import Resampling
    >>> grid = Grid(Resampling("60s", "mean"), ["flow"])
    >>> [bin for second in (0, 30, 70) for bin in grid.admit(Reading(2, [second], second))]
    [Reading(line=2, values=[15.0], time='1970-01-01T00:00:00+00:00')]
    """

    def __init__(self, resampling: Resampling, names: Sequence[str], late: str = "refuse") -> None:
        self._run, self._names, self._late = resampling.start(), tuple(names), late
        self._kind = repr(resampling)
        self._dropped = 0
        self.admitted = 0

    def admit(self, reading: Reading) -> Iterator[Reading]:
        """The bins that are complete with a reading; one for a bin that was given is refused or dropped."""
        seconds = instant(reading.time)
        if seconds is None:
            raise InputError(
                f"Line {reading.line}: --resample needs a time, as a number of seconds or like 2024-03-01 04:10:00. "
                "Send one with every reading."
            )
        time = np.datetime64(round(seconds * 1e6), "us")
        if self._run.edge is not None and time < self._run.edge:
            if self._late == "drop":
                self._dropped += 1
                return iter(())
            raise InputError(
                f"Line {reading.line}: the time {reading.time} lies in a bin that was given already. "
                "Send readings in the order of time, or pass --late drop."
            )
        self.admitted += 1
        values = np.array([reading.values], np.float64)
        return self._readings(self._run.push(Series(values, self._names, np.array([time]), True)), reading.line)

    def finish(self) -> Iterator[Reading]:
        """The bin that was still open."""
        return self._readings(self._run.finish(), 0)

    def told(self) -> list[str]:
        """What was done, in sentences."""
        return [told(self._run), *([dropped(self._dropped)] if self._dropped else [])]

    def facts(self) -> dict[str, Any]:
        """What a later `restore` needs, as JSON can hold it."""
        return {"kind": self._kind, "dropped": self._dropped}

    def arrays(self) -> dict[str, Array]:
        """What a later `restore` needs besides."""
        return {f"grid.{name}": array for name, array in self._run.state().items()}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Become the grid whose state it is."""
        check_gate(facts, self._kind)
        self._dropped = facts["dropped"]
        self._run.restore({name: arrays[f"grid.{name}"] for name in self._run.state()})

    def _readings(self, bins: Series, line: int) -> Iterator[Reading]:
        times = () if bins.times is None else bins.times.astype("datetime64[us]").astype(np.int64).tolist()
        for values, time in zip(bins.values.tolist(), times, strict=True):
            yield Reading(line, values, (EPOCH + timedelta(microseconds=time)).isoformat())
