"""`cometad demo`."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the picture and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Another seed, another plant.", min=0)] = 0,
) -> None:
    """Watch a detector find planted faults in a plant that drifts.

    Nothing is downloaded; it takes under two minutes, and ends with a table of the faults, a picture and a report.
    """
    from cometad.demo import run

    run(out, seed)
