"""When a time step was, how long something took, and where an axis of times has its ticks."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_SECOND, _MINUTE, _HOUR, _DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6  # in microseconds, like all times here
_UNITS = (("day", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", _SECOND), ("ms", 10**3), ("µs", 1))
_STEPS = (
    *(power * digit for power in (1, 10, 100, 10**3, 10**4, 10**5) for digit in (1, 2, 5)),
    *(count * _SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 5, 10)),
)
_MONTH_STEPS = (1, 2, 3, 6, *(12 * power * digit for power in (1, 10, 100, 1000) for digit in (1, 2, 5)))
_MONTHS_BEFORE = 12 * 1970  # numpy counts months from there, a round year is counted from 0


class Tick(NamedTuple):
    """A mark on an axis.

    >>> from cometad.report.times import Tick
    >>> Tick(0.5, "12:00").label
    '12:00'
    """

    place: float  # 0 at one end of the axis, 1 at the other
    label: str


@dataclass(frozen=True)
class Clock:
    """The times of a series' time steps, where it has any; else the time steps count.

    >>> import numpy as np
    >>> from cometad.report.times import Clock
    >>> clock = Clock(3, np.array(["2026-03-01T12:10", "2026-03-01T12:15", "2026-03-01T12:20"], "datetime64[us]"))
    >>> clock.at(1), clock.lasting(0, 2)
    ('2026-03-01 12:15', '10 min')
    >>> Clock(1200).at(1000), Clock(1200).lasting(0, 1200)
    ('step 1,000', '1,200 readings')
    """

    readings: int
    times: Array | None = None  # (time,) strictly increasing

    def at(self, step: int) -> str:
        """The time of a step, as exact as the times of the series are."""
        if self.times is None:
            return f"step {step:,}"
        text = str(self.times[step].astype("datetime64[us]")).replace("T", " ")
        return text[: self._characters]

    def later(self, step: int, start: int) -> str:
        """The time of a step after another one that was told: without the date, where that is the same.

        >>> import numpy as np
        >>> from cometad.report.times import Clock
        >>> Clock(2, np.array(["2026-03-01T12:10", "2026-03-01T12:15"], "datetime64[us]")).later(1, 0)
        '12:15'
        """
        date, _, time = self.at(step).partition(" ")
        return time if self.times is not None and self.at(start).startswith(date) else f"{date} {time}"

    def lasting(self, start: int, stop: int) -> str:
        """How long the time steps start..stop took in all, in words."""
        if self.times is None:
            return f"{stop - start:,} reading{'s' if stop - start != 1 else ''}"
        if len(self.times) == 1:
            return "1 reading"
        # To the step after the last one; after its very last step the series goes on for as long as before it.
        inside = self.times[stop] if stop < len(self.times) else self.times[-1] + (self.times[-1] - self.times[-2])
        return duration(int(_micros(inside - self.times[start])))

    def ticks(self, start: int, stop: int, count: int = 6) -> tuple[Tick, ...]:
        """About so many ticks for an axis from the time step `start` to the last before `stop`, at round times."""
        width = max(stop - 1 - start, 1)
        if self.times is None:
            unit = _round_number(width / count)
            steps = range(-(-start // unit) * unit, stop, unit)
            return tuple(Tick((step - start) / width, f"{step:,}") for step in steps)
        times = self.times[start:stop].astype("datetime64[us]")
        marks, unit = _round_times(times[0], times[-1], count)
        places = np.interp(_micros(marks), _micros(times), np.arange(len(times))) / width
        return tuple(Tick(float(place), _tick_label(mark, unit)) for place, mark in zip(places, marks, strict=True))

    @property
    def axis(self) -> str:
        """What an axis of time steps shows."""
        return "time step" if self.times is None else "time"

    @cached_property
    def _characters(self) -> int:
        """How much of a time's text to show: to the minute, the second or all of it."""
        assert self.times is not None
        micros = _micros(self.times)
        if not (micros % _MINUTE).any():
            return 16
        return 26 if (micros % _SECOND).any() else 19


def duration(micros: int) -> str:
    """A length of time in its two largest units.

    >>> from cometad.report.times import duration
    >>> duration(7 * 86400 * 10**6), duration((3 * 3600 + 20 * 60 + 5) * 10**6), duration(1500)
    ('7 days', '3 h 20 min', '1 ms 500 µs')
    """
    place = next((k for k, (_, size) in enumerate(_UNITS) if micros >= size), len(_UNITS) - 1)
    words: list[str] = []
    for name, size in _UNITS[place : place + 2]:
        number, micros = divmod(micros, size)
        plural = "s" if name == "day" and number != 1 else ""
        if number or not words:
            words.append(f"{number:,} {name}{plural}")
    return " ".join(words)


def _micros(times: Array) -> Array:
    """Times or lengths of time as whole numbers."""
    return times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)


def _round_number(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, ... that is not below `least`."""
    power = int(10 ** math.floor(math.log10(max(least, 1))))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def _round_times(first: np.datetime64, last: np.datetime64, count: int) -> tuple[Array, int]:
    """Round times from the first to the last one, and the microseconds between them: 0 where they are months."""
    span = int((last - first).astype(np.int64))
    unit = next((step for step in _STEPS if step * count >= span), 0)
    if unit:
        begin = -(-int(first.astype(np.int64)) // unit) * unit
        return np.arange(begin, int(last.astype(np.int64)) + 1, unit).astype("datetime64[us]"), unit
    begin, end = (int(time.astype("datetime64[M]").astype(np.int64)) + _MONTHS_BEFORE for time in (first, last))
    months = next((step for step in _MONTH_STEPS if step * count >= end - begin), _MONTH_STEPS[-1])
    numbers = np.arange(-(-begin // months) * months, end + 1, months) - _MONTHS_BEFORE
    marks = numbers.astype("datetime64[M]").astype("datetime64[us]")
    return marks[marks >= first], 0


def _tick_label(mark: np.datetime64, unit: int) -> str:
    text = str(mark)  # 2026-03-01T12:10:00.000000
    year, month, day = text[:4], int(text[5:7]), int(text[8:10])
    if not unit:
        return year if month == 1 else f"{MONTHS[month - 1]} {year}"
    if text.endswith("T00:00:00.000000"):
        return f"{MONTHS[month - 1]} {day}"
    if unit < _SECOND:
        return text[17:26].rstrip("0").rstrip(".") + " s"
    return text[11:19] if unit < _MINUTE else text[11:16]
