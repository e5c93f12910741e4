"""Shared by the verbs: opening a detector or a file of readings, and reporting findings."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.exits import say

if TYPE_CHECKING:
    import polars as pl

    from cometad.data.dialect import Dialect
    from cometad.data.quality import Finding
    from cometad.detector import Detector
    from cometad.series import Series

MOST_FINDINGS = 10


def open_detector(model: Path, threshold: str | None = None, gaps: str | None = None) -> "Detector":
    """Load a detector, with another threshold or gap rule if given; mistakes are refused before torch is loaded."""
    from cometad.alerting.thresholds import parse_threshold
    from cometad.data.gaps import parse_gaps
    from cometad.errors import ModelFileError

    if not model.is_file():
        problem = "is a folder" if model.is_dir() else "does not exist"
        raise ModelFileError(f"The detector '{model}' {problem}. Create one with cometad fit DATA -o MODEL.")
    rule = None if threshold is None else parse_threshold(threshold)
    gap_rule = None if gaps is None else parse_gaps(gaps)

    from cometad.detectors import load

    detector = load(model)
    detector = detector if gap_rule is None else detector.with_gaps(gap_rule)
    return detector if rule is None else detector.with_threshold(rule)


class Source:
    """Readings and how to read them; a missing file or a bad option is refused at once."""

    def __init__(
        self,
        path: Path,
        time_column: str | None = None,
        drop: Sequence[str] | None = None,
        resample: str | None = None,
        dialect: "Dialect | None" = None,
    ) -> None:
        from cometad.data.dialect import Dialect
        from cometad.data.resample import parse_resampling
        from cometad.data.tables import check_table

        check_table(path)
        self._path, self._time_column, self._drop = path, time_column, drop or ()
        self._dialect = Dialect() if dialect is None else dialect
        self._resampling = None if resample is None else parse_resampling(resample)

    def whole(self, detector: "Detector | None" = None) -> "pl.DataFrame | Series":
        """All readings, with the columns of the detector and resampled if requested."""
        from cometad.data.tables import read_table
        from cometad.series import together

        frame = read_table(self._path, self._time_column, self._drop, self._dialect)
        (frame,) = self._matched([frame], detector)
        return frame if self._resampling is None else together(list(self._resampled([frame])))

    def frame(self) -> "pl.DataFrame":
        """All readings with all their columns, resampled if requested."""
        import polars as pl

        readings = self.whole()
        if isinstance(readings, pl.DataFrame):
            return readings
        return pl.DataFrame(readings.values, schema=list(readings.names)).with_columns(
            pl.Series("time", readings.times)
        )

    def chunks(self, detector: "Detector | None" = None) -> "Iterable[pl.DataFrame | Series]":
        """The readings in chunks, with only one in memory at a time."""
        from cometad.data.tables import table_chunks

        frames = self._matched(table_chunks(self._path, self._time_column, self._drop, self._dialect), detector)
        return frames if self._resampling is None else self._resampled(frames)

    def series(self, missing: bool, detector: "Detector | None" = None) -> "Series":
        """All readings as a checked series; `missing` allows missing readings."""
        from cometad.series import as_series

        return as_series(self.whole(detector), missing=missing)

    def _matched(self, frames: "Iterable[pl.DataFrame]", detector: "Detector | None") -> "Iterator[pl.DataFrame]":
        """The columns that the detector was fitted on, in its order; others are ignored with a note."""
        from cometad.data.matching import Matching

        if detector is None or not detector.named_:
            yield from frames
            return
        matching = Matching(detector.names_, detector.gaps.allowed)
        for number, frame in enumerate(frames):
            yield matching(frame)
            if number == 0 and (note := matching.note(frame)):
                say(note)

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
