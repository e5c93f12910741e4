"""Check an exported file against its detector: both score generated series and must agree."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from cometad.arrays import Floats, Integers
from cometad.comet import Comet
from cometad.data.prepare import Trends
from cometad.data.season import QUARTER, local_clock
from cometad.errors import OutputError
from cometad.export.step import OUTPUTS, READING, STATE, TIME, needs_time
from cometad.views.joint import FittedJoint

READINGS = 400  # of each series
NOISE = 0.3  # standard deviations around the detector's known windows
HUGE = 1e30  # what a broken sensor may send
TOLERANCE = 1e-5  # relative to max(1, |value|)
SEED = 20
START, GAP = 1_729_972_800_000_000, 18_000_000_000  # microseconds: before clocks change in Europe, and five hours
SETTLED = 4  # cycles of generated readings whose season is exact


def generated(detector: Comet, seed: int) -> Iterator[tuple[str, Floats]]:
    """Named series (time, variable): normal, with faults, and drifting."""
    rng = np.random.default_rng(seed)
    for name, change in {"normal": lambda rows, rng: rows, "faults": _with_faults, "drift": _with_drift}.items():
        values = moved = detector.scaling_.back(change(_usual(detector, rng), rng))
        if detector.season_ is not None:
            for _ in range(SETTLED):  # what is usual depends on the readings before
                values = values + moved - copy.deepcopy(detector.season_).push(values, times_of(detector))
        yield name, _readings(values, detector.trends_)


def times_of(detector: Comet) -> Integers:
    """Times of the generated readings in UTC, in microseconds."""
    step, period = np.arange(READINGS), detector.statistics_.period if needs_time(detector) else 600.0
    return np.asarray(START + round(1e6 * period) * step + GAP * (step > READINGS // 2))


def _usual(detector: Comet, rng: np.random.Generator) -> Floats:
    """Scaled rows (time, variable) that look normal: the detector's known windows in random order, plus noise."""
    width = detector.panel_.width
    noise = NOISE * rng.normal(size=(READINGS, width))
    for view in detector.panel_.views:
        if isinstance(view, FittedJoint):
            windows = view.codes[rng.integers(len(view.codes), size=READINGS // view.span + 1)]
            return noise + windows.reshape(-1, width)[:READINGS]
    return noise / NOISE


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


class Agreement(NamedTuple):
    """How well an exported file agrees with its detector."""

    readings: int  # scored by both
    difference: float  # the largest, of alert scores, variables' scores and thresholds, relative to max(1, |value|)
    other_flags: int  # flags that differ; allowed only where the score is within the tolerance of its threshold


class StepScored(NamedTuple):
    alert_scores: Floats  # (time,)
    variables: Floats  # (time, variable)
    thresholds: Floats  # (time,)
    flags: Floats  # (time,)
    state: Floats  # (number,)


def opened(model: bytes) -> Any:
    """An onnxruntime session on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_steps(session: Any, series: Floats, state: Floats | None = None, times: Floats | None = None) -> StepScored:
    """Score a series (time, variable), with its local times, reading by reading, from a state or from the start."""
    if state is None:
        size = next(each.shape[0] for each in session.get_inputs() if each.name == STATE)
        state = np.zeros(size)
    steps = []
    for t, reading in enumerate(series):
        time = {} if times is None else {TIME: times[t : t + 1]}
        *step, state = session.run(OUTPUTS, {READING: reading[None], STATE: state, **time})
        steps.append(step)
    alert, variables, thresholds, flags = (np.concatenate(each) for each in zip(*steps, strict=True))
    return StepScored(alert, variables, thresholds, flags, state)


def checked(detector: Comet, model: bytes) -> Agreement:
    """Compare a file with its detector on generated series; raises an error if they disagree."""
    session, agreement, times = opened(model), Agreement(0, 0.0, 0), times_of(detector).tolist()
    local = np.array([micro + local_clock(detector.timezone, None, micro // QUARTER)[0] for micro in times]) / 1e6
    for name, series in generated(detector, SEED):
        ours = detector.stream().update_many(series, [micro / 1e6 for micro in times])
        theirs = run_steps(session, series, times=local if needs_time(detector) else None)
        differences = [
            _relative_difference(ours.alert_scores, theirs.alert_scores),
            _relative_difference(ours.variables, theirs.variables),
            _relative_difference(ours.thresholds, theirs.thresholds),
        ]
        others = ours.flags != theirs.flags
        near = np.abs(ours.alert_scores - ours.thresholds) <= TOLERANCE * np.maximum(1, np.abs(ours.alert_scores))
        if not max(differences) < TOLERANCE or (others & ~near).any():
            raise OutputError(
                f"The exported graph disagrees with the detector on a generated series ({name}) by "
                f"{max(differences):.2g}, so nothing was written. Please report this as a bug."
            )
        agreement = Agreement(
            agreement.readings + len(series),
            max(agreement.difference, *differences),
            agreement.other_flags + int(others.sum()),
        )
    return agreement


def _relative_difference(ours: Floats, theirs: Floats) -> float:
    """The largest difference, relative to max(1, |ours|); infinite if either is not finite."""
    apart = np.abs(ours - theirs) / np.maximum(1, np.abs(ours))
    return float(apart.max()) if np.isfinite(apart).all() else np.inf
