"""Where a value lies on an upright axis, and which values get a label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats
from cometad.report.times import Tick

BEND_ABOVE = 8.0  # a peak so many times as high over the center as the threshold would flatten everything else


@dataclass(frozen=True)
class Linear:
    """An axis as everyone knows it.

    >>> from cometad.report.axis import Linear
    >>> Linear(0.0, 4.0).place(1.0)
    np.float64(0.25)
    """

    low: float
    high: float

    def place(self, values: ArrayLike) -> Floats:
        """Where values (...,) lie: 0 at the foot, 1 at the top."""
        places: Floats = (np.asarray(values, np.float64) - self.low) / (self.high - self.low)
        return places

    def ticks(self, count: int = 3) -> tuple[Tick, ...]:
        """About so many round values."""
        return tuple(Tick(float(self.place(value)), text) for value, text in _rounds(self.low, self.high, count))

    @classmethod
    def over(cls, *values: ArrayLike, foot: float | None = None) -> "Linear":
        """The axis that has room for all of the values, and for the foot.

        >>> from cometad.report.axis import Linear
        >>> Linear.over([1.0, 3.0], foot=0.0)
        Linear(low=0.0, high=3.15)
        """
        every = np.concatenate([np.ravel(np.asarray(some, np.float64)) for some in values])
        low, high = float(np.nanmin(every)), float(np.nanmax(every))
        low = low if foot is None else min(low, foot)
        margin = max(0.05 * (high - low), 1e-9 * max(abs(low), abs(high))) or 1.0
        return cls(low if low == foot else low - margin, high + margin)


@dataclass(frozen=True)
class Bent:
    """An axis that is straight around a center and logarithmic far from it, so that high peaks flatten nothing.

    >>> from cometad.report.axis import Bent
    >>> axis = Bent(center=0.0, unit=1.0, low=0.0, high=1000.0)
    >>> axis.place([0.0, 10.0, 1000.0]).round(2)
    array([0.  , 0.39, 1.  ])
    """

    center: float
    unit: float  # how far it is straight
    low: float
    high: float

    def place(self, values: ArrayLike) -> Floats:
        """Where values (...,) lie: 0 at the foot, 1 at the top."""
        foot, top = self._bent(self.low), self._bent(self.high)
        places: Floats = (self._bent(values) - foot) / (top - foot)
        return places

    def ticks(self, count: int = 3) -> tuple[Tick, ...]:
        """At most about so many round values: 0 if it is there, and powers of ten."""
        powers = range(math.floor(math.log10(self.unit)), math.ceil(math.log10(self.high - self.center)) + 1)
        rounds = [10.0**power for power in powers if self.center + self.unit < 10.0**power <= self.high]
        ticks: list[Tick] = []
        for value in (0.0 if self.low <= 0 <= self.high else self.low, *rounds):
            place = float(self.place(value))
            if not ticks or place - ticks[-1].place >= 0.5 / count:  # else their labels would touch
                ticks.append(Tick(place, text(value)))
        return tuple(ticks)

    def _bent(self, values: ArrayLike) -> Floats:
        return np.arcsinh((np.asarray(values, np.float64) - self.center) / self.unit)


Axis = Linear | Bent


def score_axis(values: Sequence[ArrayLike], center: float, threshold: float) -> Axis:
    """An axis for scores: bent where some are far above the threshold.

    >>> from cometad.report.axis import score_axis
    >>> type(score_axis([[0.0, 2.0]], center=0.0, threshold=1.0)).__name__
    'Linear'
    >>> type(score_axis([[0.0, 99.0]], center=0.0, threshold=1.0)).__name__
    'Bent'
    """
    straight = Linear.over(*values, [threshold])
    unit = threshold - center
    if unit <= 0 or straight.high - center < BEND_ABOVE * unit:
        return straight
    low = min(float(np.nanmin(some)) for some in values)
    return Bent(center, unit, low - 0.1 * unit, straight.high * 1.15 if straight.high > 0 else straight.high)


def text(value: float) -> str:
    """A number as short as can be read.

    >>> from cometad.report.axis import text
    >>> text(1234.5678), text(0.012345), text(3.0), text(2.5e9), text(0.0)
    ('1,235', '0.0123', '3', '2.5e+09', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    written = f"{value:,.{digits}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def _rounds(low: float, high: float, count: int) -> list[tuple[float, str]]:
    """Round values between two, and how they are written: all with as many digits."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    plain = digits <= 6 and abs(high) < 1e7
    return [(number * step, f"{number * step:,.{digits}f}" if plain else text(number * step)) for number in numbers]
