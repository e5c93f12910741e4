"""`cometad demo`."""

from pathlib import Path

from cometad.cli.options import Force, flag
from cometad.cli.paths import Output, check_outputs


def demo(
    out: Path = flag("Folder for the picture and the report.", default=Path("demo")),
    seed: int = flag("Random seed of the plant.", default=1, min=0),
    force: Force = False,
) -> None:
    """Watch a detector find injected faults in a simulated plant that drifts.

    Downloads nothing, takes less than a minute, and ends with a table of the faults, a picture and a report.
    """
    from cometad.demo import PAGE, PICTURE, make_folder, run

    make_folder(out)
    check_outputs([Output(out / PICTURE, "picture"), Output(out / PAGE, "report")], force=force)
    run(out, seed)
