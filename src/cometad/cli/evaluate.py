"""`cometad evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli.exits import print_json, show
from cometad.cli.options import DialectOptions, flag
from cometad.cli.paths import check_outputs
from cometad.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from cometad.arrays import Array
    from cometad.data.dialect import Dialect
    from cometad.metrics import Evaluation

_FILE = "a .csv, .csv.gz, .csv.zst, .tsv, .parquet or .npy file with one value per time step"


def evaluate(
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help=f"Labels, 1 for anomalous: {_FILE}.")],
    scores: Annotated[Path, typer.Argument(metavar="SCORES", help=f"Scores as written by cometad score: {_FILE}.")],
    labels_column: str = flag("Column of the labels, if the file has several.", default="label"),
    scores_column: str = flag("Column of the scores, if the file has several.", default="score"),
    protocol: str = flag("How to compute the metrics: paper or paper-250.", default="paper"),
    as_json: bool = flag("Print JSON instead of a table.", "--json", default=False),
    *,
    dialect: DialectOptions,
) -> None:
    """Evaluate scores against labels with nine metrics, and compare with random and constant scores.

    Metrics marked as oracle choose the best threshold by looking at the labels, which is not possible in practice.
    """
    written = dialect.value()
    check_outputs([], [labels, scores])
    truth, given = _read_column(labels, labels_column, written), _read_column(scores, scores_column, written)

    from cometad.metrics import report

    result = report(truth, given, protocol)
    if as_json:
        print_json(result.as_dict())
    else:
        show(_metrics_table(result))


def _read_column(path: Path, column: str, dialect: "Dialect") -> "Array":
    """The named column of a file, or its only one."""
    import numpy as np

    if path.suffix == ".npy":
        try:
            with path.open("rb") as file:  # not np.load, which opens ZIP archives too
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False)).squeeze()
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"Cannot read '{path}' as an array. Pass a complete .npy file of numbers.") from error

    from cometad.data.tables import TableReader

    def select(frame: "pl.DataFrame") -> "pl.DataFrame":
        if column in frame.columns or frame.width == 1:
            return frame.select(column if column in frame.columns else frame.columns)
        raise InputError(
            f"'{path}' has no column {column!r}. Available: {', '.join(frame.columns)}. "
            "Choose one with --labels-column or --scores-column."
        )

    try:
        return TableReader(path, dialect=dialect, counters=True).whole(select).to_series(0).to_numpy()
    except InputError as error:
        if error.advice != "bad cell":
            raise
        raise InputError(f"{error.problem} Correct that cell, or choose another column.") from error


def _metrics_table(result: "Evaluation") -> "Table":
    from rich.table import Table

    table = Table(
        title=f"{result.points:,} points, {result.anomalous_points:,} anomalous in {result.segments:,} segments; "
        f"{result.flavor} ramps, w = {result.window}, W = {result.max_window}",
        title_justify="left",
    )
    for heading in ("metric", "value", "random scores", "constant score"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for row in result.rows:
        oracle = " (oracle threshold)" if row.needs_oracle_threshold else ""
        table.add_row(row.title + oracle, *(f"{value:.4f}" for value in (row.value, row.random, row.all_positive)))
    return table
