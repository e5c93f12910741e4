"""Vertical axes: where a value lies, and which values get a label."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats
from cometad.report.time_axis import Tick

# An axis becomes logarithmic if its highest score is this many times as far above the center as the threshold is: on a
# linear axis, such a peak would flatten everything else.
LOGARITHMIC_FROM = 8.0
LARGEST, MOST_DIGITS = sys.float_info.max, sys.float_info.max_10_exp
NEARLY_CONSTANT = 1e-6  # values that differ by less than this share of their size get an axis as wide as a constant


@dataclass(frozen=True)
class LinearAxis:
    """A linear axis."""

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
        """About `count` ticks at round values."""
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
        margin = 0.05 * span / part if span > NEARLY_CONSTANT * part * size else (0.1 * size or 1.0)
        return cls(low if low == start else max(low - margin, -LARGEST), min(high + margin, LARGEST))


@dataclass(frozen=True)
class AsinhAxis:
    """An axis that is linear near its center and logarithmic far from it, so that high peaks leave room for more."""

    center: float
    unit: float  # about how far from the center the axis is linear
    low: float
    high: float

    def place(self, values: ArrayLike) -> Floats:
        """Where values (...,) lie: 0 at the bottom, 1 at the top."""
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
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * digit for digit in (1, 2, 5, 10) if power * digit <= LARGEST]
    step = next((step for step in steps if step >= rough * (1 - 1e-9)), steps[-1])
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    plain = digits <= 6 and abs(high) < 1e7
    values = (number * step for number in numbers)
    return [(value, f"{value:,.{digits}f}" if plain else format_number(value)) for value in values]
