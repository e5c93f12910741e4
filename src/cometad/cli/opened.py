"""Shared by the verbs: opening a detector or a file of readings, and reporting findings."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.exits import say

if TYPE_CHECKING:
    import polars as pl

    from cometad.data.quality import Finding
    from cometad.detector import Detector
    from cometad.series import Series

MOST_FINDINGS = 10


def open_detector(model: Path, threshold: str | None = None) -> "Detector":
    """Load a detector, with another threshold rule if given; mistakes are refused before torch is loaded."""
    from cometad.alerting.thresholds import parse_threshold
    from cometad.errors import ModelFileError

    if not model.is_file():
        problem = "is a folder" if model.is_dir() else "does not exist"
        raise ModelFileError(f"The detector '{model}' {problem}. Create one with cometad fit DATA -o MODEL.")
    rule = None if threshold is None else parse_threshold(threshold)

    from cometad.detectors import load

    detector = load(model)
    return detector if rule is None else detector.with_threshold(rule)


class Source:
    """A file of readings and how to read it; a missing file or a bad option is refused at once."""

    def __init__(
        self,
        path: Path,
        time_column: str | None = None,
        drop: Sequence[str] | None = None,
        resample: str | None = None,
    ) -> None:
        from cometad.data.resample import parse_resampling
        from cometad.data.tables import check_table

        check_table(path)
        self._path, self._time_column, self._drop = path, time_column, drop or ()
        self._resampling = None if resample is None else parse_resampling(resample)

    def whole(self) -> "pl.DataFrame | Series":
        """All readings, resampled if requested."""
        from cometad.data.tables import read_table
        from cometad.series import together

        frame = read_table(self._path, self._time_column, self._drop)
        return frame if self._resampling is None else together(list(self._resampled([frame])))

    def chunks(self) -> "Iterable[pl.DataFrame | Series]":
        """The readings in chunks, with only one in memory at a time."""
        from cometad.data.tables import table_chunks

        frames = table_chunks(self._path, self._time_column, self._drop)
        return frames if self._resampling is None else self._resampled(frames)

    def series(self, missing: bool) -> "Series":
        """All readings as a checked series; `missing` allows missing readings."""
        from cometad.series import as_series

        return as_series(self.whole(), missing=missing)

    def _resampled(self, frames: "Iterable[pl.DataFrame]") -> "Iterator[Series]":
        from cometad.data.resample import summary

        assert self._resampling is not None
        run = self._resampling.start()
        for frame in frames:
            bins = run.push(frame)
            if len(bins):
                yield bins
        yield run.finish()
        say(summary(run))


def say_findings(findings: "Sequence[Finding]") -> None:
    """Print findings on stderr, up to a limit.

    >>> from cometad.cli.opened import say_findings
    >>> say_findings([])
    """
    for finding in findings[:MOST_FINDINGS]:
        say(finding.sentence)
    if len(findings) > MOST_FINDINGS:
        say(f"There are {len(findings) - MOST_FINDINGS} more findings like these.")
