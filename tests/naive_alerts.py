"""The docstrings of `Alerts`, `Budget` and `ScoreTail` as loops, one reading at a time."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from cometad.alerting.alerts import Change, Event


def naive_log_probability(score, tail):
    """Linear from the median, which half of the readings exceed, to the start of the tail; then the tail."""
    at_start, at_median = math.log(tail.share), math.log(max(0.5, tail.share))
    if score >= tail.start:
        units = (score - tail.start) / tail.scale
        return at_start - (math.log1p(tail.shape * units) / tail.shape if tail.shape else units)
    if score <= tail.center:
        return at_median
    return at_median + (at_start - at_median) * (score - tail.center) / (tail.start - tail.center)


def unclipped_severity(score, tail):
    return naive_log_probability(score, tail) / (-9 * math.log(10))


def naive_severity(score, tail):
    return min(max(unclipped_severity(score, tail), 0.0), 1.0)


class NaiveBudget:
    """The threshold of a budget of alerts, given the share of readings that may open an event."""

    def __init__(self, training, share, tail):
        self.share, self.tail = share, tail
        often = share / 0.3
        if often * len(training) >= 10:
            self.start = float(np.quantile(training, 1 - often))
        else:
            units = -math.log(min(often / tail.share, 1.0))
            self.start = tail.start + tail.scale * (
                math.expm1(tail.shape * units) / tail.shape if tail.shape else units
            )
        spread = max(self.start - float(np.quantile(training, 0.5)), 1e-6 * max(map(abs, training)))
        self.spread = spread if spread > 1e-30 else 1e-6
        self.floor = min(float(np.quantile(training, 0.8)), self.start)
        self.position, self.last = 0.0, training[-1]

    def score_at(self, position):
        distance = self.spread * math.expm1(min(abs(position), 709.0))
        return self.start + distance if position >= 0 else self.start - distance

    def position_of(self, score):
        return math.copysign(math.log1p(abs(score - self.start) / self.spread), score - self.start)

    @property
    def threshold(self):
        return max(self.score_at(self.position), self.floor)

    def move(self, score, peak):
        """After a reading, given the peak of the event that it opened, if it did."""
        cost = 0.0
        if peak is not None:
            cost = 1.0 + 0.8 * min(max((0.4 - unclipped_severity(peak, self.tail)) / (0.4 - 0.3), 0.0), 1.0)
        moved = self.position + 0.25 * (cost - self.share)
        as_before = abs(score - self.last) <= 1e-6 * self.spread
        if peak is not None or not as_before or score <= self.score_at(moved):
            self.position = moved
        if self.score_at(self.position) < self.floor:
            self.position = self.position_of(self.floor)
        self.last = score


@dataclass
class Candidate:
    """A candidate for an event, or the event that it became."""

    start: int
    start_time: int | None
    peak: int
    peak_time: int | None
    peak_score: float
    mark: float
    threshold: float
    last: int = -1
    last_time: int | None = None
    hot: int = 0
    warm: int = 0  # steps at or above the low mark
    quiet: int = 0
    open: bool = False
    new_level: bool = False


class NaiveRun:
    """Events of scores, with the thresholds of a budget or with given ones."""

    def __init__(self, alerts, tail, budget=None, period=math.nan):
        self.alerts, self.tail, self.budget = alerts, tail, budget
        hours = math.inf if math.isnan(period) else alerts.longest_hours * 3600 / period
        self.longest = int(min(alerts.longest, max(hours, 8)))
        self.step = self.free = 0
        self.opened = self.suppressed = self.short = 0
        self.event = None
        self.level, self.calm, self.mark = None, 0, math.inf  # of the state that is no longer news
        self.changes, self.thresholds, self.flags = [], [], []

    @property
    def news(self):
        return -math.inf if self.level is None else self.tail.center + 1.1 * max(self.level - self.tail.center, 0.0)

    @property
    def threshold(self):
        if self.event is not None and self.event.open:
            return self.event.threshold
        return max(self.budget.threshold, self.news)

    def take(self, score, given, measured, time):
        top = given if self.budget is None else self.budget.threshold
        threshold = given if self.budget is None else self.threshold
        self.thresholds.append(threshold)
        self.flags.append(measured and score > threshold)
        if measured:
            number = self.opened
            mark = min(top, self.alerts.low * top + (1 - self.alerts.low) * self.tail.center)
            if self.lasts(score):
                mark = max(top, self.news) if self.event is None else self.event.mark
            old = self.level is not None and score <= mark
            if old and self.event is None:
                self.level = max(score, self.tail.center + 0.998 * (self.level - self.tail.center))
            self.suppressed += old and self.flags[-1]
            hot = self.flags[-1] and not old
            self.join(score, hot, mark, time)
            if self.budget is not None:
                self.budget.move(score, self.changes[-1].event.peak_score if self.opened > number else None)
        self.step += 1

    def lasts(self, score):
        """Whether a state that is no longer news still lasts."""
        if self.level is not None:
            self.calm = 0 if score >= self.mark else self.calm + 1
            if self.calm > max(self.alerts.merge_gap, 10):
                self.level = None
        return self.level is not None

    def join(self, score, hot, mark, time):
        """Add a step to the candidate or event, or start one."""
        if self.event is None:
            if not hot:
                return
            if self.step < self.free:
                self.suppressed += 1
                return
            self.event = Candidate(self.step, time, self.step, time, score, mark, self.thresholds[-1])
        event = self.event
        if score < min(mark, event.mark):
            event.quiet += 1
            if not event.open:
                self.short += event.hot
                self.event = None
            elif event.quiet > self.alerts.merge_gap:
                self.close()
            return
        event.last, event.last_time, event.quiet = self.step, time, 0
        event.warm += 1
        event.hot += hot
        higher = hot and score > event.peak_score
        if higher:
            event.peak, event.peak_time, event.peak_score = self.step, time, score
        if not event.open:
            if event.warm >= self.alerts.min_length:
                event.open = True
                self.opened += 1
                self.tell("opened")
        elif self.step - event.start + 1 >= self.longest:
            self.mark = event.mark if self.level is None else min(self.mark, event.mark)
            event.new_level, self.level, self.calm = True, event.peak_score, 0
            self.close()
        elif higher:
            self.tell("updated")

    def close(self):
        self.event.open = False
        self.tell("closed")
        self.event, self.free = None, self.step + 1 + self.alerts.hold_off

    def finish(self):
        self.step -= 1
        if self.event is not None and self.event.open:
            self.close()
        elif self.event is not None:
            self.short += self.event.hot

    def tell(self, kind):
        event = self.event
        severity = naive_severity(event.peak_score, self.tail)
        times = [
            None if time is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
            for time in (event.start_time, event.last_time, event.peak_time)
        ]
        found = Event(
            number=self.opened,
            start=event.start,
            stop=event.last + 1,
            peak=event.peak,
            peak_score=event.peak_score,
            severity=severity,
            steps=event.hot,
            open=event.open,
            level="alert" if severity >= self.alerts.alert_from else "notice",
            new_level=event.new_level,
            start_time=times[0],
            stop_time=times[1],
            peak_time=times[2],
        )
        self.changes.append(Change(kind, found, self.step))
