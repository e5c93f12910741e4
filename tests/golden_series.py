"""Seeded series of different character and the detectors whose results are frozen, each fitted on first use."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl

from cometad import BASELINES, Alerts, Budget, Comet, Detector, NetworkComet, Quantile
from cometad.alerting import Conformal, DriftingSpot, Spot
from cometad.data import ForwardFill, Interpolate, ScoreMeasured
from cometad.datasets.synthetic import synthetic_plant
from cometad.network import Epochs, OneCycle
from cometad.views import Forecast, Joint, Patterns
from cometad.views.adaptation import FollowLevel
from cometad_bench.datasets.characters import plant_of
from tiny import UNEVEN

START = datetime(2026, 3, 1)
SIMPLE = [
    *("random", "sensor-range", "squared-norm", "pca", "window-pca", "forecast-error", "knn", "window-knn", "kmeans"),
    *("hbos", "isolation-forest"),
]


class Case(NamedTuple):
    """A fitted detector, what it scores, and what counts as an event."""

    detector: Detector
    series: Any
    alerts: Alerts = Alerts()


def parts(character: str, variables: int = 5, gaps: float = 0.0, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """A normal series and one with faults (time, variable), with a share of their readings missing in runs of three."""
    plant = plant_of(character, rows=rows, variables=variables, faults_per_kind=1, seed=7)
    found = (plant.train.copy(), plant.test[:600].copy())
    rng = np.random.default_rng(3)
    for values in found:
        for start in np.flatnonzero(rng.random(values.size) < gaps / 3):
            values[start // variables : start // variables + 1 + start % 3, start % variables] = np.nan
    return found


def named(values: np.ndarray) -> dict[str, np.ndarray]:
    """Columns by name."""
    return {f"v{i + 1}": column for i, column in enumerate(values.T)}


def as_polars(values: np.ndarray, step: timedelta = timedelta(minutes=1)) -> pl.DataFrame:
    """A frame with a column of times."""
    return pl.DataFrame({"time": [START + i * step for i in range(len(values))], **named(values)})


def as_pandas(values: np.ndarray) -> pd.DataFrame:
    """A frame with an index of times that misses some seconds."""
    micros = 1_000_000 * np.arange(len(values)) + 37_000_000 * (np.arange(len(values)) // 100)
    return pd.DataFrame(named(values), index=pd.DatetimeIndex(np.datetime64(START, "us") + micros, tz="UTC"))


def fitted(detector: Detector, normal: object, fresh: object, alerts: Alerts | None = None) -> Case:
    return Case(detector.fit(normal), fresh, alerts or Alerts())


def drifting() -> Case:
    plant = synthetic_plant(train_rows=900, test_rows=600, variables=8, faults_per_kind=1, drift=2.0, seed=5)
    return fitted(Comet(adaptation=FollowLevel(half_life=128, every=64)), plant.train, plant.test)


def with_faults_in_training() -> Case:
    normal, fresh = parts("periodic")
    normal[300:340] += 8 * normal.std(axis=0)
    detector = Comet(seed=3).fit(as_polars(normal), exclude=[(500, 520)])
    return Case(detector, as_polars(fresh))


def taught() -> Case:
    normal, fresh = parts("noisy", 4)
    detector = Comet(threshold=Budget(rate=0.02)).fit(normal)
    return Case(detector.learn_normal(fresh, detector.events(fresh)[0]), fresh)


def baseline(name: str) -> Callable[[], Case]:
    return lambda: fitted(BASELINES[name](), *parts("modes", 4))


CASES: dict[str, Callable[[], Case]] = {
    "periodic": lambda: fitted(Comet(), *parts("periodic")),
    "noisy, polars with times": lambda: fitted(Comet(), *map(as_polars, parts("noisy", 4))),
    "modes, pandas with times": lambda: fitted(Comet(), *map(as_pandas, parts("modes"))),
    "walks, forward-filled": lambda: fitted(
        Comet(gaps=ForwardFill(2)), *map(as_polars, parts("walks", gaps=0.03, rows=2400))
    ),
    "counters, interpolated": lambda: fitted(Comet(gaps=Interpolate(2)), *parts("counters", 9, gaps=0.03)),
    "noisy, what was measured": lambda: fitted(
        Comet(gaps=ScoreMeasured(), pooling=2, threshold=DriftingSpot(0.01)), *parts("noisy", gaps=0.02)
    ),
    "drifting plant, followed": drifting,
    "one variable": lambda: fitted(
        Comet(scaler="min-max", smoothing=(), threshold=Quantile(rate=0.02)), *(part[:, :1] for part in parts("modes"))
    ),
    "views of its own": lambda: fitted(
        Comet(
            # Of length 12, the last bits depend on whether numba compiled squared_distance or loaded it from its cache.
            views=(Patterns(length=16, codes=20), Joint(length=3), Forecast(lags=4)),
            trim=False,
            trends=False,
            smoothing=(5,),
            threshold=Spot(0.01),
            seed=11,
        ),
        *parts("walks", 4),
    ),
    "alerts a day": lambda: fitted(
        Comet(threshold=Budget(alerts_per_day=20)),
        *(as_polars(part, timedelta(seconds=30)) for part in parts("counters", 9)),
        Alerts(min_length=2, merge_gap=4, hold_off=10, longest=20, alert_from=0.3),
    ),
    "faults in training": with_faults_in_training,
    "taught by a verdict": taught,
    **{name: baseline(name) for name in SIMPLE},
    "knn, forward-filled": lambda: fitted(
        BASELINES["knn"](gaps=ForwardFill(2), threshold=Conformal(0.01)), *parts("noisy", 4, gaps=0.02)
    ),
    "network": lambda: fitted(NetworkComet(**UNEVEN, schedule=OneCycle(20)), *parts("periodic", 4)),
    "paper": lambda: fitted(
        Comet.paper(
            window=40, window_stride=20, dim=8, core_dim=6, codebook_size=16, batch_size=16, schedule=Epochs(1)
        ),
        *parts("noisy", 4),
    ),
}
