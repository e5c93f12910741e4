"""`cometad score`."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli import options
from cometad.cli.exits import say, write_output

if TYPE_CHECKING:
    import polars as pl

    from cometad.comet import Comet
    from cometad.detector import Array, Floats
    from cometad.estimator import Estimator
    from cometad.stream import Scored


def score(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The .csv or .parquet file to write. Without it: CSV on standard output."),
    ] = None,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
) -> None:
    """Score every reading in a file.

    Gives one row per reading: step (counted from 0), time if there is one, score (higher is more anomalous), anomaly (1
    where the score is above the detector's threshold) and, from comet, variable (the one with the highest score of
    its own).
    """
    from cometad.cli.paths import check_readable, check_writable
    from cometad.data.tables import check_suffix, read_table, table_chunks, write_chunks

    check_readable(model)
    if output is not None:
        check_suffix(output)
        check_writable(output)
    chunks = table_chunks(data, time_column, drop or ())

    from cometad.cli.detectors import load_detector
    from cometad.comet import Comet

    detector = load_detector(model)
    if isinstance(detector, Comet):
        scores = _streamed(detector, chunks)
    else:
        scores = iter([_at_once(detector, read_table(data, time_column, drop or ()))])
    tally = _Tally()
    if output is None:
        _print_whole(tally.over(scores))
    else:
        write_chunks(output, tally.over(scores))
    written = "" if output is None else f" Wrote '{output}'."
    say(f"Scored {tally.readings:,} readings, {tally.anomalous:,} of them anomalous.{written}")


@dataclass
class _Tally:
    """What has been scored."""

    readings: int = 0
    anomalous: int = 0

    def over(self, tables: "Iterable[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
        """The same tables, counted as they pass."""
        for table in tables:
            self.readings += len(table)
            self.anomalous += int(table["anomaly"].sum())
            yield table


def _streamed(detector: "Comet", chunks: "Iterable[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
    """The table of scores in parts, as they become final."""
    import numpy as np
    import polars as pl

    from cometad.detector import check_length

    names = np.array(detector.names_)
    stream = detector.stream()
    waiting: list[pl.DataFrame] = []  # the times of the readings whose scores are not final yet
    for chunk in chunks:
        scored = stream.update_many(chunk)
        times = pl.concat([*waiting, _times(chunk)])
        yield _explained(scored, times[: len(scored)], names)
        waiting = [times[len(scored) :]]
    check_length(stream.seen, detector.window, "a window")
    yield _explained(stream.finish(), pl.concat(waiting), names)


def _explained(scored: "Scored", times: "pl.DataFrame", names: "Array") -> "pl.DataFrame":
    """The table of scores, with the variables behind them."""
    return _table(scored.start, times, scored.scores, scored.flags, names[scored.variables.argmax(axis=1)])


def _at_once(detector: "Estimator", frame: "pl.DataFrame") -> "pl.DataFrame":
    """The table of scores of a detector that looks at the series as a whole."""
    scores = detector.decision_function(frame)
    return _table(0, _times(frame), scores, (scores > detector.threshold_).astype(int))


def _times(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The column of times, or none."""
    return frame.select(column.alias("time") for column in frame if column.dtype.is_temporal())


def _table(start: int, times: "pl.DataFrame", scores: "Floats", flags: "Array", *variables: "Array") -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    return pl.DataFrame(
        [
            pl.Series("step", np.arange(start, start + len(scores))),
            *times,
            pl.Series("score", scores),
            pl.Series("anomaly", flags),
            *(pl.Series("variable", names, dtype=pl.String) for names in variables),
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
