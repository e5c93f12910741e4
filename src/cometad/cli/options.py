"""Arguments and options shared by the verbs."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Readings, one per row, as .csv, .csv.gz, .tsv or .parquet; the header names the variables.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Detector written by cometad fit.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with the times. Default: a column of dates, else one named time, timestamp, datetime or date."
    ),
]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out, such as labels; repeatable.")]
Resample = Annotated[
    str | None,
    typer.Option(
        metavar="PERIOD[:RULE]",
        help="Resample the readings to a regular grid first, such as 60s or 5min:mean. Rules: last, first, mean, min, "
        "max.",
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the datasets. Default: $COMETAD_DATA, else ../shared/data.")
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="RULE[:RATE]",
        help="Threshold rule, budget, quantile, conformal, spot or drifting-spot, and the share of normal readings it "
        "may flag, such as spot:1e-4; or alerts-per-day:3. Default: the detector's own.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file that this command did not write.")]
MinLength = Annotated[int, typer.Option(help="Minimum length of an event in readings.", min=1)]
MergeGap = Annotated[int, typer.Option(help="Longest run of normal readings that does not end an event.", min=0)]
HoldOff = Annotated[int, typer.Option(help="Readings after an event during which no new one opens.", min=0)]
