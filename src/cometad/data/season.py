"""Seasons: what a variable usually reads at this time of the day, on this kind of day, and the distance from that.

A *cycle* is a day in local time, or a number of readings. It has *slots*, such as its hours; one slot of one cycle is
an *occurrence*. The *center* of a slot is the median of its occurrences in the last six weeks: it follows slow change,
and a fault of a few days does not move it.
"""

import copy
import warnings
from collections.abc import Container, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.compute import jit
from cometad.data.cells import LARGEST
from cometad.data.prepare import NOTHING, sentences_of
from cometad.errors import InputError, ParameterError, imported_for
from cometad.parameters import is_integer
from cometad.saving import Saved, Table, array, integers, require_state
from cometad.series import Series

QUARTER, DAY = 900_000_000, 86_400_000_000  # microseconds; clocks are set at whole quarters of an hour
CYCLES, HOURS = 42, 24  # six weeks of days are remembered
MOST_SLOTS = 168  # of a number of readings; then six cycles are remembered
DAILY, WORKING, WEEKLY = 1, 2, 7  # kinds of days: all alike, working days and weekends, weekdays
SATURDAY, SUNDAY = 5, 6
SEASONS = {"auto": 0, "1d": DAILY, "1w": WEEKLY, "none": 0}
NEVER = np.iinfo(np.int64).min
SAME = 1e-9  # of a slot: readings this close are at the same time

# A season is found if it explains held-out readings better than a coarser one. The share of the absolute deviations
# that it explains, as a mean over days or weeks, must be above MARGIN + SURE * (its standard error); the spread of a
# few of them may be low by chance, so it counts as at least LEAST_SPREAD.
MARGIN, SURE, LEAST_SPREAD = 0.02, 2.5, 0.13
LOOKED_AT = 26 * 7  # days, the last ones
ROUNDING = 1e-9  # of the readings: deviations below it explain nothing

WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


def check_season(season: Any, timezone: Any, holidays: Any) -> None:
    """Refuse parameters that name no season, time zone or country."""
    if not (season >= 2 if is_integer(season) else isinstance(season, str) and season in SEASONS):
        raise ParameterError(
            f"Unknown season {season!r}. Choose from {', '.join(SEASONS)}, or pass a number of readings, at least 2."
        )
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise ParameterError(f"Unknown time zone {timezone!r}. Write it like UTC or Europe/Berlin.") from error
    try:
        if holidays is not None:
            _holidays(holidays, 1970)
    except (NotImplementedError, TypeError, AttributeError) as error:
        raise ParameterError(f"Unknown country {holidays!r}. Write it like DE, or with its part like DE-BY.") from error


@cache
def _holidays(country: str, year: int) -> Container[date]:
    library, (name, _, part) = imported_for("A season with holidays", "holidays"), country.partition("-")
    found: Container[date] = library.country_holidays(name, subdiv=part or None, years=year)
    return found


