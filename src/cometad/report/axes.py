"""Axes: where a value or a time lies, which of them get a label, and numbers, times and periods in words."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Array, Floats

# An axis becomes logarithmic if its highest score is this many times as far above the center as the threshold is: on a
# linear axis, such a peak would flatten everything else.
LOGARITHMIC_FROM = 8.0
LARGEST, MOST_DIGITS = sys.float_info.max, sys.float_info.max_10_exp
SMALLEST = 1e-300  # a difference below it leaves no room for ticks
NEARLY_CONSTANT = 1e-6  # values that differ by less than this share of their size get an axis as wide as a constant

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_SECOND, _MINUTE, _HOUR, _DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6  # in microseconds, as everywhere here
_UNITS = (("day", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", _SECOND), ("ms", 10**3), ("µs", 1))
_STEPS = (
    *(power * digit for power in (1, 10, 100, 10**3, 10**4, 10**5) for digit in (1, 2, 5)),
    *(count * _SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 5, 10)),
)
_MONTH_STEPS = (1, 2, 3, 6, *(12 * power * digit for power in (1, 10, 100, 1000) for digit in (1, 2, 5)))
_MONTHS_BEFORE = 12 * 1970  # numpy counts months from 1970; for round years they must count from year 0


class Tick(NamedTuple):
    place: float  # 0 at the start of the axis, 1 at its end
    label: str


@dataclass(frozen=True)
class LinearAxis:
    low: float
    high: float

    def place(self, values: ArrayLike) -> Floats:
        """Where values (...,) lie: 0 at the bottom, 1 at the top."""
        part = _part(self.low, self.high)
        places: Floats = (part * np.asarray(values, np.float64) - part * self.low) / (
            part * self.high - part * self.low
        )
        return places

    def ticks(self, count: int = 3) -> tuple[Tick, ...]:
        ticks = {label: value for value, label in reversed(_round_values(self.low, self.high, count))}  # no label twice
        return tuple(Tick(float(self.place(value)), label) for label, value in reversed(ticks.items()))

    @classmethod
    def over(cls, *values: ArrayLike, start: float | None = None) -> "LinearAxis":
        """An axis with room for all values, and for `start` if given."""
        flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in values])
        low, high = float(np.nanmin(flat)), float(np.nanmax(flat))
        low = low if start is None else min(low, start)
        size, part = max(abs(low), abs(high)), _part(low, high)
        span = part * high - part * low
        constant = span <= max(NEARLY_CONSTANT * part * size, SMALLEST)
        margin = (0.1 * size if size > SMALLEST else 1.0) if constant else 0.05 * span / part
        return cls(low if low == start else max(low - margin, -LARGEST), min(high + margin, LARGEST))


@dataclass(frozen=True)
class AsinhAxis:
    """An axis that is linear near its center and logarithmic far from it, so that high peaks leave room for more."""

    center: float
    unit: float  # about how far from the center the axis is linear
    low: float
    high: float

    def place(self, values: ArrayLike) -> Floats:
        bottom, top = self._asinh(self.low), self._asinh(self.high)
        places: Floats = (self._asinh(values) - bottom) / (top - bottom)
        return places

    def ticks(self, count: int = 3) -> tuple[Tick, ...]:
        """Ticks at zero, or the lowest value if zero is off the axis, and at powers of ten; about `count` at most."""
        highest = math.ceil(math.log10(min(self.high - self.center, LARGEST)))
        powers = range(math.floor(math.log10(self.unit)), min(highest, MOST_DIGITS) + 1)
        rounds = [10.0**power for power in powers if self.center + self.unit < 10.0**power <= self.high]
        ticks: list[Tick] = []
        for value in (0.0 if self.low <= 0 <= self.high else self.low, *rounds):
            place = float(self.place(value))
            if not ticks or place - ticks[-1].place >= 0.5 / count:  # closer labels would touch
                ticks.append(Tick(place, format_number(value)))
        return tuple(ticks)

    def _asinh(self, values: ArrayLike) -> Floats:
        given = np.asarray(values, np.float64)
        with np.errstate(over="ignore", divide="ignore"):
            far = (given - self.center) / self.unit
            # asinh(x) is log(2x) for large x, which does not overflow.
            log = np.log(np.abs(given / 4 - self.center / 4)) + math.log(8) - math.log(self.unit)
        return np.where(np.isinf(far), np.copysign(log, far), np.arcsinh(far))


Axis = LinearAxis | AsinhAxis


def score_axis(values: Sequence[ArrayLike], center: float, threshold: float) -> Axis:
    """An axis for scores: logarithmic at the top if some are far above the threshold."""
    linear = LinearAxis.over(*values, [threshold])
    unit = threshold - center
    if unit <= 0 or linear.high - center < LOGARITHMIC_FROM * unit:
        return linear
    low = min(float(np.nanmin(part)) for part in values)
    high = linear.high * 1.15 if linear.high > 0 else linear.high
    return AsinhAxis(center, unit, max(low - 0.1 * unit, -LARGEST), min(high, LARGEST))


def format_number(value: float) -> str:
    """A number rounded to about three digits, for reading."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    written = f"{value:,.{digits}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def _part(low: float, high: float) -> float:
    """A power of two by which to multiply two numbers so that their difference does not overflow; mostly 1."""
    return 0.25 if max(abs(low), abs(high)) > 0.25 * LARGEST else 1.0


def _round_values(low: float, high: float, count: int) -> list[tuple[float, str]]:
    """Round values from low to high with their labels, all with the same number of digits."""
    part = _part(low, high)
    rough = min((part * high - part * low) / count / part, LARGEST)
    step = _round_number(rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    plain = digits <= 6 and abs(high) < 1e7
    values = (number * step for number in numbers)
    return [(value, f"{value:,.{digits}f}" if plain else format_number(value)) for value in values]


@dataclass(frozen=True)
class TimeAxis:
    """The times of a series' time steps, or their numbers if it has no times."""

    readings: int
    times: Array | None = None  # (time,) strictly increasing

    def label(self, step: int) -> str:
        """The time of a step with its zone, as precise as the times of the series."""
        if self.times is None:
            return f"step {step:,}"
        return f"{np.datetime_as_string(self.times[step], self._precision).replace('T', ' ')} UTC"

    def short_label(self, step: int, start: int) -> str:
        """The time of a step, without the date if that is the same as at the step `start`."""
        date, _, time = self.label(step).partition(" ")
        return time if self.times is not None and self.label(start).startswith(date) else f"{date} {time}"

    def duration(self, start: int, stop: int) -> str:
        """How long the time steps from `start` up to `stop` lasted, in words."""
        if self.times is None:
            return f"{stop - start:,} reading{'s' if stop - start != 1 else ''}"
        if len(self.times) == 1:
            return "1 reading"
        # Up to the step after the last one; the last step of the series is taken to be as long as the one before it.
        end = self.times[stop] if stop < len(self.times) else self.times[-1] + (self.times[-1] - self.times[-2])
        return duration(int(_micros(end - self.times[start])))

    def ticks(self, start: int, stop: int, count: int = 6) -> tuple[Tick, ...]:
        """About `count` ticks at round times, for an axis from the time step `start` to the last before `stop`."""
        width = max(stop - 1 - start, 1)
        if self.times is None:
            unit = int(_round_number(max(width / count, 1)))
            steps = range(-(-start // unit) * unit, stop, unit)
            return tuple(Tick((step - start) / width, f"{step:,}") for step in steps)
        times = self.times[start:stop].astype("datetime64[us]")
        marks, unit = _round_times(times[0], times[-1], count)
        places = np.interp(_micros(marks), _micros(times), np.arange(len(times))) / width
        return tuple(Tick(float(place), _tick_label(mark, unit)) for place, mark in zip(places, marks, strict=True))

    @property
    def name(self) -> str:
        return "time step" if self.times is None else "time"

    @cached_property
    def _precision(self) -> Literal["m", "s", "us"]:
        micros = _micros(self.times)  # type: ignore[arg-type]
        return "us" if (micros % _SECOND).any() else "s" if (micros % _MINUTE).any() else "m"


def duration(micros: int) -> str:
    """A period in its two largest units."""
    place = next((k for k, (_, size) in enumerate(_UNITS) if micros >= size), len(_UNITS) - 1)
    words: list[str] = []
    for name, size in _UNITS[place : place + 2]:
        number, micros = divmod(micros, size)
        plural = "s" if name == "day" and number != 1 else ""
        if number or not words:
            words.append(f"{number:,} {name}{plural}")
    return " ".join(words)


def _micros(times: Array) -> Array:
    return times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)


def _round_number(least: float) -> float:
    """The smallest of ..., 0.5, 1, 2, 5, 10, 20, ... that is at least `least`, else the largest a float can hold."""
    power = 10.0 ** math.floor(math.log10(least))
    steps = [power * digit for digit in (1, 2, 5, 10) if power * digit <= LARGEST]
    return next((step for step in steps if step >= least), steps[-1])


def _round_times(first: np.datetime64, last: np.datetime64, count: int) -> tuple[Array, int]:
    """Round times from first to last, and the microseconds between them, or 0 if they are months apart."""
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
