"""Gather the contents of a report: score the series once and explain its worst events."""

import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Event, Level
from cometad.alerting.budget import Budget
from cometad.alerting.severity import meaning
from cometad.alerting.watch import Promise
from cometad.arrays import Flags, Floats, Integers
from cometad.data.cells import listed
from cometad.data.gaps import complete
from cometad.data.quality import findings
from cometad.detector import Detector
from cometad.explain.reasons import Explanation, Reason
from cometad.registry import describe
from cometad.report.axes import TimeAxis
from cometad.report.contents import EventPanel, Line, Mark, Report, Strip, Trace, drift, usage
from cometad.scoring.scores import StepScores
from cometad.series import Series, as_series
from cometad.views.crossfit import FOLDS
from cometad.views.trim import Stretch, Times

MAX_EVENTS = 20  # events with a panel of their own
MAX_TRACES = 3  # variables drawn per event
MOST_NAMES = 3  # of the variables of a stretch that training left out
MARKS = 1000  # positions on the overview; events without a panel share a mark if they share a position
FAINT = 0.1  # how strongly a notice is drawn; an alert as strongly as it is severe
MIN_CONTEXT, MAX_CONTEXT = 60, 1000  # readings shown before and after an event: its own length, within these

Explain = Callable[[Event, int], Explanation]  # an event of the series, with some readings of context


class Curves(NamedTuple):
    """The scores to draw; each field is (time,)."""

    alerts: Floats  # NaN where imputed
    thresholds: Floats
    ranking: Floats | None  # None if they are the alert scores

    def strip(self, axis: TimeAxis, marks: Sequence[Mark], begin: int, end: int) -> Strip:
        """The time steps from `begin` up to `end`, thinned."""
        limits, ranking = self.thresholds[begin:end], None if self.ranking is None else self.ranking[begin:end]
        return Strip(
            alerts=Line.of(self.alerts[begin:end]),
            thresholds=Line.of(limits) if np.ptp(limits) else Line(np.array([0.0, 1.0]), limits[[0, -1]]),
            ticks=axis.ticks(begin, end),
            marks=tuple(marks),
            ranking=None if ranking is None else Line.of(ranking),
        )


def gather(
    detector: Detector,
    X: object,
    *,
    alerts: Alerts | None = None,
    most_events: int = MAX_EVENTS,
    scored: StepScores | None = None,
    sources: Mapping[str, str] | None = None,
) -> Report:
    """The report of a fitted detector on a series (time, variable).

    The worst `most_events` events get a panel with an explanation. Pass `scored` if the detector's `step_scores` for
    the series are already known. `sources` adds settings to show, such as file names and the command.

    >>> import numpy as np
    >>> from cometad import BASELINES, Quantile
    >>> from cometad.report.gather import gather
    >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> fresh[200] = 30.0
    >>> gather(BASELINES["squared-norm"](threshold=Quantile(rate=1e-9)).fit(normal), fresh).headline
    '1 alert in 500 readings: step 200'
    """
    series = as_series(X, missing=detector.gaps.allowed)
    if detector.gaps.allowed and detector.named_:
        series = complete(series, detector.names_)
    scored = detector.step_scores(series) if scored is None else scored
    imputed = scored.imputed
    axis = TimeAxis(len(series), series.times)
    alerts = alerts or Alerts()
    judge = detector.judge(alerts)
    flags, thresholds, changes = judge.push(scored.alerts, imputed, series.micros)
    events = [change.event for change in changes + judge.finish() if change.kind == "closed"]
    events.sort(key=lambda event: (-event.severity, -event.peak_score, event.number))
    counts = Counter(event.level for event in events)
    judged, trained = _judged(scored.alerts, imputed), _judged(detector.alert_scores_, detector.imputed_)
    curves = Curves(judged, thresholds, None if np.array_equal(scored.scores, scored.alerts) else scored.scores)
    explain = detector.explainer(series) if detector.can_explain else None
    period = detector.statistics_.period
    panels = [
        _panel(event, explain, series, curves, axis, meaning(event.severity, period)) for event in events[:most_events]
    ]
    return Report(
        headline=_headline(counts, panels, axis),
        period=f"{axis.label(0)} to {axis.short_label(len(series) - 1, 0)}",
        summary=_summary(series, flags, imputed, events, counts),
        center=detector.tail_.center,
        threshold=float(detector.threshold_),
        axis=axis.name,
        strip=curves.strip(axis, _marks(events, len(panels), len(series)), 0, len(series)),
        counts=counts,
        panels=tuple(panels),
        explained=detector.can_explain,
        usages=tuple(usage(*scale) for scale in detector.code_usage(series)),
        drift=drift(judged[~np.isnan(judged)], trained[~np.isnan(trained)]),
        findings=_findings(detector, series, _warning(detector, flags, imputed, panels)),
        settings=_settings(detector, alerts, sources or {}),
    )


