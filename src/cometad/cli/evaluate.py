"""`cometad evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli.exits import write_output

if TYPE_CHECKING:
    from rich.table import Table

    from cometad.arrays import Array
    from cometad.metrics import Evaluation

_FILE = "a .csv, .tsv, .parquet or .npy file with one value per time step"


def evaluate(
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help=f"The truth, 1 where anomalous: {_FILE}.")],
    scores: Annotated[
        Path, typer.Argument(metavar="SCORES", help=f"The scores, as cometad score writes them: {_FILE}.")
    ],
    labels_column: Annotated[str, typer.Option(help="The column of the labels, where there are several.")] = "label",
    scores_column: Annotated[str, typer.Option(help="The column of the scores, where there are several.")] = "score",
    protocol: Annotated[str, typer.Option(help="How the metrics are computed: paper or paper-250.")] = "paper",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say how well scores find the anomalies, by nine metrics, beside what random and constant scores reach.

    Metrics marked as oracle choose their best threshold by looking at the labels: nobody has it in practice.
    """
    truth, given = read_column(labels, labels_column), read_column(scores, scores_column)

    from cometad.metrics import report

    told = report(truth, given, protocol)
    if as_json:
        write_output(json.dumps(told.as_dict(), indent=2) + "\n")
        return

    from rich.console import Console

    Console().print(_table(told))


def read_column(path: Path, column: str) -> "Array":
    """The only column of a file, or the named one."""
    import numpy as np

    from cometad.errors import InputError

    if path.suffix == ".npy":
        try:
            return np.asarray(np.load(path, allow_pickle=False)).squeeze()
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"Cannot read '{path}' as an array. Pass a whole .npy file of numbers.") from error

    from cometad.data.tables import read_table

    frame = read_table(path)
    if column in frame.columns:
        return frame[column].to_numpy()
    if frame.width == 1:
        return frame.to_series(0).to_numpy()
    raise InputError(f"'{path}' has no column {column!r}; it has {', '.join(frame.columns)}. Name the one to take.")


def _table(told: "Evaluation") -> "Table":
    from rich.table import Table

    table = Table(
        title=f"{told.points:,} points, {told.anomalous_points:,} anomalous in {told.segments:,} segments; "
        f"{told.flavor} ramps, w = {told.window}, W = {told.max_window}",
        title_justify="left",
    )
    for heading in ("metric", "value", "random scores", "constant score"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for row in told.rows:
        oracle = " (oracle threshold)" if row.needs_oracle_threshold else ""
        table.add_row(row.title + oracle, *(f"{value:.4f}" for value in (row.value, row.random, row.all_positive)))
    return table
