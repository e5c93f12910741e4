"""Turn scores into flags and events in one pass: a threshold's watch, then alerts."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.alerts import AlertRun, Alerts, Change
from cometad.alerting.budget import PAUSE, AlertBudgetWatch
from cometad.alerting.severity import ScoreTail
from cometad.alerting.tracking import FLOOR
from cometad.alerting.watch import Threshold, as_scores
from cometad.arrays import Floats, Integers
from cometad.saving import require_state, taken


class Judged(NamedTuple):
    """Flags, thresholds and event changes of consecutive scores."""

    flags: NDArray[np.int64]  # (time,)  1 where a measured score is above its threshold
    thresholds: Floats  # (time,)
    changes: list[Change]  # opened, updated and closed events


class Judge:
    """Flags and events of scores that arrive in chunks of any size, in bounded memory.

    Under a budget of alerts, each event that opens raises the threshold. Pauses of up to ten readings do not end an
    event there, even if `merge_gap` is smaller: scores flicker. `period` is the seconds between readings (NaN:
    unknown), for events that may last some hours.

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

    def __init__(
        self, rule: Threshold, state: Floats, alerts: Alerts, tail: ScoreTail, period: float = math.nan
    ) -> None:
        self._rule, self._watch, track = rule, rule.watch(state), None
        if isinstance(self._watch, AlertBudgetWatch):  # its thresholds depend on the events
            alerts, track = replace(alerts, merge_gap=max(alerts.merge_gap, PAUSE)), self._watch.track
        self._run = AlertRun(alerts, tail, track=track, period=period)

    @property
    def alerts(self) -> AlertRun:
        """The run that groups flagged time steps into events."""
        return self._run

    def push(
        self, scores: ArrayLike, imputed: NDArray[np.bool_] | None = None, times: Integers | None = None
    ) -> Judged:
        """Judge the next scores (time,), in time order; with `times` in microseconds since 1970, events know theirs.

        Scores of `imputed` time steps (time,) are neither flagged nor learned from.
        """
        values = np.atleast_1d(np.asarray(scores, np.float64))
        measured = np.ones(len(values), np.bool_) if imputed is None else ~imputed
        as_scores(values if imputed is None else values[measured])
        tops = values if isinstance(self._watch, AlertBudgetWatch) else self._follow_measured(values, measured)
        thresholds, changes = self._run.advance(values, tops, measured, times)
        return Judged(((values > thresholds) & measured).astype(np.int64), thresholds, changes)

    def _follow_measured(self, values: Floats, measured: NDArray[np.bool_]) -> Floats:
        """The threshold of each time step; an unmeasured step takes that of the next measured one."""
        if measured.all():
            return self._watch.follow(values)
        known = np.append(self._watch.follow(values[measured]), self._watch.threshold)
        followed: Floats = known[np.cumsum(measured) - measured]
        return followed

    def finish(self) -> list[Change]:
        """Close the open event at the end of the series."""
        return self._run.finish()

    def state(self) -> dict[str, NDArray[Any]]:
        """The complete state, by name."""
        watch = self._run.track if len(self._run.track) else self._watch.state()
        return {"watch": watch.copy()} | {f"alerts.{name}": value for name, value in self._run.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from a state of a judge with the same rule, alerts and tail."""
        watch = taken(state, "watch", ("number",))
        restored = self._rule.watch(watch)
        if isinstance(restored, AlertBudgetWatch):
            require_state(watch.shape == self._run.track.shape, "the state of its threshold has another length")
            self._run.track = np.where(np.arange(len(watch)) == FLOOR, self._run.track, watch)  # 0.2 had no floor
        self._watch = restored
        prefix = "alerts."
        self._run.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
