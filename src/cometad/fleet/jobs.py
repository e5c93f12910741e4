"""A worker's jobs for one entity: fit it, score it, or write its report. Errors are returned, not raised."""

import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cometad.alerting.alerts import Alerts
from cometad.alerting.severity import meaning
from cometad.detector import Detector
from cometad.detectors import load_bytes
from cometad.errors import CometadError
from cometad.fleet.entities import EntityReadings
from cometad.fleet.pooling import Donation, correlations, donation, pooled
from cometad.registry import to_json
from cometad.report.axes import TimeAxis
from cometad.report.gather import gather
from cometad.report.page import page
from cometad.report.rows import scored_rows
from cometad.series import Series

SCORES: dict[str, Any] = {
    "entity": pl.String,
    "step": pl.Int64,
    "time": pl.Datetime("us"),
    "score": pl.Float64,
    "alert_score": pl.Float64,
    "threshold": pl.Float64,
    "anomaly": pl.Int64,
    "variable": pl.String,
    "imputed": pl.Int64,
}


@dataclass(frozen=True)
class FitTask:
    name: str
    readings: EntityReadings
    detector: Detector  # not fitted
    known: str | None = None  # fingerprint of the readings behind the existing detector
    donations: tuple[Donation, ...] = ()  # borrowed readings, for an entity with too few


class FitAnswer(NamedTuple):
    content: bytes | None = None  # of the saved detector
    error: str | None = None
    unchanged: bool = False  # the fingerprint is the known one, so nothing was fitted
    fingerprint: str | None = None
    readings: int | None = None
    variables: tuple[str, ...] = ()
    threshold: float | None = None
    seconds: float = 0.0


def fit_entity(task: FitTask) -> FitAnswer:
    began = time.perf_counter()
    answer = FitAnswer()
    try:
        series = task.readings.open()
        answer = FitAnswer(None, None, False, fingerprint(series), len(series), series.names)
        if answer.fingerprint == task.known:
            return answer._replace(unchanged=True)
        fitted = pooled(task.detector, series, task.donations)
        found: dict[str, Any] = {"content": fitted.to_bytes(), "threshold": float(fitted.threshold_)}
    except Exception as error:  # one bad entity never stops the others
        found = {"error": problem(error)}
    return answer._replace(**found, seconds=time.perf_counter() - began)


def problem(error: Exception) -> str:
    """An error in one sentence; an unexpected one is reported as a bug."""
    if isinstance(error, CometadError):
        return str(error)
    if isinstance(error, MemoryError):
        return "Not enough memory for this entity. Use fewer workers, or a shorter series."
    return f"{type(error).__name__}: {error}. This is a bug in cometad or in your own code."


def fingerprint(series: Series) -> str:
    """A hash of the names, times and values of a series; equal series have equal ones."""
    digest = hashlib.sha256(json.dumps([series.names, series.named, series.values.shape]).encode())
    if series.times is not None:
        digest.update(str(series.times.dtype).encode() + np.ascontiguousarray(series.times).tobytes())
    digest.update(np.ascontiguousarray(series.values).tobytes())
    return digest.hexdigest()


def parameters_of(detector: Detector) -> dict[str, Any]:
    """The parameters of a detector in types that JSON can hold; refuses objects that cannot be saved."""
    return {name: to_json(value, name) for name, value in detector.get_params(deep=False).items()}


@dataclass(frozen=True)
class ScoreTask:
    name: str
    readings: EntityReadings
    content: bytes
    alerts: Alerts = field(default_factory=Alerts)
    most_events: int = 0  # how many events the entity's page explains


class ScoreAnswer(NamedTuple):
    rows: pl.DataFrame | None = None  # with the columns of SCORES
    alerts: int = 0
    notices: int = 0
    severity: float = 0.0  # of the worst event
    meaning: str = ""  # how often normal operation reaches that severity
    worst_time: str = ""  # the peak of that event
    variable: str = ""  # most often the highest among flagged readings
    error: str | None = None


def score_entity(task: ScoreTask) -> ScoreAnswer:
    try:
        detector, series = _opened(task)
        parts = list(scored_rows(detector, task.alerts, [series]))
    except Exception as error:  # one bad entity never stops the others
        return ScoreAnswer(error=problem(error))
    events = [change.event for _, changes in parts for change in changes if change.kind == "closed"]
    rows = pl.concat([rows for rows, _ in parts]).with_columns(pl.lit(task.name).alias("entity"))
    rows = rows.with_columns(pl.lit(None).alias(name) for name in SCORES if name not in rows.columns)
    rows = rows.select(pl.col(name).cast(dtype) for name, dtype in SCORES.items())
    flagged = rows.filter(pl.col("anomaly") == 1)["variable"].drop_nulls()
    common = flagged.value_counts(sort=True)["variable"][0] if len(flagged) else ""
    levels = Counter(event.level for event in events)
    answer = ScoreAnswer(rows, levels["alert"], levels["notice"], variable=common)
    if not events:
        return answer
    worst = max(events, key=lambda event: event.severity)
    when = TimeAxis(len(series), series.times).label(worst.peak)
    often = meaning(worst.severity, detector.statistics_.period)
    return answer._replace(severity=worst.severity, meaning=often, worst_time=when)


def _opened(task: ScoreTask) -> tuple[Detector, Series]:
    detector = load_bytes(task.content, f"The detector of {task.name!r}")
    return detector, task.readings.open(detector)


class PageAnswer(NamedTuple):
    html: str = ""
    error: str | None = None


def page_of_entity(task: ScoreTask) -> PageAnswer:
    try:
        detector, series = _opened(task)
        named = {"entity": task.name}
        report = gather(detector, series, alerts=task.alerts, most_events=task.most_events, sources=named)
        return PageAnswer(page(replace(report, headline=f"{task.name}: {report.headline}")))
    except Exception as error:  # one bad entity never stops the others
        return PageAnswer(error=problem(error))


class Measured(NamedTuple):
    """Facts about an entity before anything is fitted, enough to choose donors."""

    readings: int
    variables: tuple[str, ...]
    correlations: Any = None  # (variable, variable)


def measure_entity(readings: EntityReadings) -> Measured:
    """Count the readings of an entity, and measure how its variables move together."""
    try:
        series = readings.open()
        return Measured(len(series), series.names, correlations(series.values))
    except Exception:  # recorded by the fit
        return Measured(0, ())


def donate_entity(task: FitTask) -> Donation | None:
    """The readings that an entity lends to others; None if they cannot be read."""
    try:
        return donation(task.name, task.readings.open())
    except CometadError:  # its own fit records the reason
        return None
