"""The alerts that a budget raises on the scores of a detector, and what they are worth."""

from functools import cache
from typing import NamedTuple

import numpy as np

from cometad import Budget
from cometad.alerting.alerts import Alerts, Event, Judge
from cometad.alerting.severity import ScoreTail
from cometad.datasets.dataset import Dataset
from threshold_tables.shared import anomalies, far_from

SHIFTS = 100
DEFAULT = Budget()


class Scores(NamedTuple):
    """The alert scores of one detector on one entity."""

    family: str
    entity: str
    training: np.ndarray  # (time,)
    test: np.ndarray  # (time,)
    anomalies: list[tuple[int, int]]
    normal: np.ndarray  # (time,)  far from any anomaly

    @classmethod
    def of(cls, detector, entity: Dataset) -> "Scores":
        """The scores of a fitted detector."""
        test = detector.step_scores(entity.test).alerts
        training = detector.alert_scores_[~detector.imputed_]
        return cls(entity.name, entity.entity, training, test, anomalies(entity), far_from(entity.labels))


class Raised(NamedTuple):
    """What was raised."""

    steps: np.ndarray  # (alert,)  when each alert was raised
    events: list[Event]  # alerts and notices, closed
    flags: np.ndarray  # (time,)


class Worth(NamedTuple):
    """How the alerts on one entity compare with its labels."""

    found: float  # NaN without anomalies
    chance: float
    false: int
    normal: int  # readings
    flagged: int  # normal readings flagged within an alert
    open: int  # normal readings between start and end of an alert
    alerts: int
    true: int  # alerts raised within an anomaly
    per_anomaly: list[int]  # events that start in each anomaly with any
    hidden: int  # anomalies that never score among the highest 5 % of the normal readings
    labeled: int  # anomalies


def judged(scores: Scores, rule: Budget, period: float = np.nan, alerts: Alerts = Alerts(), gaps=None) -> Raised:
    """The alerts of a rule; `gaps` (time,) marks readings that are missing."""
    state, tail = rule.fit(scores.training, period), ScoreTail.fit(scores.training)
    judge = Judge(rule, state, alerts, tail, period)
    flags, _, changes = judge.push(scores.test, gaps)
    changes += judge.finish()
    steps: dict[int, int] = {}
    for change in changes:
        if change.event.level == "alert" and change.kind != "closed":
            steps.setdefault(change.event.number, change.step)
    closed = [change.event for change in changes if change.kind == "closed"]
    return Raised(np.array(list(steps.values()), int), closed, flags == 1)


def worth(scores: Scores, raised: Raised) -> Worth:
    """Compare alerts with labels."""
    length, normal = len(scores.test), scores.normal
    inside = np.zeros(length, bool)
    for event in raised.events:
        inside[event.start : event.stop] |= event.level == "alert"
    shifts = np.linspace(0, length, SHIFTS, endpoint=False).astype(int)
    chance = np.nan if not scores.anomalies else np.mean([_found(scores, (raised.steps + s) % length) for s in shifts])
    high = np.quantile(scores.test[normal], 0.95) if normal.any() else -np.inf
    starts = np.array([event.start for event in raised.events], int)
    counts = [int(((starts >= start) & (starts < stop)).sum()) for start, stop in scores.anomalies]
    labeled = np.zeros(length, bool)
    for start, stop in scores.anomalies:
        labeled[start:stop] = True
    return Worth(
        _found(scores, raised.steps) if scores.anomalies else np.nan,
        float(chance),
        int(normal[raised.steps].sum()),
        int(normal.sum()),
        int((raised.flags & inside & normal).sum()),
        int((inside & normal).sum()),
        len(raised.steps),
        int(labeled[raised.steps].sum()),
        [count for count in counts if count],
        sum(bool(scores.test[start:stop].max() < high) for start, stop in scores.anomalies),
        len(scores.anomalies),
    )


def _found(scores: Scores, steps: np.ndarray) -> float:
    seen = np.concatenate([[0], np.bincount(steps, minlength=len(scores.test)).cumsum()])
    return float(np.mean([seen[stop] > seen[start] for start, stop in scores.anomalies]))


class Summary(NamedTuple):
    """Means over families; `found` and `false` are also there by family."""

    found: float
    chance: float
    false: float  # per 1,000 normal readings
    precision: float
    flagged: float  # share of normal readings
    open: float
    per_anomaly: float


def summary(results: list[tuple[Scores, Worth]], families) -> Summary:
    """The mean over families of the worth of alerts."""
    means = []
    for family in families:
        own = [value for scores, value in results if scores.family == family]
        normal = sum(one.normal for one in own)
        per_anomaly = [count for one in own for count in one.per_anomaly]
        means.append(
            Summary(
                float(np.nanmean([one.found for one in own])),
                float(np.nanmean([one.chance for one in own])),
                1000 * sum(one.false for one in own) / normal,
                sum(one.true for one in own) / max(1, sum(one.alerts for one in own)),
                sum(one.flagged for one in own) / normal,
                sum(one.open for one in own) / normal,
                float(np.mean(per_anomaly)) if per_anomaly else np.nan,
            )
        )
    return Summary(*(float(value) for value in np.nanmean(means, axis=0)))


@cache
def budget_of(per_thousand: float) -> Budget:
    return Budget(alerts=per_thousand, per=1000)
