"""Thresholds without labels, from the scores of normal readings and a false-alarm rate.

docs/thresholds.md helps to choose one and says what each guarantees; `budget.py` has the rule that tracks its
rate, `spot.py` peaks over threshold.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.budget import SECONDS_PER_DAY, Budget
from cometad.alerting.severity import ScoreTail
from cometad.alerting.spot import DriftingSpot, Spot
from cometad.alerting.watch import FixedWatch, Threshold, training_scores
from cometad.arrays import Floats
from cometad.errors import InputError, ParameterError
from cometad.parameters import check_between, parse, split
from cometad.registry import register

ROUNDING = 1e-12  # relative; lets 1/3 count as 1/3, although the nearest float is slightly less


@register("Quantile")
@dataclass(frozen=True)
class Quantile:
    """The score exceeded by a share `rate` of the training scores.

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
        """The quantile 1 - rate of training scores (time,), interpolated linearly."""
        return np.array([np.quantile(training_scores(scores), 1 - self.rate)])

    def watch(self, state: Floats) -> FixedWatch:
        """A watch that never changes."""
        return FixedWatch(state)


@register("Conformal")
@dataclass(frozen=True)
class Conformal:
    """The lowest training score that a new score exceeds with probability at most `rate`, in finite samples.

    The guarantee holds on average over training sets and for new scores exchangeable with the training scores.
    Successive scores of one stream are not exchangeable, nor are scores of readings the detector was fitted on.

    >>> import numpy as np
    >>> from cometad.alerting.thresholds import Conformal
    >>> Conformal(rate=0.1).fit(np.arange(19.0))  # a new score has 20 equally likely ranks, 2 of them above
    array([17.])
    >>> Conformal(rate=0.01).fit(np.arange(19.0))
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: A false-alarm rate of 0.01 needs at least 99 training scores; there are 19. Choose a
    higher rate or fit on a longer series.
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
                f"there are {len(values):,}. Choose a higher rate or fit on a longer series."
            )
        rank = len(values) + 1 - above
        return np.partition(values, rank - 1)[rank - 1 : rank]

    def watch(self, state: Floats) -> FixedWatch:
        """A watch that never changes."""
        return FixedWatch(state)


# name on the command line: threshold rule. A rule added here works on the command line, too.
THRESHOLDS: dict[str, Callable[..., Threshold]] = {
    "quantile": Quantile,
    "conformal": Conformal,
    "spot": Spot,
    "drifting-spot": DriftingSpot,
    "budget": Budget,
}


ALERTS_PER_DAY = "alerts-per-day"


def highest(rule: Threshold, samples: Sequence[Floats], period: float) -> tuple[Floats, ScoreTail]:
    """The state of a rule that gives the highest threshold, fitted on each sample (time,), and the tail of that one.

    A budget of alerts per day needs the `period`, to know how many readings a day has.
    """
    states = [rule.fit(one, period) if isinstance(rule, Budget) else rule.fit(one) for one in samples]
    thresholds = [rule.watch(state).threshold for state in states]
    best = thresholds.index(max(thresholds))
    return states[best], ScoreTail.fit(samples[best], thresholds[best])


def parse_threshold(text: str) -> Threshold:
    """Parse a budget of alerts, such as 3/day or 1/1000, or another rule: NAME or NAME:RATE, such as spot:1e-4.

    >>> from cometad.alerting.thresholds import parse_threshold
    >>> print(parse_threshold("3/day"), parse_threshold("2/1000"), sep="; ")
    3 alerts a day; 2 alerts per 1,000 readings
    >>> parse_threshold("spot:1e-4")
    Spot(rate=0.0001, level=0.98, tail='predicted')
    >>> parse_threshold("sport:1e-4")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown threshold 'sport'. Did you mean spot?
    Available: quantile, conformal, spot, drifting-spot, budget, alerts-per-day.
    """
    names: dict[str, Callable[..., Threshold]] = {
        **THRESHOLDS,
        ALERTS_PER_DAY: lambda count=3.0: Budget(alerts_per_day=count),
    }
    if "/" in text or text[:1].isdigit():
        return _budget(text)
    value = "NUMBER" if split(text)[0] == ALERTS_PER_DAY else "RATE"
    return parse(text, names, kind="threshold", value=value, convert=float)


def _budget(text: str) -> Budget:
    """The budget of alerts in N/day or N/READINGS, or in both, separated by a comma."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        count, _, per = part.partition("/")
        try:
            limit = {"alerts_per_day": float(count)} if per == "day" else {"alerts": float(count), "per": float(per)}
        except ValueError as error:
            raise ParameterError(f"Cannot read the budget {text!r}. Write it as 3/day or 1/1000.") from error
        if limits.keys() & limit:
            raise ParameterError(f"The budget {text!r} has two limits of one kind. Write it as 1/1000,3/day.")
        limits |= limit
    try:
        return Budget(**limits)  # type: ignore[arg-type]
    except ParameterError as error:
        raise ParameterError(
            f"The budget {text!r} is not above 0 and below one alert per reading. Write it as 3/day or 1/1000."
        ) from error


def expected_per_day(rule: Threshold, period_seconds: float) -> float:
    """The expected number of flagged readings on a day without anomalies, at one reading per period.

    >>> from cometad.alerting.thresholds import Spot, expected_per_day
    >>> round(expected_per_day(Spot(rate=1e-4), period_seconds=60), 3)
    0.144
    """
    check_between("period_seconds", period_seconds, 0, math.inf)
    if rule.rate is None:
        raise ParameterError(f"{rule!r} does not limit flagged readings.")
    return rule.rate * SECONDS_PER_DAY / period_seconds
