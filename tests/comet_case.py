"""Detectors with views in several settings, series for them, and what a stream must have in common with a batch."""

from functools import cache

import numpy as np

from cometad import Comet
from cometad.alerting import DriftingSpot
from cometad.data import ForwardFill, Interpolate, ScoreMeasured
from cometad.registry import register
from cometad.views import Balance, Forecast, NetworkView, Patterns
from cometad.views.adaptation import FollowLevel
from contract import waves
from own_views import Level
from tiny import NETWORK_VIEW

register("tests-level")(Level)  # here: pytest imports own_views.py twice, under two names

LEAST = 9  # readings in a series: those of the shortest view
SETTINGS = {
    "views": {},
    "one view": {"views": (Balance(length=3),), "smoothing": ()},
    "own view": {"views": (Level(), Forecast(lags=2)), "pooling": 1, "smoothing": (5,)},
    "forward fill": {"gaps": ForwardFill(limit=3)},
    "interpolate": {"gaps": Interpolate(limit=3), "smoothing": (1, 6)},
    "score measured": {"gaps": ScoreMeasured(), "views": (Patterns(length=5, codes=4),)},
    "network view": {"views": (Patterns(length=8), NetworkView(**NETWORK_VIEW))},
    "following": {"gaps": ScoreMeasured(), "adaptation": FollowLevel(half_life=40, every=20)},
    "drifting threshold": {"gaps": ForwardFill(limit=2), "threshold": DriftingSpot(rate=0.01)},
}


@cache
def fitted(name="views"):
    return Comet(**SETTINGS[name]).fit(waves(600))


def fresh(name, rows, seed=5):
    """A series with faults, and with gaps if the setting allows them."""
    rng = np.random.default_rng(seed)
    series = 1.2 * waves(rows, seed=seed)
    series[rng.random(series.shape) < 0.01] += 4.0
    if "gaps" in SETTINGS[name]:
        series[rng.random(series.shape) < 0.02] = np.nan
        series[rows // 2 : rows // 2 + 6] = np.nan
    return series


def fed(stream, series, cuts):
    """The results of a stream fed in chunks that end at `cuts`, without finishing it."""
    return [stream.update_many(chunk) for chunk in np.split(series, cuts)]


def joined(parts, field="scores"):
    return np.concatenate([getattr(part, field) for part in parts])


def assert_like_a_batch(parts, detector, series):
    scores, alerts, imputed = detector.step_scores(series)
    assert joined(parts).tobytes() == scores.tobytes()
    assert joined(parts, "alert_scores").tobytes() == alerts.tobytes()
    assert joined(parts, "flags").tolist() == detector.predict(series).tolist()
    assert np.array_equal(joined(parts, "imputed"), np.zeros(len(series), bool) if imputed is None else imputed)
    assert joined(parts, "steps").tolist() == joined(parts, "ranking_steps").tolist() == list(range(len(series)))
