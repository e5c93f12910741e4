"""What happens to readings between a file and a detector, and what there is to say about them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cometad.cli.exits import say

if TYPE_CHECKING:
    from cometad.data.quality import Finding
    from cometad.data.resample import Resampling
    from cometad.series import Series

MOST_TOLD = 10  # findings


def resampled(chunks: Iterable[object], resampling: "Resampling") -> "Iterator[Series]":
    """Frames on a regular grid, in parts that are not empty; what was done is told in the end.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.cli.prepare import resampled
    >>> from cometad.data.resample import Resampling
    >>> frame = pl.DataFrame({"time": [datetime(2024, 3, 1, 4, 10, 7)], "flow": [1.5]})
    >>> [series.values.tolist() for series in resampled([frame], Resampling("60s"))]
    [[[1.5]]]
    """
    from cometad.data.resample import told

    run = resampling.start()
    for chunk in chunks:
        part = run.push(chunk)
        if len(part):
            yield part
    yield run.finish()
    say(told(run))


def tell(findings: "list[Finding]") -> None:
    """Say what was found, as far as it is not too much.

    >>> from cometad.cli.prepare import tell
    >>> tell([])
    """
    for finding in findings[:MOST_TOLD]:
        say(finding.sentence)
    if len(findings) > MOST_TOLD:
        say(f"There are {len(findings) - MOST_TOLD} more findings like these.")