def _headline(counts: Mapping[Level, int], panels: Sequence[EventPanel], axis: TimeAxis) -> str:
    notices = f" and {_count(counts['notice'], 'notice')}" if counts["notice"] else ""
    found = f"{_count(counts['alert'], 'alert')}{notices} in {axis.duration(0, axis.readings)}"
    if not panels or not counts["alert"]:
        return found
    blamed = f", mostly {panels[0].top[0][0]}" if panels[0].top else ""
    return f"{found}{': ' if sum(counts.values()) == 1 else '; worst at '}{panels[0].start}{blamed}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}" if number else f"No {thing}s"


def _summary(
    series: Series,
    flags: NDArray[np.int64],
    imputed: Flags | None,
    events: Sequence[Event],
    counts: Mapping[Level, int],
) -> tuple[tuple[str, str], ...]:
    inside = sum(event.stop - event.start for event in events)
    share = 0.0 if imputed is None else float(imputed.mean())
    return (
        ("readings", f"{len(series):,}"),
        ("variables", f"{len(series.names):,}"),
        ("alerts", f"{counts['alert']:,}"),
        ("notices", f"{counts['notice']:,}"),
        ("in events", f"{100 * inside / len(series):.2g} %"),
        ("above threshold", f"{100 * flags.mean():.2g} %"),
        *([("imputed, not judged", f"{100 * share:.2g} %")] if share else []),
    )


def _mark(event: Event, first: int, count: int, strength: float = 1.0) -> Mark:
    start, last, peak = ((step - first) / max(count - 1, 1) for step in (event.start, event.stop - 1, event.peak))
    return Mark(event.number, max(start, 0.0), min(last, 1.0), peak, strength)


def _marks(events: Sequence[Event], shown: int, count: int) -> list[Mark]:
    """Marks of events, worst first, on the overview: one per event with a panel, one per position for the others."""
    marks = [_mark(event, 0, count, event.severity if event.level == "alert" else FAINT) for event in events]
    others: dict[int, Mark] = {}  # by position
    for mark in marks[shown:]:
        others.setdefault(int(mark.peak * MARKS), mark)
    return [*marks[:shown], *others.values()]


def _panel(
    event: Event, explain: Explain | None, series: Series, curves: Curves, axis: TimeAxis, rarity: str
) -> EventPanel:
    context = min(max(MIN_CONTEXT, event.stop - event.start), MAX_CONTEXT)
    begin, end = max(0, event.start - context), min(len(series), event.stop + context)
    traces: tuple[Trace, ...] = ()
    if explain is not None:
        explanation = explain(event, context)
        begin, end = explanation.begin, explanation.begin + len(explanation.observed)
        names = series.names if series.named else explanation.names
        readings, reasons = series.values[begin:end], explanation.causes[:MAX_TRACES]
        traces = tuple(_trace(explanation, reason, readings, names, axis) for reason in reasons)
    return EventPanel(
        number=event.number,
        start=axis.label(event.start),
        end=axis.short_label(event.stop - 1, event.start),
        peak=axis.short_label(event.peak, event.start),
        duration=axis.duration(event.start, event.stop),
        severity=event.severity,
        meaning=rarity,
        level=event.level,
        new_level=event.new_level,
        score=event.peak_score,
        top=tuple((trace.variable, trace.share) for trace in traces),
        strip=curves.strip(axis, [_mark(event, begin, end - begin)], begin, end),
        traces=traces,
    )


