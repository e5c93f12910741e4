"""The rows that `cometad score` writes: times, ranking scores and alert scores, which are final at different times."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from cometad.alerting.alerts import Alerts, Change, Judged
from cometad.arrays import Array
from cometad.detector import Detector
from cometad.live.stream import Scored
from cometad.scoring.scores import StepScores
from cometad.series import Series, as_series, check_length


def scored_rows(
    detector: Detector, alerts: Alerts, chunks: Iterable[pl.DataFrame | Series]
) -> Iterator[tuple[pl.DataFrame, Sequence[Change]]]:
    """The rows of readings in parts, as they become final, each with the changes of events.

    A detector that cannot stream takes only one chunk.
    """
    gaps = detector.gaps.allowed
    if not detector.can_stream:
        (readings,) = chunks
        scores, judge = detector.step_scores(readings), detector.judge(alerts)
        judged = judge.push(scores.alerts, scores.imputed, as_series(readings, missing=gaps).micros)
        yield _whole_rows(_times_of(readings), scores, judged, gaps), [*judged.changes, *judge.finish()]
        return
    stream, rows, times = detector.stream(alerts=alerts), _RowRun(detector.names_, gaps), pl.DataFrame()
    for chunk in chunks:
        scored, times = stream.update_many(chunk), _times_of(chunk)
        yield rows.push(times, scored), scored.changes
    check_length(stream.seen, detector.min_readings, "a window")
    scored = stream.finish()
    yield rows.push(times[:0], scored), scored.changes


def _times_of(readings: pl.DataFrame | Series) -> pl.DataFrame:
    if not isinstance(readings, pl.DataFrame):
        return pl.DataFrame([] if readings.times is None else [pl.Series("time", readings.times)])
    return readings.select(column.alias("time") for column in readings if column.dtype.is_temporal())


class _RowRun:
    """Joins the times of readings with their alert scores and, when those follow, their ranking scores.

    It holds only what still waits for a score, so its memory does not grow with the series.
    """

    def __init__(self, names: Sequence[str], gaps: bool) -> None:
        self._names, self._gaps = np.array(names), gaps
        self._times: list[pl.DataFrame] = []  # of readings without an alert score
        self._alerts: list[pl.DataFrame] = []  # rows without a ranking score

    def push(self, times: pl.DataFrame, scored: Scored) -> pl.DataFrame:
        """Add the times of new readings and the scores that became final; returns the rows that are complete."""
        known = pl.concat([*self._times, times])
        alerts = pl.concat([*self._alerts, self._alert_rows(known[: len(scored)], scored)])
        ready = len(scored.scores)
        self._times, self._alerts = [known[len(scored) :]], [alerts[ready:]]
        return _with_scores(alerts[:ready], scored.scores)

    def _alert_rows(self, times: pl.DataFrame, scored: Scored) -> pl.DataFrame:
        """The rows without their ranking score; the variable is the highest, or empty if the reading is not judged."""
        own = scored.variables
        variables = self._names[own.argmax(axis=1)]
        if scored.left_out is not None:
            measured = self._names[np.where(scored.left_out, -np.inf, own).argmax(axis=1)]
            variables = np.where(scored.imputed, "", measured)
        more: dict[str, Array] = {"variable": variables}
        if self._gaps:
            more["imputed"] = scored.imputed.astype(int)
        judged = {"alert_score": scored.alert_scores, "threshold": scored.thresholds, "anomaly": scored.flags}
        return _rows(scored.start, times, {**judged, **more})


def _whole_rows(times: pl.DataFrame, scored: StepScores, judged: Judged, gaps: bool) -> pl.DataFrame:
    columns = {"alert_score": scored.alerts, "threshold": judged.thresholds, "anomaly": judged.flags}
    if gaps:
        imputed = np.zeros(len(scored.scores), bool) if scored.imputed is None else scored.imputed
        columns["imputed"] = imputed.astype(int)
    return _with_scores(_rows(0, times, columns), scored.scores)


def _rows(start: int, times: pl.DataFrame, columns: dict[str, Array]) -> pl.DataFrame:
    count = len(columns["anomaly"])
    steps = pl.Series("step", np.arange(start, start + count))
    return pl.DataFrame([steps, *times, *(pl.Series(name, column) for name, column in columns.items())])


def _with_scores(rows: pl.DataFrame, scores: Array) -> pl.DataFrame:
    return rows.insert_column(rows.columns.index("alert_score"), pl.Series("score", scores))
