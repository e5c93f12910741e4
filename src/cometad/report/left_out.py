"""Stretches of the training series that `fit` left out, in words."""

import numpy as np

from cometad.detector import Detector
from cometad.report.time_axis import TimeAxis
from cometad.views.trim import Stretch, Times

KIND = "left out"  # among the findings of a report
MOST_NAMES = 3


def left_out(detector: Detector) -> list[str]:
    """A sentence for each stretch that a fitted detector left out; none if it learns from everything."""
    stretches: tuple[Stretch, ...] = getattr(detector, "trimmed_", ())
    times: tuple[Times | None, ...] = getattr(detector, "trimmed_times_", None) or (None,) * len(stretches)
    return [sentence(stretch, own) for stretch, own in zip(stretches, times, strict=True)]


def sentence(stretch: Stretch, times: Times | None = None) -> str:
    """Which readings were left out and why, with the times of the first and the last one if they are known."""
    last = stretch.stop - 1
    if times is None:
        where = f"time steps {stretch.start:,} to {last:,}" if last > stretch.start else f"time step {last:,}"
    else:
        axis = TimeAxis(2, np.array(times))
        where = f"{axis.label(0)} to {axis.short_label(1, 0)}" if last > stretch.start else axis.label(0)
    names = ", ".join(stretch.variables[:MOST_NAMES])
    if len(stretch.variables) > MOST_NAMES:
        names += f" and {len(stretch.variables) - MOST_NAMES} more"
    return f"Left out of training: {where}{f' ({names})' if names else ''}: {stretch.reason}."
