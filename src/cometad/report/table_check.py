"""What would happen to a table: its columns, times and problems, and whether it could be fitted or scored."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from cometad.comet import Comet
from cometad.data.columns import Matching
from cometad.data.gaps import Gaps, RefuseGaps
from cometad.data.kinds import certain_kinds, questions
from cometad.data.prepare import Trends
from cometad.data.quality import Finding, Statistics, findings
from cometad.detector import Detector
from cometad.errors import InputError
from cometad.parameters import is_number
from cometad.series import Series, as_series, check_length, check_like, unchecked_series, with_all_columns


@dataclass(frozen=True)
class ColumnCheck:
    name: str
    kind: str  # time, number, text or other
    use: str  # time, variable, ignored, or why it cannot be used
    missing: int  # cells
    low: float | str | None  # lowest number or first time
    high: float | str | None


@dataclass(frozen=True)
class TableCheck:
    readings: int
    columns: tuple[ColumnCheck, ...]
    interval: float | None  # usual seconds between readings
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]  # sentences about trends and ignored columns
    problem: InputError | None  # why the table cannot be used, with what to do

    def as_json(self) -> dict[str, Any]:
        """The check in types that JSON can hold; the problem is left to the caller, who knows whom it is for."""
        return {
            "ok": self.problem is None,
            "readings": self.readings,
            "interval": self.interval,
            "columns": [asdict(column) for column in self.columns],
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
        }


def check_table(
    frame: pl.DataFrame,
    detector: Detector | None = None,
    gaps: Gaps | None = None,
    where: Callable[[int], str] | None = None,
) -> TableCheck:
    """Check a table for fitting a `Comet()` or, with a detector, for scoring with it; `gaps` replaces the gap rule.

    `where` returns the place of a row in words, if the frame comes from a file.
    """
    rule = gaps or (RefuseGaps() if detector is None else detector.gaps)
    notes: list[str] = []
    problem: InputError | None = None
    series: Series | None = None
    used = frame
    try:
        if detector is not None and detector.named_:
            matching = Matching(detector.names_, rule.allowed)
            notes += filter(None, [matching.note(frame)])
            used = matching(frame)
        series = unchecked_series(used, where=where)
        if detector is not None:
            series = with_all_columns(series, detector.names_)
            check_like(series, detector.names_, detector.named_)
        as_series(series, missing=rule.allowed)
        least = Comet().min_training_readings if detector is None else detector.min_readings
        check_length(len(series), least, "a window" if detector is not None else "the views need")
    except InputError as error:
        problem = error
    found: list[Finding] = []
    interval = math.nan
    if series is not None and not np.isinf(series.values).any():
        found, interval = _quality(series, detector)
        if detector is None:
            notes += _trends(series).sentences(series.names)
    columns = tuple(_column(column, column.name in used.columns) for column in frame)
    usual = None if math.isnan(interval) else interval
    return TableCheck(len(frame), columns, usual, tuple(found), tuple(notes), problem)


def _quality(series: Series, detector: Detector | None) -> tuple[list[Finding], float]:
    own = Statistics.fit(series)
    if detector is None:
        return findings(series, own) + questions(series), own.period
    if len(series.names) != len(detector.names_):
        return [], own.period
    series = unchecked_series(series)
    known = Series(series.values, detector.names_, series.times, True)
    return findings(known, detector.statistics_, detector.trends_.trending), own.period


def _trends(series: Series) -> Trends:
    missing = np.isnan(series.values)
    known = np.where(missing, 0.0, series.values)
    return Trends.fit(known, missing if missing.any() else None, certain_kinds(series, {}, search=True))


def _column(column: pl.Series, used: bool) -> ColumnCheck:
    dtype = column.dtype
    missing = column.null_count() + (int(column.is_nan().sum()) if dtype.is_float() else 0)
    if dtype in (pl.Datetime, pl.Date):
        ends = (None, None) if missing == len(column) else (str(column.min()), str(column.max()))
        return ColumnCheck(column.name, "time", "time", missing, *ends)
    if dtype == pl.String:
        cell = next((cell for cell in column if cell is not None and not is_number(cell)), "")
        return ColumnCheck(column.name, "text", f"text: {cell!r}" if used else "ignored", missing, None, None)
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):  # lists, categories, durations, ...
        use = f"not numeric: {dtype.base_type().__name__}" if used else "ignored"
        return ColumnCheck(column.name, "other", use, missing, None, None)
    numbers = column.cast(pl.Float64).fill_nan(None).drop_nulls()
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (None, None)  # type: ignore[arg-type]
    use = "variable" if low != high else "no readings" if low is None else "constant"
    return ColumnCheck(column.name, "number", use if used else "ignored", missing, _finite(low), _finite(high))


def _finite(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
