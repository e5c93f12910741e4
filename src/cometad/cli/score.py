"""`cometad score`."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.exits import printable, say, write_output
from cometad.cli.opened import opened, say_findings, scored
from cometad.cli.options import Data, Force, Model, ReadingOptions, RuleOptions, flag
from cometad.cli.paths import Output, check_outputs

if TYPE_CHECKING:
    import polars as pl

    from cometad.alerting.alerts import Change, Event
    from cometad.alerting.watch import Promise
    from cometad.data.quality import Inspection
    from cometad.series import Series

    Chunk = pl.DataFrame | Series


def score(
    model: Model,
    data: Data,
    output: Path | None = flag(
        "The .csv, .parquet or .jsonl file to write. Default: CSV on standard output.", "--output", "-o"
    ),
    events: Path | None = flag(
        "The .csv, .parquet or .jsonl file to write events to: flagged readings that belong together."
    ),
    *,
    reading: ReadingOptions,
    rules: RuleOptions,
    force: Force = False,
) -> None:
    """Score every reading in a file.

    Writes one row per reading: step (counted from 0), time if known, score, alert_score, threshold, anomaly and, for
    comet, variable (the one with the highest score). The score is the ranking score: smoothed, it uses readings after
    its own, and it orders readings best; cometad evaluate reads it. The alert score uses no later reading; anomaly is
    1 where it is above the threshold, and events are made of it. For detectors with one score the two are equal.

    If the detector was fitted with a gap rule, imputed is 1 for a reading that was imputed and not judged (anomaly is
    then 0). Problems found in the readings are reported on stderr.
    """
    from cometad.data.writing import check_suffix, write_chunks

    read, alerts = reading.value(), rules.alerts.value()
    for path in (output, events):
        if path is not None:
            check_suffix(path)
    check_outputs([Output(output, "scores"), Output(events, "events")], [model, data], force)
    detector, source = opened(model, data, read, rules.threshold, rules.gaps)

    from cometad.alerting.watch import Promise
    from cometad.data.quality import Inspection
    from cometad.report.rows import scored_rows

    inspection = Inspection(detector.statistics_, detector.trends_.trending)
    totals = _Totals(inspection, Promise(detector.threshold.rate))
    chunks = source.chunks() if detector.can_stream else [source.whole()]
    tables = totals.over(scored_rows(detector, alerts, totals.inspected(chunks)))
    if output is None:
        _print_whole(tables)
    else:
        write_chunks(output, tables)
    if events is not None:
        write_chunks(events, [totals.table()])
    say_findings(totals.inspection.findings())
    if warning := totals.promise.warning():
        say(warning)
    written = "".join(f" Wrote '{path}'." for path in (output, events) if path is not None)
    imputed = f" {totals.imputed:,} were imputed and not judged." if totals.imputed else ""
    levels = Counter(event.level for event in totals.events)
    say(f"{scored(totals.readings, totals.anomalous, levels)}{imputed}{written}")


class _Totals:
    def __init__(self, inspection: "Inspection", promise: "Promise") -> None:
        self.readings = self.anomalous = self.imputed = 0
        self.inspection, self.promise = inspection, promise
        self.events: list[Event] = []

    def inspected(self, chunks: "Iterable[Chunk]") -> "Iterator[Chunk]":
        for chunk in chunks:
            yield chunk
            self.inspection.push(chunk)

    def over(self, tables: "Iterable[tuple[pl.DataFrame, Iterable[Change]]]") -> "Iterator[pl.DataFrame]":
        """Pass tables through and count them; keeps the events that closed."""
        for table, changes in tables:
            self.events += [change.event for change in changes if change.kind == "closed"]
            flagged = table.filter(table["anomaly"] == 1)
            imputed = int(table["imputed"].sum()) if "imputed" in table.columns else 0
            self.readings += len(table)
            self.anomalous += len(flagged)
            self.imputed += imputed
            self.promise.push(
                len(table) - imputed, flagged["variable"] if "variable" in table.columns else [""] * len(flagged)
            )
            yield table

    def table(self) -> "pl.DataFrame":
        """One row per event: its level, steps, score and severity, with times if known."""
        import polars as pl

        schema = {
            **dict.fromkeys(("number",), pl.Int64),
            "level": pl.String,
            **dict.fromkeys(("start", "stop", "peak"), pl.Int64),
            **dict.fromkeys(("peak_score", "severity"), pl.Float64),
            **dict.fromkeys(("rarity", "steps"), pl.Int64),
            "new_level": pl.Boolean,
            **dict.fromkeys(("start_time", "stop_time", "peak_time"), pl.String),
        }
        table = pl.DataFrame([event.as_json() for event in self.events], schema=schema)
        return table if table["start_time"].count() else table.drop("start_time", "stop_time", "peak_time")


def _print_whole(tables: "Iterable[pl.DataFrame]") -> None:
    """Print the tables once all are complete, so that a reading refused near the end leaves no partial output."""
    from cometad.data.writing import csv_texts

    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
        file.writelines(csv_texts(tables))
        file.seek(0)
        while text := file.read(2**20):
            write_output(_for_terminal(text) if sys.stdout is not None and sys.stdout.isatty() else text)


def _for_terminal(text: str) -> str:
    """CSV without characters in names that control a terminal; files and pipes get the names as they are."""
    return "\n".join(map(printable, text.split("\n")))