@lru_cache(10_000)
def local_clock(timezone: str, holidays: str | None, quarter: int) -> tuple[int, ...]:
    """How far local time is ahead of UTC in a quarter of an hour since 1970, and the weekdays of three days around it.

    A holiday is a Sunday.
    """
    try:
        start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=quarter * QUARTER)
        time = start.astimezone(ZoneInfo(timezone))
        days = [time.date() + timedelta(k) for k in (-1, 0, 1)]
    except OverflowError:  # beyond the calendar
        return (0, *((quarter * QUARTER // DAY + k) % 7 for k in (2, 3, 4)))
    kinds = [SUNDAY if holidays and day in _holidays(holidays, day.year) else day.weekday() for day in days]
    return (time.utcoffset() or timedelta()) // timedelta(microseconds=1), *kinds


class Season(Saved):
    """Subtracts from each reading what is usual at its time: the center of its slot.

    Between the mean times of two slots' readings, their centers are interpolated. An occurrence enters the memory when
    the next one begins, as the mean of its measured readings, so no reading is compared with itself. In training, the
    first six weeks are compared with the others of those weeks.

    The slots of a day are hours, or the period of the readings if that is longer. Those of a number of readings are the
    readings themselves, at most 168. The first reading scored follows the last one of the training series.
    """

    saved: ClassVar[Table] = {
        "whole": integers("_length", "_seen"),
        "kind": array("kind", "variable", dtype=np.int64),
        "nodes": array("_nodes", "slot"),
        "usual": array("_usual", "seasonal"),
        "recent": array("_recent", "seasonal", "slot", "cycle", unknown=True),
        "days": array("_days", "seasonal", "slot", "cycle", dtype=np.int8),
        "centers": array("_centers", 3, "seasonal", unknown=True),
        "sums": array("_sums", 2, "seasonal"),
        "open": array("_open", 2, dtype=np.int64),
    }

    def __init__(
        self, kind: Integers, timezone: str, holidays: str | None, length: int = DAY, slots: int = HOURS
    ) -> None:
        self._timezone, self._holidays, self._length = timezone, holidays, length  # in microseconds or readings
        self.kind = kind  # (variable,)  DAILY, WORKING or WEEKLY; 0 without a season
        self._nodes = np.zeros(slots)  # mean time of the readings within each slot
        seasonal, cycles = int((kind > 0).sum()), min(CYCLES, HOURS * CYCLES // slots)
        self._recent = np.full((seasonal, slots, cycles), np.nan)  # means of the last occurrences
        self._days = np.zeros(self._recent.shape, np.int8)  # their weekdays
        self._usual = np.zeros(seasonal)  # the median in training, for a slot without any
        self._centers = np.full((3, seasonal), np.nan)  # of the slot before, the open one and the next, if needed
        self._sums = np.zeros((2, seasonal))  # of the readings of the open occurrence, and how many they are
        self._open = np.array([NEVER, 0])  # its number and weekday
        self._seen = 0  # readings

    @classmethod
    def fit(
        cls, season: str | int, timezone: str, holidays: str | None, series: Series, learned: Flags
    ) -> "tuple[Season | None, Floats]":
        """Find the seasons of a training series; returns them, or None, and the series without them.

        Only the `learned` (time,) readings enter. "auto" looks for the coarsest kinds of days that explain held-out
        readings: all alike, working days and weekends, or weekdays.
        """
        values, count = series.values, series.values.shape[1]
        if season == "none" or (season == "auto" and series.times is None):
            return None, values
        length, most = (DAY, HOURS) if isinstance(season, str) else (int(season), MOST_SLOTS)
        at, kinds = cls(np.zeros(count, np.int64), timezone, holidays, length)._placed(len(series), series.micros)
        period = max(int(np.median(np.diff(at))), 1)
        weeks = season == "1w" or (season == "auto" and 2 * period > DAY)
        steps, rows = length * (WEEKLY if weeks else 1) / period, (at[-1] - at[0] + period) / period
        if not 2 <= steps <= rows / 2:
            if season == "auto":
                return None, values
            raise InputError(
                f"A season of {season} spans {steps:,g} readings, and the series has {rows:,.0f}. Choose one of at "
                "least 2 readings and at most half of the series."
            )
        slots = min(max(length // period, 1), most)
        unknown = ~learned[:, None] | (np.isnan(values) if series.imputed is None else series.imputed)
        occurrences = at // length * slots + at % length * slots // length
        kind = np.full(count, SEASONS[season] if isinstance(season, str) else DAILY)
        if season == "auto":
            kind = _best_kinds(values, unknown, occurrences, holidays, slots)
        kind[unknown.all(axis=0)] = 0
        if not kind.any():
            return None, values
        found = cls(kind, timezone, holidays, length, slots)
        return found, found._learn(series, at, kinds, unknown)

    def _learn(self, series: Series, at: Integers, kinds: Integers, unknown: Flags) -> Floats:
        """Fill the memory with a training series; returns the series without its seasons."""
        length, moved, slots = self._length, series.values.copy(order="C"), len(self._nodes)
        place = at % length * slots // length
        inside = (at % length * slots - place * length) / length
        self._nodes = np.bincount(place, inside, slots) / np.maximum(np.bincount(place, minlength=slots), 1)
        self._usual = np.array([np.median(moved[~unknown[:, i], i]) for i in np.flatnonzero(self.kind)])
        # First comes what the first cycles are compared with, as if it had been before.
        end = int(at[0] // length) + self._days.shape[2]
        early = slice(0, int(np.searchsorted(at, end * length)))
        self._run(moved[early].copy(), at[early], kinds[early], unknown[early], NOTHING, NEVER)
        _enter(*self._state)
        self._run(moved, at, kinds, unknown, NOTHING if series.imputed is None else series.imputed, end)
        _enter(*self._state)
        self._seen = len(series)
        return moved

    def __call__(self, series: Series, values: Floats) -> Floats:
        """The values (time, variable) of a whole series without their seasons."""
        own = copy.deepcopy(self)
        own._seen += series.first
        return own.push(values, series.micros, series.imputed)

    def push(self, values: Floats, micros: Integers | None, imputed: Flags | None = None) -> Floats:
        """Add readings (time, variable) with their times in UTC; returns them less what is usual, or 0 if `imputed`."""
        mask, (at, kinds) = NOTHING if imputed is None else imputed, self._placed(len(values), micros)
        self._seen += len(values)
        moved = np.array(values, np.float64, order="C")
        self._run(moved, at, kinds, mask, mask, NEVER)
        return moved

    def require_times(self, known: bool) -> None:
        """Refuse readings without times, if what is usual depends on them."""
        if self.by_clock and not known:
            raise InputError("With a season, every reading needs a time.", advice="season times")

    def usually(self, i: int, micros: int | None) -> str:
        """When variable `i` usually reads what is expected at a time, in words; empty without a season."""
        if not self.kind[i]:
            return ""
        if micros is None or not self.by_clock:
            return "at this point of its cycle"
        today = int(self._placed(1, np.array([micros]))[1][0, 1])
        working = "on weekends " if today >= SATURDAY else "on working days "
        days = {DAILY: "", WORKING: working, WEEKLY: f"on {WEEKDAYS[today]} "}[int(self.kind[i])]
        return f"{days}at this {'hour' if len(self._nodes) == HOURS else 'time'}"

    def sentences(self, names: Sequence[str]) -> list[str]:
        """Which variables have seasons, and what is scored of them."""
        cycle = "every day" if self.by_clock else f"every {self._length:,} readings"
        whens = {DAILY: cycle, WORKING: "on working days and on weekends", WEEKLY: "every week"}
        words = {kind: f"repeat{{s}} {when}: what is usual at that time is subtracted." for kind, when in whens.items()}
        return sentences_of({int(i): int(self.kind[i]) for i in np.flatnonzero(self.kind)}, words, names)

    def check_state(self) -> None:
        fits = bool(np.isin(self.kind, (0, DAILY, WORKING, WEEKLY)).all()) and 2 <= self._length <= DAY
        fits = fits and len(self._recent) == (self.kind > 0).sum() and 0 <= self._seen <= 2**53
        fits = fits and bool(((self._nodes >= 0) & (self._nodes <= 1)).all()) and 0 <= self._open[1] <= SUNDAY
        require_state(fits, "its season is not one")

    def sizes(self) -> dict[str, int]:
        return {"variable": len(self.kind)} if len(self.kind) else {}

    @property
    def by_clock(self) -> bool:
        """Whether its cycle is a day; else it is a number of readings."""
        return self._length == DAY

    def free_days(self) -> list[int]:
        """The holidays in 1970 to 2119, as days since 1970."""
        with warnings.catch_warnings(action="ignore"):  # of some countries, fewer years are known
            country, days = self._holidays, (date(1970, 1, 1) + timedelta(k) for k in range(54_786))
            return [] if country is None else [k for k, day in enumerate(days) if day in _holidays(country, day.year)]

    def _placed(self, count: int, micros: Integers | None) -> tuple[Integers, Integers]:
        """Local times or numbers (time,) of readings, and the weekdays (time, 3) of the days before, then and after."""
        self.require_times(micros is not None)
        if micros is None or not self.by_clock:
            return self._seen + np.arange(count), np.zeros((count, 3), np.int64)
        quarters = (micros // QUARTER).tolist()
        local = [local_clock(self._timezone, self._holidays, quarter) for quarter in quarters]
        ahead, *kinds = np.array(local, np.int64).reshape(-1, 4).T
        return micros + ahead, np.stack(kinds, axis=1)

    def _run(self, moved: Floats, at: Integers, kinds: Integers, unknown: Flags, imputed: Flags, until: int) -> None:
        fixed = (self.kind, self._nodes, self._usual, self._length, until)
        _follow(moved, at, kinds, unknown, imputed, fixed, self._state)

    @property
    def _state(self) -> tuple[Array, ...]:
        return self._recent, self._days, self._centers, self._sums, self._open


@jit
def _follow(
    readings: Floats, at: Integers, kinds: Integers, unknown: Flags, imputed: Flags, fixed: Any, state: Any
) -> None:
    """Replace readings (time, variable) by their distances from the centers, and update the state.

    The centers of cycles before `until` leave out what the memory has of the cycle itself.
    """
    kind, nodes, usual, length, until = fixed
    recent, days, centers, sums, open = state
    _, slots, cycles = days.shape
    seasonal = np.flatnonzero(kind)
    for t in range(len(readings)):
        cycle = at[t] // length
        inside = (at[t] - cycle * length) * slots
        slot = inside // length
        occurrence = cycle * slots + slot
        if occurrence != open[0]:
            _enter(recent, days, centers, sums, open)
            open[0], open[1] = occurrence, kinds[t, 1]
        late = inside % length / length - nodes[slot]
        side = 0 if abs(late) <= SAME else -1 if late < 0 else 1
        share = side * late / (1 + side * (nodes[(slot + side) % slots] - nodes[slot]))
        for step in (0, side):
            if np.isnan(centers[1 + step, 0]):
                other, place = (occurrence + step) // slots, (occurrence + step) % slots
                own, today = other % cycles if other < until else -1, kinds[t, 1 + other - cycle]
                for k in range(len(seasonal)):
                    alike = kind[seasonal[k]]
                    centers[1 + step, k] = _center(recent[k, place], days[k, place], own, today, alike, usual[k])
        for k, i in enumerate(seasonal):
            if not (len(unknown) > 0 and unknown[t, i]):
                sums[0, k] += min(max(readings[t, i], -LARGEST), LARGEST)
                sums[1, k] += 1
            readings[t, i] -= (1 - share) * centers[1, k] + share * centers[1 + side, k]
            if len(imputed) > 0 and imputed[t, i]:
                readings[t, i] = 0.0


@jit
def _enter(recent: Floats, days: Array, centers: Floats, sums: Floats, open: Integers) -> None:
    """Enter the open occurrence into the memory, and forget its readings and the centers."""
    _, slots, cycles = days.shape
    if open[0] != NEVER:
        slot, cycle = open[0] % slots, open[0] // slots % cycles
        for k in range(len(recent)):
            if sums[1, k] > 0:
                recent[k, slot, cycle], days[k, slot, cycle] = sums[0, k] / sums[1, k], open[1]
    centers[:], sums[:], open[0] = np.nan, 0.0, NEVER


@jit
def _center(recent: Floats, days: Array, own: int, today: int, kind: int, usual: float) -> float:
    """The median of a slot over days of one kind, or over all days if there are none; without the `own` cycle."""
    known = ~np.isnan(recent)
    if own >= 0:
        known[own] = False
    alike = days == today if kind == WEEKLY else (kind == DAILY) | ((days >= SATURDAY) == (today >= SATURDAY))
    for kept in (known & alike, known):
        if kept.any():
            return float(np.median(recent[kept]))
    return usual


# -- which season ------------------------------------------------------------------------------------------------------


def _best_kinds(values: Floats, unknown: Flags, occurrences: Integers, holidays: str | None, slots: int) -> Integers:
    """The coarsest kinds of days (variable,) that explain held-out readings (time, variable); 0 for none."""
    first = max(int(occurrences.min()) // slots, int(occurrences.max()) // slots + 1 - LOOKED_AT)  # day
    late = occurrences >= first * slots
    place, unknown = occurrences[late] - first * slots, unknown[late]
    total, count = np.zeros((2, (int(place.max()) // slots + 1) * slots, values.shape[1]))
    np.add.at(total, place, np.where(unknown, 0.0, np.clip(values[late], -LARGEST, LARGEST)))
    np.add.at(count, place, ~unknown)
    means = (total / np.maximum(count, 1)).reshape(-1, slots, values.shape[1])
    known = (count > 0).reshape(means.shape)
    weekdays = np.array([local_clock("UTC", holidays, (first + day) * DAY // QUARTER)[2] for day in range(len(means))])
    groups = {0: np.arange(len(means)), DAILY: 0 * weekdays, WORKING: weekdays >= SATURDAY, WEEKLY: weekdays}
    best = np.zeros(values.shape[1], np.int64)
    for kind, span in ((DAILY, 1), (WORKING, WEEKLY), (WEEKLY, WEEKLY)):
        if len(means) >= 2 * span:
            apart = _apart(means, known, span)
            left = {other: _left(apart, group) * known for other, group in groups.items()}
            coarser = np.select([best == other for other in left], list(left.values()))
            best[_explains(coarser, left[kind], span)] = kind
    return best


def _apart(means: Floats, known: Flags, days: int) -> Floats:
    """How far means (day, slot, variable) are from those of the `days` around them; 0 where unknown.

    So neither a level nor a drift looks like a season.
    """
    flat, measured, span = *(own.reshape(-1, means.shape[2]) for own in (means, known)), days * means.shape[1]
    level = flat.sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    flat = (flat - level) * measured
    begin = np.clip(np.arange(len(flat)) - span // 2, 0, len(flat) - span)
    total, count = (np.cumsum(np.vstack([0 * flat[:1], own]), axis=0) for own in (flat, measured))
    apart = flat - (total[begin + span] - total[begin]) / np.maximum(count[begin + span] - count[begin], 1)
    return np.asarray((apart * measured).reshape(means.shape))


def _left(apart: Floats, group: Integers | Flags) -> Floats:
    """How far (day, slot, variable) from the median of the slot in every other day of the same `group` (day,).

    At most six weeks are compared with each other, and their level does not count.
    """
    left = apart.copy()
    for part in np.array_split(np.arange(len(apart)), -(-len(apart) // CYCLES)):
        for kind in np.unique(group[part]):
            days = part[group[part] == kind]
            for own, others in ((days[::2], days[1::2]), (days[1::2], days[::2])):
                if len(others):
                    left[own] -= np.median(apart[others], axis=0)
        left[part] -= np.median(left[part], axis=(0, 1))
    return np.abs(left)


def _explains(coarser: Floats, finer: Floats, span: int) -> Flags:
    """Whether a finer season leaves less (day, slot, variable) than a coarser one, by more than chance."""
    blocks = len(coarser) // span
    before, after = (own[: blocks * span].reshape(blocks, -1, own.shape[2]).sum(axis=1) for own in (coarser, finer))
    tiny = before <= ROUNDING * before.max(axis=0)
    share = np.clip(1 - after / np.where(tiny, 1.0, before), -1, 1) * ~tiny
    error = np.maximum(share.std(axis=0, ddof=1), LEAST_SPREAD) / np.sqrt(blocks)
    return np.asarray(share.mean(axis=0) > MARGIN + SURE * error)
