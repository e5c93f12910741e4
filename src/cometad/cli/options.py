"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA", help="Readings, one per row, as .csv, .csv.gz, .tsv or .parquet; the header names variables."
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A detector written by cometad fit.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="The column of times. Without it: a column of dates, else one named time, timestamp, datetime or date."
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out, such as labels; may be given several times.")
]
Resample = Annotated[
    str | None,
    typer.Option(
        metavar="PERIOD[:RULE]",
        help="Put the readings on a regular grid first, such as 60s or 5min:mean. Rules: last, first, mean, min, max.",
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(help="The folder of the datasets. Without it: $COMETAD_DATA, else ../shared/data.")
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="RULE[:RATE]",
        help="Which scores are anomalous: quantile, conformal, spot or drifting-spot, and the share of normal "
        "readings that may be flagged, such as spot:1e-4.",
    ),
]
MinLength = Annotated[int, typer.Option(help="Readings that make an event.", min=1)]
MergeGap = Annotated[int, typer.Option(help="Quiet readings in a row that an event outlasts.", min=0)]
HoldOff = Annotated[int, typer.Option(help="Readings after an event in which none starts.", min=0)]