def _trace(explanation: Explanation, reason: Reason, readings: Floats, names: Sequence[str], axis: TimeAxis) -> Trace:
    column = explanation.names.index(reason.variable)
    sentence = reason.sentence(axis.label(reason.step))
    if reason.scale is not None and reason.frequency is not None:
        seen = f"seen in {100 * reason.frequency:.2g} % of the training data"
        sentence += f" Its nearest normal pattern is {reason.scale} readings long and {seen}."
    # Imputed values were never measured, so they are not drawn.
    observed = np.where(np.isnan(readings[:, column]), np.nan, explanation.observed[:, column])
    lines = (Line.of(observed), Line.of(explanation.normal[:, column]))
    return Trace(names[column], reason.share, *lines, sentence)


def _judged(scores: Floats, imputed: Flags | None) -> Floats:
    """The scores (time,), NaN where they are imputed; unchanged if all of them are."""
    return scores if imputed is None or imputed.all() else np.where(imputed, np.nan, scores)


def _findings(detector: Detector, series: Series, warning: str | None) -> tuple[tuple[str, str], ...]:
    """The budget, the warning, trends, what training left out, and the findings of the data quality checks."""
    statistics, rule = detector.statistics_, detector.threshold
    if not detector.named_:  # fitted on an array: use the names of this series
        statistics = replace(statistics, names=series.names)
    reduced = rule.reduced(detector.statistics_.period) if isinstance(rule, Budget) else None
    season = [] if detector.season_ is None else detector.season_.sentences(statistics.names)
    found = [
        ("budget", reduced),
        ("promise", warning),
        *(("trend", sentence) for sentence in detector.trends_.sentences(statistics.names)),
        *(("season", sentence) for sentence in season),
        *(("left out", sentence) for sentence in trimmed(detector)),
        *((finding.kind, finding.sentence) for finding in findings(series, statistics, detector.trends_.trending)),
    ]
    return tuple((kind, sentence) for kind, sentence in found if sentence is not None)


def _warning(detector: Detector, flags: Integers, imputed: Flags | None, panels: Sequence[EventPanel]) -> str | None:
    """Whether far more or fewer readings are flagged than promised, with the variables of the worst events."""
    blamed = [panel.top[0][0] for panel in panels if panel.top][: flags.sum()]
    promise = Promise(detector.threshold.rate)
    judged = len(flags) - (0 if imputed is None else int(imputed.sum()))
    promise.push(judged, [*blamed, *[""] * (flags.sum() - len(blamed))])
    return promise.warning()


def trimmed(detector: Detector) -> list[str]:
    """Sentences about views that need a longer history, and about each stretch that a detector left out."""
    views = [view for v, view in enumerate(getattr(detector, "views", ())) if v in getattr(detector, "left_out_", ())]
    needs = [f"{type(view).__name__} ({FOLDS * view.min_rows} readings)" for view in views]
    short = [f"The history is too short for these views: {listed(needs, MOST_NAMES, str)}."] if needs else []
    stretches: tuple[Stretch, ...] = getattr(detector, "trimmed_", ())
    times: tuple[Times | None, ...] = getattr(detector, "trimmed_times_", None) or (None,) * len(stretches)
    return short + [trimmed_sentence(stretch, own) for stretch, own in zip(stretches, times, strict=True)]


def trimmed_sentence(stretch: Stretch, times: Times | None = None) -> str:
    """Which readings were left out and why, with the times of the first and the last one if they are known."""
    last = stretch.stop - 1
    if times is None:
        where = f"time steps {stretch.start:,} to {last:,}" if last > stretch.start else f"time step {last:,}"
    else:
        axis = TimeAxis(2, np.array(times))
        where = f"{axis.label(0)} to {axis.short_label(1, 0)}" if last > stretch.start else axis.label(0)
    names = listed(stretch.variables, MOST_NAMES, str)
    return f"Left out of training: {where}{f' ({names})' if names else ''}: {stretch.reason}."


def _settings(detector: Detector, alerts: Alerts, sources: Mapping[str, str]) -> dict[str, Any]:
    versions = {"cometad": version("cometad"), "python": platform.python_version(), "numpy": version("numpy")}
    with suppress(PackageNotFoundError):  # an extra of cometad
        versions["torch"] = version("torch")
    return {
        **sources,
        "detector": type(detector).__name__,
        "parameters": {name: describe(value) for name, value in detector.get_params(deep=False).items()},
        "threshold": float(detector.threshold_),
        "alerts": asdict(alerts),
        "versions": versions,
    }
