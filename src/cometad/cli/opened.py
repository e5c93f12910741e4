"""Shared by the verbs: opening a detector and a file of readings, and reporting findings."""

import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from cometad.cli.exits import say, say_first
from cometad.errors import ModelFileError
from cometad.files import is_temporary, status_of

if TYPE_CHECKING:
    import polars as pl

    from cometad.alerting.alerts import Level
    from cometad.data.quality import Finding
    from cometad.data.tables import ReadOptions
    from cometad.detector import Detector
    from cometad.series import Series


def open_detector(model: Path, threshold: str | None = None, gaps: str | None = None) -> "Detector":
    """Load a detector, with another threshold or gap rule if given; mistakes are refused before torch is loaded."""
    from cometad.alerting.thresholds import parse_threshold
    from cometad.data.gaps import parse_gaps

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


def opened(
    model: Path, data: Path, read: "ReadOptions", threshold: str | None = None, gaps: str | None = None
) -> "tuple[Detector, Source]":
    """A detector, and the readings that it will score; a missing file is refused before the detector is loaded."""
    from cometad.data.table_sources import check_source

    check_source(data)
    detector = open_detector(model, threshold, gaps)
    return detector, Source(data, read, detector)


class Source:
    """Readings for a detector; a missing file or a bad option is refused at once.

    If the detector is not fitted yet, `gaps` says whether readings may be missing.
    """

    def __init__(self, path: Path, read: "ReadOptions", detector: "Detector | None" = None, gaps: bool = True) -> None:
        from cometad.data.resample import parse_resampling

        self._resampling = None if read.resample is None else parse_resampling(read.resample)
        self._gaps = gaps if detector is None else detector.gaps.allowed
        self._variables = detector.names_ if detector is not None and detector.named_ else ()
        self._reader = read.reader(path, self._variables)

    def whole(self) -> "pl.DataFrame | Series":
        """All readings, with the columns of the detector and resampled if requested."""
        from cometad.series import together

        frame = self._reader.whole(self._selection(), self._check())
        return frame if self._resampling is None else together(list(self._resampled([frame])))

    def series(self) -> "Series":
        from cometad.series import as_series

        return as_series(self.whole(), missing=self._gaps)

    def frame(self) -> "pl.DataFrame":
        """All readings with all their columns, also those with text, or resampled if requested."""
        import polars as pl

        from cometad.series import together

        if self._resampling is None:
            return self._reader.whole()
        bins = together(list(self._resampled([self._reader.whole(lambda frame: frame)])))
        return pl.DataFrame(bins.values, schema=list(bins.names)).with_columns(pl.Series("time", bins.times))

    def chunks(self) -> "Iterable[pl.DataFrame | Series]":
        frames = self._reader.chunks(select=self._selection(), check=self._check())
        return frames if self._resampling is None else self._resampled(frames)

    @property
    def where(self) -> "Callable[[int], str] | None":
        """The place of a row of the frame, in words, unless the row is a bin; only once the frame was read."""
        return self._reader.where if self._resampling is None else None

    def _selection(self) -> "Callable[[pl.DataFrame], pl.DataFrame]":
        """Selects the columns that the detector was fitted on, in its order; others are ignored with a note."""
        from cometad.data.columns import Matching

        if not self._variables:
            return lambda frame: frame
        matching, noted = Matching(self._variables, self._gaps), False

        def select(frame: "pl.DataFrame") -> "pl.DataFrame":
            nonlocal noted
            selected = matching(frame)
            if not noted and (note := matching.note(frame)):
                say(note)
            noted = True
            return selected

        return select

    def _check(self) -> "Callable[[pl.DataFrame, Callable[[int], str]], None] | None":
        """Refuses missing, infinite and late readings with their rows; a detector knows only their time steps.

        None if they are resampled, which takes rows in any order.
        """
        from cometad.series import Order, as_series, unchecked_series

        order, seen = Order(), 0

        def check(frame: "pl.DataFrame", where: "Callable[[int], str]") -> None:
            nonlocal seen
            series = unchecked_series(frame, first=seen, where=where)
            order.on_time(series)
            as_series(series, missing=self._gaps)
            order.last = None if series.times is None else series.times[-1]
            seen += len(series)

        return check if self._resampling is None else None

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


def scored(readings: int, anomalous: int, levels: "Mapping[Level, int]", of: str = "") -> str:
    counts = [f"{levels[level]:,} {level}{'' if levels[level] == 1 else 's'}" for level in ("alert", "notice")]
    return f"Scored {readings:,} readings{of}, {anomalous:,} of them anomalous: {' and '.join(counts)}."


def say_findings(findings: "Sequence[Finding]", doubtful: Collection[str] = ()) -> None:
    """Print findings; where their kind is doubtful, with how to leave the variable out."""
    leave = {f: f" To leave it out, pass --drop {quote(f.variable or '')}." for f in findings if f.kind in doubtful}
    say_first([f.sentence + leave.get(f, "") for f in findings], "There are {} more findings like these.")
