"""Tests of whether arms differ: mean ranks, the Friedman test, the Nemenyi critical difference; for one arm against
each of the others, Wilcoxon's signed-rank test with Holm's correction and a bootstrap stratified by family.

References: J. Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006); S. Holm, A simple
sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, rankdata, studentized_range, wilcoxon


def mean_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return the mean rank of each arm over the datasets of values (dataset, arm): 1 is best, ties share a rank."""
    return np.asarray(_ranks(values).mean(axis=0), dtype=np.float64)


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(rankdata(-np.asarray(values, dtype=np.float64), axis=1), dtype=np.float64)


def friedman(values: ArrayLike) -> float:
    """Return the p-value of the Friedman test that all arms of values (dataset, arm) are equally good."""
    # Not scipy's friedmanchisquare: it refuses two arms and returns nan if all are equal.
    ranks = _ranks(values)
    datasets, arms = ranks.shape
    middle = (arms + 1) / 2
    within = float(((ranks - middle) ** 2).sum())
    if within == 0:  # all arms tie on every dataset
        return 1.0
    between = float(((ranks.sum(axis=0) - datasets * middle) ** 2).sum())
    return float(chi2.sf((arms - 1) * between / within, arms - 1))


def critical_difference(arms: int, datasets: int) -> float:
    """Return how far apart two mean ranks must be to differ in Nemenyi's test of all pairs at the 5 % level."""
    quantile = studentized_range.ppf(0.95, arms, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(arms * (arms + 1) / (6 * datasets)))


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """Return the largest groups of arms whose mean ranks are all within the critical difference, best rank first."""
    arms = sorted(ranks, key=lambda arm: ranks[arm])
    groups: list[tuple[str, ...]] = []
    reached = 0  # number of sorted arms covered by the groups so far
    for start, first in enumerate(arms):
        stop = start + sum(ranks[arm] - ranks[first] < difference for arm in arms[start:])
        if stop > max(reached, start + 1):
            groups.append(tuple(arms[start:stop]))
            reached = stop
    return groups


def signed_rank(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's test that paired differences are symmetric around 0."""
    values = np.asarray(differences, dtype=np.float64)
    values = values[values != 0]  # a tie favors neither arm
    return float(wilcoxon(values).pvalue) if len(values) else 1.0


def rank_balance(differences: ArrayLike) -> float:
    """Return the sum of the ranks of positive differences minus that of negative ones: which way the test leans."""
    values = np.asarray(differences, dtype=np.float64)
    values = values[values != 0]
    return float((np.sign(values) * rankdata(np.abs(values))).sum())


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values corrected for having tested all of them, by Holm's step-down procedure."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values}


class Interval(NamedTuple):
    mean: float
    low: float
    high: float


def stratified_interval(
    differences: Mapping[str, ArrayLike], level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Interval:
    """Return the mean over families of the mean over entities, with a bootstrap interval.

    Entities are drawn with replacement within each family, so that every draw has all families in full size.
    """
    rng = np.random.default_rng(seed)
    families = [np.asarray(values, dtype=np.float64) for values in differences.values()]
    drawn = np.mean(
        [values[rng.integers(len(values), size=(draws, len(values)))].mean(axis=1) for values in families], 0
    )
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(np.mean([values.mean() for values in families])), float(low), float(high))
