"""`cometad score`."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options
from cometad.cli.exits import say, write_output

if TYPE_CHECKING:
    import polars as pl

    from cometad.alerting.alerts import Alerts, Change, Event
    from cometad.arrays import Array, Floats
    from cometad.comet import Comet
    from cometad.data.quality import Inspection
    from cometad.detector import Detector
    from cometad.live.stream import Scored, Stream


def score(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The .csv or .parquet file to write. Without it: CSV on standard output."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(help="The .csv or .parquet file to write the events to: flagged readings that belong together."),
    ] = None,
    threshold: options.Threshold = None,
    min_length: options.MinLength = 1,
    merge_gap: options.MergeGap = 0,
    hold_off: options.HoldOff = 0,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
    resample: options.Resample = None,
) -> None:
    """Score every reading in a file.

    Gives one row per reading: step (counted from 0), time if there is one, score (higher is more anomalous), anomaly (1
    where the score is above the threshold: the detector's own, or that of --threshold on the same training scores)
    and, from comet, variable (the one with the highest score of its own). From a detector that was fitted with a rule
    for gaps also imputed: 1 where nothing can be said, since the reading was filled in; then anomaly is 0. What is
    wrong with the readings is told on stderr.
    """
    from cometad.alerting.alerts import Alerts
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.paths import check_readable, check_writable
    from cometad.data.resample import parse_resampling
    from cometad.data.tables import check_suffix, read_table, table_chunks, write_chunks
    from cometad.errors import InputError

    check_readable(model)
    for path in (output, events):
        if path is not None:
            check_suffix(path)
            check_writable(path)
    if events is not None and output is not None and events.resolve() == output.resolve():
        raise InputError(f"Scores and events cannot both go to '{output}'. Choose another file for --events.")
    rule = None if threshold is None else parse_threshold(threshold)
    alerts = Alerts(min_length=min_length, merge_gap=merge_gap, hold_off=hold_off)
    grid = None if resample is None else parse_resampling(resample)
    chunks: Iterable[Any] = table_chunks(data, time_column, drop or ())

    from cometad.cli.prepare import resampled, tell
    from cometad.comet import Comet
    from cometad.data.quality import Inspection
    from cometad.detectors import load
    from cometad.series import together

    detector = load(model)
    if rule is not None:
        detector = detector.with_threshold(rule)
    tally = _Tally(Inspection(detector.statistics_), keep_times=events is not None)
    if not isinstance(detector, Comet):
        chunks = [read_table(data, time_column, drop or ())]
    if grid is not None:
        chunks = resampled(chunks, grid)
    if isinstance(detector, Comet):
        scores = _streamed(detector.stream(alerts=alerts), detector, chunks, tally)
    else:
        readings = next(iter(chunks)) if grid is None else together(list(chunks))
        scores = iter([_at_once(detector, alerts, readings, tally)])
    if output is None:
        _print_whole(tally.over(scores))
    else:
        write_chunks(output, tally.over(scores))
    if events is not None:
        write_chunks(events, [tally.table()])
    tell(tally.inspection.findings())
    written = "".join(f" Wrote '{path}'." for path in (output, events) if path is not None)
    imputed = f" {tally.imputed:,} were filled in and say nothing." if tally.imputed else ""
    say(
        f"Scored {tally.readings:,} readings, {tally.anomalous:,} of them anomalous, "
        f"in {len(tally.events):,} events.{imputed}{written}"
    )


class _Tally:
    """What has been scored."""

    def __init__(self, inspection: "Inspection", keep_times: bool) -> None:
        self.readings = self.anomalous = self.imputed = 0
        self.inspection = inspection
        self.events: list[Event] = []
        self._keep_times = keep_times
        self._times: list[pl.DataFrame] = []

    def over(self, tables: "Iterable[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
        """The same tables, counted as they pass."""
        for table in tables:
            self.readings += len(table)
            self.anomalous += int(table["anomaly"].sum())
            self.imputed += int(table["imputed"].sum()) if "imputed" in table.columns else 0
            if self._keep_times and "time" in table.columns:
                self._times.append(table.select("time"))
            yield table

    def take(self, changes: "Iterable[Change]") -> None:
        """Keep the events that have closed."""
        self.events += [change.event for change in changes if change.kind == "closed"]

    def table(self) -> "pl.DataFrame":
        """One row per event: where, how long and how severe, with the times of its steps where there are any."""
        import polars as pl

        columns = ("number", "start", "stop", "peak", "peak_score", "severity", "steps")
        rows = {name: [getattr(event, name) for event in self.events] for name in columns}
        schema = {name: pl.Float64 if name in ("peak_score", "severity") else pl.Int64 for name in columns}
        table = pl.DataFrame(rows, schema=schema)
        if not self._times:
            return table
        times = pl.concat(self._times)["time"]
        places = {"start": table["start"], "last": table["stop"] - 1, "peak": table["peak"]}
        return table.with_columns(times.gather(steps).alias(f"{name}_time") for name, steps in places.items())


def _streamed(stream: "Stream", detector: "Comet", chunks: Iterable[Any], tally: _Tally) -> "Iterator[pl.DataFrame]":
    """The table of scores in parts, as they become final."""
    import numpy as np
    import polars as pl

    from cometad.series import check_length

    names = np.array(detector.names_)
    waiting: list[pl.DataFrame] = []  # the times of the readings whose scores are not final yet
    for chunk in chunks:
        scored = stream.update_many(chunk)
        tally.inspection.push(chunk)
        tally.take(scored.changes)
        times = pl.concat([*waiting, _times(chunk)])
        yield _explained(scored, times[: len(scored)], names, detector.gaps.allowed)
        waiting = [times[len(scored) :]]
    check_length(stream.seen, detector.window, "a window")
    scored = stream.finish()
    tally.take(scored.changes)
    yield _explained(scored, pl.concat(waiting), names, detector.gaps.allowed)


def _explained(scored: "Scored", times: "pl.DataFrame", names: "Array", gaps: bool) -> "pl.DataFrame":
    """The table of scores, with the variables behind them: none behind what cannot be judged."""
    import numpy as np

    own = scored.variables
    variables = names[own.argmax(axis=1)]
    if scored.left_out is not None:
        measured = names[np.where(scored.left_out, -np.inf, own).argmax(axis=1)]
        variables = np.where(scored.imputed, "", measured)
    columns = {"imputed": scored.imputed.astype(int)} if gaps else {}
    return _table(scored.start, times, scored.scores, scored.flags, columns | {"variable": variables})


def _at_once(detector: "Detector", alerts: "Alerts", readings: Any, tally: _Tally) -> "pl.DataFrame":
    """The table of scores of a detector that looks at the series as a whole."""
    import numpy as np

    scores, imputed = detector.step_scores(readings)
    tally.inspection.push(readings)
    judge = detector.judge(alerts)
    judged = judge.push(scores, imputed)
    tally.take([*judged.changes, *judge.finish()])
    marks = np.zeros(len(scores), int) if imputed is None else imputed.astype(int)
    return _table(0, _times(readings), scores, judged.flags, {"imputed": marks} if detector.gaps.allowed else {})


def _times(readings: Any) -> "pl.DataFrame":
    """The column of times of a frame or series, or none."""
    import polars as pl

    if not isinstance(readings, pl.DataFrame):
        return pl.DataFrame([] if readings.times is None else [pl.Series("time", readings.times)])
    return readings.select(column.alias("time") for column in readings if column.dtype.is_temporal())


def _table(
    start: int, times: "pl.DataFrame", scores: "Floats", flags: "Array", more: "dict[str, Array]"
) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    return pl.DataFrame(
        [
            pl.Series("step", np.arange(start, start + len(scores))),
            *times,
            pl.Series("score", scores),
            pl.Series("anomaly", flags),
            *(
                pl.Series(name, column, dtype=pl.String if name == "variable" else None)
                for name, column in more.items()
            ),
        ]
    )


def _print_whole(tables: "Iterable[pl.DataFrame]") -> None:
    """Print them once all are there: a reading that is refused in the end leaves no half result."""
    from cometad.data.tables import csv_texts

    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
        file.writelines(csv_texts(tables))
        file.seek(0)
        while text := file.read(2**20):
            write_output(text)
