"""Common unit conversions, and which one explains a change in readings."""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Floats

TOLERANCE = 0.3  # quantiles closer than this share of the known spread count as equal


class Conversion(NamedTuple):
    """A unit conversion: new = factor * old + offset."""

    name: str
    factor: float
    offset: float = 0.0

    def __str__(self) -> str:
        ways = []
        if self.factor != 1:
            ways.append(f"times {self.factor:.6g}" if self.factor > 1 else f"divided by {1 / self.factor:.6g}")
        if self.offset:
            ways.append(f"{'plus' if self.offset > 0 else 'minus'} {abs(self.offset):.6g}")
        return f"{self.name} ({', '.join(ways)})"

    @property
    def inverse(self) -> "Conversion":
        old, _, new = self.name.partition(" to ")
        return Conversion(f"{new} to {old}", 1 / self.factor, -self.offset / self.factor)


_ONE_WAY = (
    Conversion("kilo-units to units", 1e3),
    Conversion("mega-units to units", 1e6),
    Conversion("fractions to percent", 100.0),
    Conversion("cm to mm", 10.0),
    Conversion("minutes to seconds", 60.0),
    Conversion("hours to seconds", 3600.0),
    Conversion("°C to °F", 1.8, 32.0),
    Conversion("°C to K", 1.0, 273.15),
    Conversion("bar to psi", 14.503774),
    Conversion("m/s to km/h", 3.6),
    Conversion("m to ft", 3.280840),
    Conversion("in to mm", 25.4),
    Conversion("gal to l", 3.785412),
    Conversion("kg to lb", 2.204623),
)
CONVERSIONS = (*_ONE_WAY, *(conversion.inverse for conversion in _ONE_WAY))


def likely_conversion(quantiles: Floats, known: Floats) -> Conversion | None:
    """The conversion that best maps known quantiles (quantile,) to new ones, or None if none fits."""
    spread = known[-1] - known[0]
    if not spread or not quantiles[-1] > quantiles[0]:  # also NaN; constant readings reveal no factor
        return None
    errors = [np.abs((quantiles - c.offset) / c.factor - known).max() / spread for c in CONVERSIONS]
    best = int(np.argmin(errors))
    return CONVERSIONS[best] if errors[best] <= TOLERANCE else None
