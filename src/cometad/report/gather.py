"""From a detector and data to what there is to say of them: one pass of scoring, and the worst events explained."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Event
from cometad.arrays import Flags, Floats
from cometad.comet import Comet
from cometad.data.gaps import complete
from cometad.data.quality import findings
from cometad.detector import Detector, StepScores
from cometad.explain.reasons import Explanation, Reason
from cometad.registry import describe
from cometad.report.axis import text
from cometad.report.contents import Line, Mark, Panel, Report, Strip, Trace
from cometad.report.drift import drift
from cometad.report.times import Clock
from cometad.report.usage import Usage, usage
from cometad.series import Series, as_series

MOST_EVENTS = 20  # explained, the worst ones
MOST_TRACES = 3  # variables drawn for an event
LEAST_SHARE = 0.03  # of a variable to be drawn or named, unless it is the first
MARKS = 1000  # places for events on the overview; those nearer to each other are one mark
LEAST_CONTEXT, MOST_CONTEXT = 60, 1000  # readings before and after an event: as many as it has, within these


def gather(
    detector: Detector,
    X: object,
    *,
    alerts: Alerts = Alerts(),
    most_events: int = MOST_EVENTS,
    scored: StepScores | None = None,
    sources: Mapping[str, str] | None = None,
) -> Report:
    """Everything there is to say of a series (time, variable), from a fitted detector.

    `most_events` are explained, the worst ones. `scored` is what the detector's `step_scores` gives for the series,
    where that is known already; `sources` are more settings to show: the files, the command.

    >>> import numpy as np
    >>> from cometad import BASELINES, Quantile
    >>> from cometad.report.gather import gather
    >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> fresh[200] = 30.0
    >>> gather(BASELINES["squared-norm"](threshold=Quantile(rate=1e-9)).fit(normal), fresh).headline
    '1 event in 500 readings: step 200'
    """
    series = as_series(X, missing=detector.gaps.allowed)
    if detector.gaps.allowed and detector.named_:
        series = complete(series, detector.names_)
    scores, imputed = detector.step_scores(series) if scored is None else scored
    clock = Clock(len(series), series.times)
    judge = detector.judge(alerts)
    flags, thresholds, changes = judge.push(scores, imputed)
    events = [change.event for change in changes + judge.finish() if change.kind == "closed"]
    judged = _judged(scores, imputed)
    panels = [_panel(detector, series, judged, thresholds, clock, event) for event in worst(events, most_events)]
    return Report(
        headline=_headline(events, panels, clock),
        period=_period(clock),
        summary=_summary(series, flags, imputed, events),
        center=detector.tail_.center,
        threshold=float(detector.threshold_),
        axis=clock.axis,
        strip=_strip(judged, thresholds, clock, _merged(events, worst(events, most_events), len(scores))),
        event_count=len(events),
        panels=tuple(panels),
        explained=isinstance(detector, Comet),
        usages=_usages(detector, series),
        drift=drift(_measured(judged), _measured(_judged(detector.decision_scores_, detector.imputed_))),
        findings=_findings(detector, series),
        settings=_settings(detector, alerts, sources or {}),
    )


def worst(events: Sequence[Event], most: int) -> list[Event]:
    """The events of the highest severity, at most so many, in the order of time.

    >>> from cometad.alerting.alerts import Event
    >>> from cometad.report.gather import worst
    >>> events = [Event(k, k, k + 1, k, score, score / 9, 1, False) for k, score in enumerate([3.0, 9.0, 5.0])]
    >>> [event.peak_score for event in worst(events, 2)]
    [9.0, 5.0]
    """
    ranked = sorted(events, key=lambda event: (-event.severity, -event.peak_score, event.number))
    return sorted(ranked[:most], key=lambda event: event.number)


def _headline(events: Sequence[Event], panels: Sequence[Panel], clock: Clock) -> str:
    period = clock.lasting(0, clock.readings)
    if not panels:
        return f"{_count(len(events), 'event')} in {period}"
    chief = max(panels, key=lambda panel: (panel.severity, panel.score))
    blamed = f", mostly {chief.top[0][0]}" if chief.top else ""
    if len(events) == 1:
        return f"1 event in {period}: {chief.start}{blamed}"
    return f"{_count(len(events), 'event')} in {period}; worst {chief.start}{blamed}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}" if number else f"No {thing}s"


def _period(clock: Clock) -> str:
    return f"{clock.at(0)} to {clock.later(clock.readings - 1, 0)}"


def _summary(
    series: Series, flags: NDArray[np.int64], imputed: Flags | None, events: Sequence[Event]
) -> tuple[tuple[str, str], ...]:
    inside = sum(event.stop - event.start for event in events)
    return (
        ("readings", f"{len(series):,}"),
        ("variables", f"{len(series.names):,}"),
        ("events", f"{len(events):,}"),
        ("inside events", f"{100 * inside / len(series):.2g} %"),
        ("above threshold", f"{100 * flags.mean():.2g} %"),
        *(
            [("filled in, not judged", f"{100 * imputed.mean():.2g} %")]
            if imputed is not None and imputed.any()
            else []
        ),
    )


def _strip(scores: Floats, thresholds: Floats, clock: Clock, marks: Sequence[Mark], first: int = 0) -> Strip:
    limits = Line.of(thresholds) if np.ptp(thresholds) else Line(np.array([0.0, 1.0]), thresholds[[0, -1]])
    return Strip(Line.of(scores), limits, clock.ticks(first, first + len(scores)), tuple(marks))


def _mark(event: Event, first: int, count: int) -> Mark:
    start, last, peak = ((step - first) / max(count - 1, 1) for step in (event.start, event.stop - 1, event.peak))
    return Mark(event.number, max(start, 0.0), min(last, 1.0), peak)


def _merged(events: Sequence[Event], named: Sequence[Event], count: int) -> list[Mark]:
    """Marks of all events: those that are named, and of the others one where the eye sees one."""
    marks = [_mark(event, 0, count) for event in named]
    numbers = {event.number for event in named}
    taken: set[int] = set()
    for event in events:
        mark = _mark(event, 0, count)
        place = int(mark.peak * MARKS)
        if event.number not in numbers and place not in taken:
            taken.add(place)
            marks.append(mark)
    return marks


def _panel(detector: Detector, series: Series, scores: Floats, thresholds: Floats, clock: Clock, event: Event) -> Panel:
    around = min(max(LEAST_CONTEXT, event.stop - event.start), MOST_CONTEXT)
    begin, end = max(0, event.start - around), min(len(scores), event.stop + around)
    traces: tuple[Trace, ...] = ()
    top: tuple[tuple[str, float], ...] = ()
    if isinstance(detector, Comet):
        explanation = detector.explain(series, event, context=around)
        begin, end = explanation.begin, explanation.begin + len(explanation.observed)
        leading = _leading(explanation.reasons)
        names = series.names if series.named else detector.names_
        raw = series.values[begin:end]
        traces = tuple(_trace(explanation, reason, raw, names, clock) for reason in leading)
        top = tuple((trace.variable, trace.share) for trace in traces)
    inside = slice(begin, end)
    return Panel(
        number=event.number,
        start=clock.at(event.start),
        end=clock.later(event.stop - 1, event.start),
        peak=clock.later(event.peak, event.start),
        lasting=clock.lasting(event.start, event.stop),
        severity=event.severity,
        score=event.peak_score,
        top=top,
        strip=_strip(scores[inside], thresholds[inside], clock, [_mark(event, begin, end - begin)], begin),
        traces=traces,
    )


def _leading(reasons: Sequence[Reason]) -> list[Reason]:
    """The largest shares: of all reasons, the largest share first."""
    return [reason for k, reason in enumerate(reasons[:MOST_TRACES]) if k == 0 or reason.share >= LEAST_SHARE]


def _trace(explanation: Explanation, reason: Reason, raw: Floats, names: Sequence[str], clock: Clock) -> Trace:
    column = explanation.names.index(reason.variable)
    far = int(np.argmax(np.abs(reason.observed - reason.expected)))
    sentence = (
        f"It read {text(float(reason.observed[far]))} at {clock.at(reason.start + far)}, where the nearest of its "
        f"normal patterns of {reason.scale} readings has {text(float(reason.expected[far]))}; that pattern is "
        f"{100 * reason.frequency:.2g} % of training."
    )
    # What was filled in is not drawn as if it had been read.
    read = np.where(np.isnan(raw[:, column]), np.nan, explanation.observed[:, column])
    lines = (Line.of(read), Line.of(explanation.normal[:, column]))
    return Trace(names[column], reason.share, *lines, sentence)


def _usages(detector: Detector, series: Series) -> tuple[Usage, ...]:
    if not isinstance(detector, Comet):
        return ()
    pairs = zip(detector.patch_sizes, detector.code_counts_, detector.code_counts(series), strict=True)
    return tuple(usage(size, training, here) for size, training, here in pairs)


def _measured(judged: Floats) -> Floats:
    return judged[~np.isnan(judged)]


def _judged(scores: Floats, imputed: Flags | None) -> Floats:
    """The scores (time,), NaN where nothing was measured; as they are where nothing was measured at all."""
    return scores if imputed is None or imputed.all() else np.where(imputed, np.nan, scores)


def _findings(detector: Detector, series: Series) -> tuple[tuple[str, str], ...]:
    """What is noteworthy of the readings themselves."""
    known = detector.statistics_
    if not detector.named_:  # fitted on an array: the names are those of this series
        known = replace(known, names=series.names)
    return tuple((found.kind, found.sentence) for found in findings(series, known))


def _settings(detector: Detector, alerts: Alerts, sources: Mapping[str, str]) -> dict[str, Any]:
    return {
        **sources,
        "detector": type(detector).__name__,
        "parameters": {name: describe(value) for name, value in detector.get_params(deep=False).items()},
        "threshold": float(detector.threshold_),
        "alerts": {name: getattr(alerts, name) for name in ("low", "min_length", "merge_gap", "hold_off")},
        "versions": {
            "cometad": version("cometad"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "torch")},
        },
    }
