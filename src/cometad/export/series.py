"""Generated series in a detector's units, to check an exported file: normal, faulty and drifting."""

from collections.abc import Iterator

import numpy as np

from cometad.arrays import Floats
from cometad.comet import Comet
from cometad.data.trends import Trends
from cometad.views.joint import FittedJoint

READINGS = 400  # of each series
NOISE = 0.3  # standard deviations around the detector's known windows
HUGE = 1e30  # what a broken sensor may send


def generated(detector: Comet, seed: int) -> Iterator[tuple[str, Floats]]:
    """Named series (time, variable): normal, with faults, and drifting."""
    rng = np.random.default_rng(seed)
    make = {"normal": _unchanged, "faults": _with_faults, "drift": _with_drift}
    for name, change in make.items():
        moved = detector.scaling_.back(change(_usual(detector, rng), rng))
        yield name, _readings(moved, detector.trends_)


def _usual(detector: Comet, rng: np.random.Generator) -> Floats:
    """Scaled rows (time, variable) that look normal: the detector's known windows in random order, plus noise."""
    width = detector.panel_.width
    noise = NOISE * rng.normal(size=(READINGS, width))
    for view in detector.panel_.views:
        if isinstance(view, FittedJoint):
            windows = view.codes[rng.integers(len(view.codes), size=READINGS // view.span + 1)]
            return noise + windows.reshape(-1, width)[:READINGS]
    return noise / NOISE


def _unchanged(rows: Floats, rng: np.random.Generator) -> Floats:
    return rows


def _with_faults(rows: Floats, rng: np.random.Generator) -> Floats:
    """A spike, a stuck sensor, a shift that becomes a new level, impossible readings, and constant ones."""
    i, j = rng.integers(rows.shape[1], size=2)
    rows[60, i] += 12.0
    rows[100:140, j] = rows[100, j]
    rows[150:225] += 5.0
    rows[230, i], rows[231, j] = HUGE, -HUGE
    rows[300:380] = rows[300]
    return rows


def _with_drift(rows: Floats, rng: np.random.Generator) -> Floats:
    drift: Floats = rows + np.linspace(0, 4, len(rows))[:, None] * rng.choice([-1, 0, 1], rows.shape[1])
    return drift


def _readings(moved: Floats, trends: Trends) -> Floats:
    """The readings whose movements are `moved` (time, variable), unless a movement is too far for a level to follow."""
    before = np.cumsum(moved, axis=0) - moved
    readings: Floats = moved + trends.gain * before
    return readings
