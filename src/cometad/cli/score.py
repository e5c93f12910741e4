"""`cometad score`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli import options
from cometad.cli.exits import say, write_output

if TYPE_CHECKING:
    import polars as pl

    from cometad.comet import Comet
    from cometad.detector import Array, Floats, Series
    from cometad.estimator import Estimator


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
    from cometad.data.tables import check_suffix, csv_text, read_table, write_table
    from cometad.detector import as_series

    check_readable(model)
    if output is not None:
        check_suffix(output)
        check_writable(output)
    frame = read_table(data, time_column, drop or ())
    series = as_series(frame)

    from cometad.cli.detectors import load_detector

    scores = _scored(load_detector(model), series, frame)
    if output is None:
        write_output(csv_text(scores))
    else:
        write_table(output, scores)
    written = "" if output is None else f" Wrote '{output}'."
    say(f"Scored {len(scores):,} readings, {scores['anomaly'].sum():,} of them anomalous.{written}")


def _scored(detector: "Estimator", series: "Series", frame: "pl.DataFrame") -> "pl.DataFrame":
    """The table of scores."""
    import numpy as np
    import polars as pl

    from cometad.comet import Comet

    if isinstance(detector, Comet):
        scores, *variables = _with_variables(detector, series)
    else:
        scores, variables = detector.decision_function(series), []
    return pl.DataFrame(
        [
            pl.Series("step", np.arange(len(series))),
            *(column.alias("time") for column in frame if column.dtype.is_temporal()),
            pl.Series("score", scores),
            pl.Series("anomaly", (scores > detector.threshold_).astype(int)),
            *(pl.Series("variable", names) for names in variables),
        ]
    )


def _with_variables(detector: "Comet", series: "Series") -> "tuple[Floats, Array]":
    """Scores, and the names of the variables behind them: from the stream run to its end, which alone tells."""
    import numpy as np

    from cometad.detector import check_length, check_like

    check_like(series, detector.names_, detector.named_)
    check_length(series, detector.window, "a window")
    stream = detector.stream()
    parts = (stream.update_many(series.values), stream.finish())
    highest = np.concatenate([part.variables for part in parts]).argmax(axis=1)
    return np.concatenate([part.scores for part in parts]), np.array(detector.names_)[highest]
