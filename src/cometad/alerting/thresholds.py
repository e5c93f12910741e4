"""Thresholds without labels: which scores are alarms, given the scores of normal readings and a false-alarm rate.

`docs/thresholds.md` says which to choose and what each promises; peaks over threshold stand in `spot.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.spot import DriftingSpot, Spot
from cometad.alerting.watch import FixedWatch, Threshold, training_scores
from cometad.arrays import Floats
from cometad.errors import InputError, ParameterError, unknown
from cometad.registry import register
from cometad.validation import check_between

SECONDS_PER_DAY = 86_400
ROUNDING = 1e-12  # a rate of 1/3 is meant as such, though the float next to it is a little less


@register("Quantile")
@dataclass(frozen=True)
class Quantile:
    """The score that a share `rate` of the training scores lies above. Of a constant it is the constant.

    >>> import numpy as np
    >>> from cometad.alerting.thresholds import Quantile
    >>> rule = Quantile(rate=0.1)
    >>> rule.watch(rule.fit(np.arange(11.0))).push([9.0, 9.5])
    array([False,  True])
    """

    rate: float = 0.01

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0, 1)

    def fit(self, scores: ArrayLike) -> Floats:
        """The quantile 1 - rate of training scores (time,), linear between two of them."""
        return np.array([np.quantile(training_scores(scores), 1 - self.rate)])

    def watch(self, state: Floats) -> FixedWatch:
        """A watch that never changes."""
        return FixedWatch(state)


@register("Conformal")
@dataclass(frozen=True)
class Conformal:
    """The lowest of the training scores that a new one is above with a chance of at most `rate`, in finite samples.

    This holds on average over training scores, if the new score is exchangeable with them: drawn alike, in any
    order. Scores of one stream are not, nor are scores of readings that the detector itself was fitted on.

    >>> import numpy as np
    >>> from cometad.alerting.thresholds import Conformal
    >>> Conformal(rate=0.1).fit(np.arange(19.0))  # 2 of 20 equally likely places are above it
    array([17.])
    >>> Conformal(rate=0.01).fit(np.arange(19.0))
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: A false-alarm rate of 0.01 needs at least 99 training scores; there are 19.
    """

    rate: float = 0.001

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0, 1)

    def fit(self, scores: ArrayLike) -> Floats:
        """The training score (time,) of rank ceil((n + 1)(1 - rate)), counted from 1."""
        values = training_scores(scores)
        rate = self.rate * (1 + ROUNDING)
        above = math.floor((len(values) + 1) * rate)  # n + 1 - ceil((n + 1)(1 - rate))
        if above < 1:
            needed = math.ceil(1 / rate) - 1
            raise InputError(
                f"A false-alarm rate of {self.rate} needs at least {needed:,} training scores; "
                f"there are {len(values):,}."
            )
        rank = len(values) + 1 - above
        return np.partition(values, rank - 1)[rank - 1 : rank]

    def watch(self, state: Floats) -> FixedWatch:
        """A watch that never changes."""
        return FixedWatch(state)


# name on the command line: rule
THRESHOLDS: dict[str, type[Quantile] | type[Conformal] | type[Spot] | type[DriftingSpot]] = {
    "quantile": Quantile,
    "conformal": Conformal,
    "spot": Spot,
    "drifting-spot": DriftingSpot,
}


def parse_threshold(text: str) -> Quantile | Conformal | Spot | DriftingSpot:
    """The rule of a name and a false-alarm rate, or of a name alone.

    >>> from cometad.alerting.thresholds import parse_threshold
    >>> parse_threshold("spot:1e-4")
    Spot(rate=0.0001, level=0.98)
    >>> parse_threshold("sport:1e-4")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown threshold 'sport'. Did you mean spot?
    Available: quantile, conformal, spot, drifting-spot.
    """
    name, colon, number = text.partition(":")
    if name not in THRESHOLDS:
        raise unknown("threshold", name, THRESHOLDS)
    rule = THRESHOLDS[name]
    if not colon:
        return rule()
    try:
        return rule(rate=float(number))
    except ValueError as error:  # also a rate that the rule refuses
        highest = 1.0 if rule in (Quantile, Conformal) else round(1 - Spot().level, 12)
        known = ", ".join(f"{known}:RATE" for known in THRESHOLDS)
        raise ParameterError(
            f"The threshold {text!r} needs a rate above 0 and below {highest:g}; there are {known}."
        ) from error


def expected_per_day(rule: Threshold, period_seconds: float) -> float:
    """How many readings of a day without anomalies are flagged, one reading per period, if nothing changes.

    >>> from cometad.alerting.thresholds import Spot, expected_per_day
    >>> round(expected_per_day(Spot(rate=1e-4), period_seconds=60), 3)
    0.144
    """
    check_between("period_seconds", period_seconds, 0, math.inf)
    return rule.rate * SECONDS_PER_DAY / period_seconds
