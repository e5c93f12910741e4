"""Stretches of the training series that `fit` left out, in words."""

from collections.abc import Sequence

from cometad.detector import Detector
from cometad.report.times import TimeAxis
from cometad.views.trim import Stretch

KIND = "left out"  # among the findings of a report
MOST_NAMES = 3


def left_out(detector: Detector) -> Sequence[Stretch]:
    """The stretches that a fitted detector left out; none if it learns from everything.

    >>> import numpy as np
    >>> from cometad import Comet
    >>> from cometad.report.left_out import left_out
    >>> normal = np.random.default_rng(0).normal(size=(1000, 2))
    >>> [stretch.start for stretch in left_out(Comet(trim=False).fit(normal, exclude=[(200, 260)]))]
    [200]
    """
    return getattr(detector, "trimmed_", ())


def sentence(stretch: Stretch, axis: TimeAxis | None = None) -> str:
    """Which readings were left out and why, with times if the axis of the training series is known.

    >>> from cometad.report.left_out import sentence
    >>> from cometad.views.trim import Stretch
    >>> sentence(Stretch(200, 260, ("flow",), "does not fit the rest"))
    'Left out of training: time steps 200 to 259 (flow): does not fit the rest.'
    """
    last = stretch.stop - 1
    if axis is None or axis.times is None:
        where = f"time steps {stretch.start:,} to {last:,}" if last > stretch.start else f"time step {last:,}"
    else:
        where = f"{axis.label(stretch.start)} to {axis.short_label(last, stretch.start)}"
    names = ", ".join(stretch.variables[:MOST_NAMES])
    if len(stretch.variables) > MOST_NAMES:
        names += f" and {len(stretch.variables) - MOST_NAMES} more"
    return f"Left out of training: {where}{f' ({names})' if names else ''}: {stretch.reason}."
