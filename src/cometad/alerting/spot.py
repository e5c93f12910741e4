"""Thresholds from the tail of the scores: peaks over threshold, at a fixed level (SPOT) or a moving one (DSPOT).

A. Siffer, P.-A. Fouque, A. Termier, C. Largouet: Anomaly detection in streams with extreme value theory, KDD 2017.
A generalized Pareto tail, fitted to the excesses of scores over a high quantile, the base, tells how rare a score is.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.severity import fit_tail, predicted_above
from cometad.alerting.watch import Watch, as_scores, training_scores
from cometad.arrays import Floats
from cometad.parameters import check_between, check_integer, choice
from cometad.registry import register
from cometad.saving import Numbered, require_state

KEPT = 1000  # most recent excesses to remember: 8 kB, and a fit of a few milliseconds
REFIT = 10  # refit the tail once 1 in 10 of the remembered excesses is new
HEAD = 5  # numbers in a state before its excesses

TailOf = Literal["predicted", "likeliest"]  # a limit that allows for the error of the estimated tail, or ignores it
_LIMITS: dict[str, Callable[[Floats, NDArray[np.bool_], float], float]] = {
    "predicted": predicted_above,
    "likeliest": lambda excesses, censored, share: fit_tail(excesses, censored).above(share),
}


class Peaks(Numbered):
    """The tail above a base, and the limit above which an excess is flagged.

    Three departures from the paper. There the limit belongs to the likeliest tail; here it is `predicted_above`, unless
    `tail` is "likeliest". There a flagged score does not enter the tail; here it enters as an excess
    right-censored at the limit, as long as no more scores are flagged than the rate explains. Otherwise the tail would
    be truncated at its limit again and again and shrink: once the training excesses are forgotten, it would flag ten
    times the promised rate (docs/thresholds.md). There the tail is refitted at every excess; here only once a tenth of
    the remembered excesses is new, because a fit takes milliseconds and fewer new excesses hardly change it.
    """

    # Three are counts: readings, excesses, and excesses since the last fit.
    numbers = ("base", "limit", "_readings", "_excesses", "_fresh", "_kept")

    def __init__(self, state: Floats, rate: float, tail: TailOf = "predicted") -> None:
        fits = HEAD <= len(state) <= HEAD + KEPT and bool((state[2:HEAD] >= 0).all()) and state[3] <= state[2]
        require_state(fits, "the state of its threshold is not a base, a limit, counts and excesses")
        self.base, self.limit = float(state[0]), float(state[1])
        self._readings, self._excesses, self._fresh = map(int, state[2:HEAD])
        self._kept = deque(state[HEAD:].tolist(), maxlen=KEPT)  # negative: flagged, so right-censored
        self._rate, self._limit_above = rate, _LIMITS[tail]

    @classmethod
    def learn(cls, scores: Floats, rate: float, level: float, tail: TailOf = "predicted") -> "Peaks":
        """The tail of training scores (time,) above the quantile `level`."""
        base = np.quantile(scores, level)
        excesses = scores[scores > base] - base
        head = [base, 0.0, len(scores), len(excesses), 0]
        peaks = cls(np.concatenate([head, excesses[-KEPT:]]), rate, tail)
        peaks._refit()
        return peaks

    @property
    def threshold(self) -> float:
        """The highest score that is not flagged."""
        return self.base + self.limit

    def skip(self, count: int) -> None:
        """Count readings at or below the base."""
        self._readings += count

    def learn_from(self, score: float, flagged: bool) -> None:
        """Count a score; if it is above the base, the tail learns from it."""
        excess = score - self.base
        if excess <= 0:
            self._readings += 1
        elif not flagged:
            self._keep(excess)
        elif np.signbit(self._kept).sum() < self._explained():
            self._keep(-self.limit)

    def _keep(self, excess: float) -> None:
        self._readings += 1
        self._excesses += 1
        self._fresh += 1
        self._kept.append(excess)
        if self._fresh * REFIT >= len(self._kept):
            self._refit()

    def _share(self) -> float:
        """The share of excesses that may be flagged."""
        return min(1.0, self._rate * self._readings / self._excesses) if self._excesses else 0.0

    def _explained(self) -> int:
        """The most remembered excesses flagged by chance: two standard deviations above the expected number."""
        expected = self._share() * len(self._kept)
        return math.ceil(expected + 2 * math.sqrt(expected))

    def _refit(self) -> None:
        """Fit the tail. Siffer et al. 2017: Eq. 1, for the likeliest tail.

        The limit is raised until no more remembered excesses lie above it than chance explains: scores with few
        distinct values do not have a generalized Pareto tail.
        """
        self._fresh = 0
        if not self._kept:
            return
        kept = np.array(self._kept)
        sizes, explained = np.abs(kept), self._explained()
        least = np.sort(sizes)[-1 - explained] if explained < len(sizes) else 0.0
        self.limit = max(self._limit_above(sizes, np.signbit(kept), self._share()), float(least))


@register("Spot", tail="likeliest")
@dataclass(frozen=True)
class Spot:
    """Peaks over threshold: the score exceeded by a share `rate` of readings, from the tail above a base.

    The base is the quantile `level` of the training scores and stays fixed; the tail follows the stream. The rate may
    be far below 1 / (number of training scores), as long as the level and spread of the scores do not drift. The
    threshold allows for the error of the estimated tail; with `tail="likeliest"` it is the formula of the paper.

    >>> import numpy as np
    >>> from cometad.alerting.spot import Spot
    >>> rule = Spot(rate=1e-3)
    >>> watch = rule.watch(rule.fit(np.random.default_rng(0).exponential(size=5000)))
    >>> round(watch.threshold, 1)  # the true quantile is log(1000) = 6.9
    7.3
    >>> watch.push([1.0, 5.0, 50.0])
    array([False, False,  True])
    """

    rate: float = 1e-4
    level: float = 0.98
    tail: TailOf = "predicted"

    def __post_init__(self) -> None:
        _check_tail(self.rate, self.level, self.tail)

    def fit(self, scores: ArrayLike) -> Floats:
        """Base, limit and tail of training scores (time,). If they are constant, any higher score is flagged."""
        return Peaks.learn(training_scores(scores), self.rate, self.level, self.tail).state()

    def watch(self, state: Floats) -> "SpotWatch":
        """A watch that resumes from a state."""
        return SpotWatch(state, self.rate, self.tail)


class SpotWatch(Peaks, Watch):
    """Compares a stream of scores with the tail of earlier ones; created by `Spot.watch`; see `Spot` for an example."""

    def follow(self, scores: ArrayLike) -> Floats:
        values = as_scores(scores)
        thresholds, done = np.empty(len(values)), 0
        for i in np.flatnonzero(values > self.base).tolist():
            self.skip(i - done)
            thresholds[done : i + 1] = self.threshold
            self.learn_from(float(values[i]), bool(values[i] > thresholds[i]))
            done = i + 1
        self.skip(len(values) - done)
        thresholds[done:] = self.threshold
        return thresholds


class MovingMean(Numbered):
    """The mean of the last scores, in constant time per score.

    It sums differences from one of the scores and recomputes the sum once per round: the mean of equal scores is exact,
    and rounding errors do not accumulate.
    """

    numbers = ("_reference", "_total", "_place", "_scores")  # sum of the differences from it, place of the oldest

    def __init__(self, state: Floats) -> None:
        self._reference, self._total, self._place = float(state[0]), float(state[1]), int(state[2])
        self._scores: list[float] = state[3:].tolist()

    @classmethod
    def of(cls, scores: Floats) -> "MovingMean":
        """A mean over a window as long as these scores (time,), filled with them."""
        mean = cls(np.concatenate([np.zeros(3), scores]))
        mean._renew()
        return mean

    @property
    def value(self) -> float:
        return self._reference + self._total / len(self._scores)

    def add(self, score: float) -> None:
        """Replace the oldest score."""
        self._total += score - self._scores[self._place]
        self._scores[self._place] = score
        self._place = (self._place + 1) % len(self._scores)
        if self._place == 0:
            self._renew()

    def _renew(self) -> None:
        self._reference = self._scores[-1]
        self._total = math.fsum(score - self._reference for score in self._scores)


@register("DriftingSpot", tail="likeliest")
@dataclass(frozen=True)
class DriftingSpot:
    """Peaks over threshold of the difference from a moving mean: that of the last `depth` scores not flagged.

    For scores whose level drifts slowly; `tail` is that of `Spot`. After a jump of the level every score is flagged
    until the level returns, because flagged scores never enter the mean.

    >>> import numpy as np
    >>> from cometad.alerting.spot import DriftingSpot
    >>> rule = DriftingSpot(rate=1e-3, depth=10)
    >>> noise = np.random.default_rng(0).exponential(size=5000)
    >>> watch = rule.watch(rule.fit(noise))
    >>> watch.push(noise + np.linspace(0, 50, 5000)).sum() < 50
    np.True_
    """

    rate: float = 1e-4
    level: float = 0.98
    depth: int = 100
    tail: TailOf = "predicted"

    def __post_init__(self) -> None:
        _check_tail(self.rate, self.level, self.tail)
        check_integer("depth", self.depth, 1)

    def fit(self, scores: ArrayLike) -> Floats:
        """The moving mean at the end of training scores (time,), and the tail of their differences from it."""
        values = training_scores(scores, least=self.depth + 1)
        steps = values - values[0]  # for constant scores exactly 0, like the mean
        means = np.lib.stride_tricks.sliding_window_view(steps, self.depth)[:-1].mean(axis=1)
        peaks = Peaks.learn(steps[self.depth :] - means, self.rate, self.level, self.tail)
        return np.concatenate([MovingMean.of(values[-self.depth :]).state(), peaks.state()])

    def watch(self, state: Floats) -> "DriftingSpotWatch":
        """A watch that resumes from a state."""
        fits = len(state) > 3 + self.depth and state[2] in range(self.depth)
        require_state(fits, "the state of its threshold has no moving mean of this depth")
        mean, peaks = np.split(state, [3 + self.depth])
        return DriftingSpotWatch(MovingMean(mean), Peaks(peaks, self.rate, self.tail))


class DriftingSpotWatch(Watch):
    """Compares a stream of scores with the tail above their moving mean; created by `DriftingSpot.watch`."""

    numbers = ("_mean", "_peaks")

    def __init__(self, mean: MovingMean, peaks: Peaks) -> None:
        self._mean, self._peaks = mean, peaks

    @property
    def threshold(self) -> float:
        return self._mean.value + self._peaks.threshold

    def follow(self, scores: ArrayLike) -> Floats:
        return np.fromiter((self._follow(score) for score in as_scores(scores).tolist()), np.float64)

    def _follow(self, score: float) -> float:
        threshold, mean = self.threshold, self._mean.value
        flagged = score > threshold
        self._peaks.learn_from(score - mean, flagged)
        if not flagged:
            self._mean.add(score)
        return threshold


def _check_tail(rate: float, level: float, tail: str) -> None:
    choice(_LIMITS)("tail", tail)
    check_between("level", level, 0, 1)
    check_between("rate", rate, 0, round(1 - level, 12))  # no larger share lies above the base
