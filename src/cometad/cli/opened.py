"""Shared by the verbs: opening a detector or a file of readings, and reporting findings."""

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.exits import say, say_first
from cometad.files import is_temporary, status_of

if TYPE_CHECKING:
    import polars as pl

    from cometad.alerting.alerts import Level
    from cometad.data.quality import Finding
    from cometad.data.tables import Check, ReadOptions, Select, TableReader
    from cometad.detector import Detector
    from cometad.series import Series


def open_detector(model: Path, threshold: str | None = None, gaps: str | None = None) -> "Detector":
    """Load a detector, with another threshold or gap rule if given; mistakes are refused before torch is loaded."""
    from cometad.alerting.thresholds import parse_threshold
    from cometad.data.gaps import parse_gaps
    from cometad.errors import ModelFileError

    if problem := _problem(model):
        raise ModelFileError(f"The detector '{model}' {problem}. Create one with cometad fit DATA -o MODEL.")
    rule = None if threshold is None else parse_threshold(threshold)
    gap_rule = None if gaps is None else parse_gaps(gaps)

    from cometad.detectors import load

    detector = load(model)
    detector = detector if gap_rule is None else detector.with_gaps(gap_rule)
    return detector if rule is None else detector.with_threshold(rule)


def _problem(model: Path) -> str | None:
    """Why a path does not lead to a file that can be loaded, if so."""
    try:
        status = status_of(model)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if status is None:
        return "does not exist"
    if is_temporary(model):
        return "is a temporary file of cometad, which the next write may delete"
    if stat.S_ISDIR(status.st_mode):
        return "is a folder"
    return None if stat.S_ISREG(status.st_mode) else "is a pipe or a device, not a file"


class Source:
    """Readings and how to read them; a missing file or a bad option is refused at once."""

    def __init__(self, path: Path, options: "ReadOptions") -> None:
        from cometad.data.resample import parse_resampling
        from cometad.data.table_sources import check_source

        check_source(path)
        self._path, self._options = path, options
        self._resampling = None if options.resample is None else parse_resampling(options.resample)
        self._reader: TableReader | None = None

    def _opened(self, detector: "Detector | None") -> "TableReader":
        if self._reader is None:
            variables = detector.names_ if detector is not None and detector.named_ else ()
            self._reader = self._options.reader(self._path, variables)
        return self._reader

    def whole(self, detector: "Detector | None" = None, missing: bool = True) -> "pl.DataFrame | Series":
        """All readings, with the columns of the detector and resampled if requested; see `series` for `missing`."""
        from cometad.series import together

        frame = self._opened(detector).whole(_selection(detector), self._check(detector, missing))
        return frame if self._resampling is None else together(list(self._resampled([frame])))

    def frame(self, detector: "Detector | None" = None) -> "pl.DataFrame":
        """All readings with all their columns, also those with text, or resampled if requested."""
        import polars as pl

        from cometad.series import together

        if self._resampling is None:
            return self._opened(detector).whole()
        bins = together(list(self._resampled([self._opened(detector).whole(_selection(None))])))
        return pl.DataFrame(bins.values, schema=list(bins.names)).with_columns(pl.Series("time", bins.times))

    @property
    def where(self) -> "Callable[[int], str] | None":
        """The place of a row of the frame, in words, unless the row is a bin; only once the frame was read."""
        return self._reader.where if self._reader is not None and self._resampling is None else None

    def chunks(self, detector: "Detector | None" = None) -> "Iterable[pl.DataFrame | Series]":
        check = self._check(detector, missing=True)
        frames = self._opened(detector).chunks(select=_selection(detector), check=check)
        return frames if self._resampling is None else self._resampled(frames)

    def series(self, missing: bool, detector: "Detector | None" = None) -> "Series":
        """All readings as a checked series; `missing` allows missing readings."""
        from cometad.series import as_series

        return as_series(self.whole(detector, missing), missing=missing)

    def _check(self, detector: "Detector | None", missing: bool) -> "Check | None":
        """The check of the rows of the file; resampling takes them in any order."""
        if self._resampling is not None:
            return None
        return _row_check(missing if detector is None else detector.gaps.allowed)

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


def _row_check(missing: bool) -> "Check":
    """Refuses missing, infinite and late readings with their rows; a detector knows only their time steps."""
    from cometad.series import Order, as_series, unchecked_series

    order, seen = Order(), 0

    def check(frame: "pl.DataFrame", where: "Callable[[int], str]") -> None:
        nonlocal seen
        series = unchecked_series(frame, first=seen, where=where)
        order.on_time(series)
        as_series(series, missing=missing)
        order.last = None if series.times is None else series.times[-1]
        seen += len(series)

    return check


def _selection(detector: "Detector | None") -> "Select":
    """Selects the columns that a detector was fitted on, in its order; others are ignored with a note."""
    from cometad.data.columns import Matching

    if detector is None or not detector.named_:
        return lambda frame: frame
    matching, noted = Matching(detector.names_, detector.gaps.allowed), False

    def select(frame: "pl.DataFrame") -> "pl.DataFrame":
        nonlocal noted
        selected = matching(frame)
        if not noted and (note := matching.note(frame)):
            say(note)
        noted = True
        return selected

    return select


def scored(readings: int, anomalous: int, levels: "Mapping[Level, int]", of: str = "") -> str:
    counts = [f"{levels[level]:,} {level}{'' if levels[level] == 1 else 's'}" for level in ("alert", "notice")]
    return f"Scored {readings:,} readings{of}, {anomalous:,} of them anomalous: {' and '.join(counts)}."


def say_findings(findings: "Sequence[Finding]") -> None:
    say_first([finding.sentence for finding in findings], "There are {} more findings like these.")
