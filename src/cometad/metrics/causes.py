"""How well a ranking of variables names those behind an anomaly: the hit rate that OmniAnomaly introduced.

Su et al. 2019, "Robust Anomaly Detection for Multivariate Time Series through Stochastic Recurrent Neural Network".
"""

import math
from collections.abc import Collection, Sequence

ROUNDING = 1e-9  # 150 % of 2 is meant as 3, though the float may be a little less


def hit_rate(ranking: Sequence[int], causes: Collection[int], percent: float) -> float:
    """The share of the causes among the first variables of a ranking, as many as a percentage of the causes.

    >>> from cometad.metrics.causes import hit_rate
    >>> hit_rate([4, 0, 2, 1, 3], causes={4, 2}, percent=100), hit_rate([4, 0, 2, 1, 3], {4, 2}, 150)
    (0.5, 1.0)
    """
    first = ranking[: looked_at(len(causes), percent)]
    return len(set(first) & set(causes)) / len(causes)


def chance_hit_rate(variables: int, causes: int, percent: float) -> float:
    """What a ranking drawn at random reaches on average.

    >>> from cometad.metrics.causes import chance_hit_rate
    >>> chance_hit_rate(variables=10, causes=2, percent=150)
    0.3
    """
    return min(looked_at(causes, percent), variables) / variables


def looked_at(causes: int, percent: float) -> int:
    """How many variables of a ranking count: a percentage of the number of causes, rounded down.

    >>> from cometad.metrics.causes import looked_at
    >>> looked_at(3, 150)
    4
    """
    return math.floor(causes * percent / 100 + ROUNDING)
