"""Accuracy of attribution: the hit rate introduced with OmniAnomaly.

Su et al. 2019, "Robust Anomaly Detection for Multivariate Time Series through Stochastic Recurrent Neural Network".
"""

import math
from collections.abc import Collection, Sequence

ROUNDING = 1e-9  # keeps 150 % of 2 at 3 when the float falls just short


def hit_rate(ranking: Sequence[int], causes: Collection[int], percent: float) -> float:
    """The share of the causes found among the top variables of a ranking.

    The number of variables considered is a percentage of the number of causes.
    """
    top = ranking[: considered(len(causes), percent)]
    return len(set(top) & set(causes)) / len(causes)


def chance_hit_rate(variables: int, causes: int, percent: float) -> float:
    return min(considered(causes, percent), variables) / variables


def considered(causes: int, percent: float) -> int:
    """The number of top-ranked variables to consider: a percentage of the number of causes, rounded down."""
    return math.floor(causes * percent / 100 + ROUNDING)
