"""Turn scores into flags and events in one pass: a threshold's watch, then alerts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.alerts import AlertRun, Alerts, Change
from cometad.alerting.severity import ScoreTail
from cometad.alerting.watch import Threshold
from cometad.arrays import Floats
from cometad.restored import taken


class Judged(NamedTuple):
    """Flags, thresholds and event changes of consecutive scores."""

    flags: NDArray[np.int64]  # (time,)  1 where a measured score is above its threshold
    thresholds: Floats  # (time,)
    changes: list[Change]  # opened, updated and closed events


class Judge:
    """Flags and events of scores that arrive in chunks of any size, in bounded memory.

    Under a budget of alerts, events are merged over pauses that the budget takes for part of one alert, even if
    `merge_gap` is smaller: otherwise there would be more events than the budget counts.

    >>> import numpy as np
    >>> from cometad.alerting.alerts import Alerts
    >>> from cometad.alerting.judge import Judge
    >>> from cometad.alerting.severity import ScoreTail
    >>> from cometad.alerting.thresholds import Quantile
    >>> rule, training = Quantile(0.1), np.arange(11.0)
    >>> judge = Judge(rule, rule.fit(training), Alerts(), ScoreTail.fit(training))
    >>> judged = judge.push([3.0, 12.0, 4.0])
    >>> judged.flags, [change.kind for change in judged.changes]
    (array([0, 1, 0]), ['opened', 'closed'])
    """

    def __init__(self, rule: Threshold, state: Floats, alerts: Alerts, tail: ScoreTail) -> None:
        self._rule = rule
        self._watch = rule.watch(state)
        merge_gap = max(alerts.merge_gap, self._watch.pause)
        self._run = replace(alerts, merge_gap=merge_gap).start(tail)

    @property
    def alerts(self) -> AlertRun:
        """The run that groups flagged time steps into events."""
        return self._run

    def push(self, scores: ArrayLike, imputed: NDArray[np.bool_] | None = None) -> Judged:
        """Judge the next scores (time,), in time order.

        Scores of `imputed` time steps (time,) are neither flagged nor learned from.
        """
        values = np.atleast_1d(np.asarray(scores, np.float64))
        if imputed is None or not imputed.any():
            thresholds = self._watch.follow(values)
            return Judged((values > thresholds).astype(np.int64), thresholds, self._run.push(values, thresholds))
        thresholds = self._follow_measured(values, ~imputed)
        flags = ((values > thresholds) & ~imputed).astype(np.int64)
        return Judged(flags, thresholds, self._run.push(values, thresholds, imputed))

    def _follow_measured(self, values: Floats, measured: NDArray[np.bool_]) -> Floats:
        """The threshold of each time step; an unmeasured step takes that of the next measured one."""
        known = np.append(self._watch.follow(values[measured]), self._watch.threshold)
        followed: Floats = known[np.cumsum(measured) - measured]
        return followed

    def finish(self) -> list[Change]:
        """Close the open event at the end of the series."""
        return self._run.finish()

    def state(self) -> dict[str, NDArray[Any]]:
        """The complete state, by name."""
        return {"watch": self._watch.state()} | {f"alerts.{name}": value for name, value in self._run.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from a state of a judge with the same rule, alerts and tail."""
        self._watch = self._rule.watch(taken(state, "watch", ("number",)))
        prefix = "alerts."
        self._run.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
