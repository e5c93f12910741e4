"""`cometad demo`."""

from pathlib import Path
from typing import Annotated

import typer

from cometad.cli import options


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Random seed of the plant.", min=0)] = 1,
    force: options.Force = False,
) -> None:
    """Watch a detector find injected faults in a simulated plant that drifts.

    Downloads nothing, takes less than a minute, and ends with a table of the faults, a picture and a report.
    """
    from cometad.cli.paths import Output, check_outputs
    from cometad.demo import PAGE, PICTURE, make_folder, run

    make_folder(out)
    check_outputs([Output(out / PICTURE, "picture"), Output(out / PAGE, "report")], force=force)
    run(out, seed)
