"""Check an exported file against its detector: both score generated series and must agree."""

from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from cometad.arrays import Floats
from cometad.comet import Comet
from cometad.errors import OutputError
from cometad.export.series import generated
from cometad.export.step import ALERT_SCORE, FLAG, NEXT_STATE, READING, STATE, THRESHOLD, VARIABLE_SCORES

TOLERANCE = 1e-5  # relative to max(1, |value|)
SEED = 20


class Agreement(NamedTuple):
    """How well an exported file agrees with its detector."""

    readings: int  # scored by both
    difference: float  # the largest, of alert scores, variables' scores and thresholds, relative to max(1, |value|)
    other_flags: int  # flags that differ; allowed only where the score is within the tolerance of its threshold


class StepScored(NamedTuple):
    """The outputs of an exported file for a series, and the final state."""

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


def run(session: Any, series: Floats, state: Floats | None = None) -> StepScored:
    """Score a series (time, variable) reading by reading, from a state or from the start."""
    if state is None:
        size = next(each.shape[0] for each in session.get_inputs() if each.name == STATE)
        state = np.zeros(size)
    names, steps = [ALERT_SCORE, VARIABLE_SCORES, THRESHOLD, FLAG, NEXT_STATE], []
    for reading in series:
        *step, state = session.run(names, {READING: reading[None], STATE: state})
        steps.append(step)
    alert, variables, thresholds, flags = (np.concatenate(each) for each in zip(*steps, strict=True))
    return StepScored(alert, variables, thresholds, flags, state)


def checked(detector: Comet, model: bytes) -> Agreement:
    """Compare a file with its detector on generated series; raises an error if they disagree."""
    session, agreement = opened(model), Agreement(0, 0.0, 0)
    for name, series in generated(detector, SEED):
        ours, theirs = detector.stream().update_many(series), run(session, series)
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
