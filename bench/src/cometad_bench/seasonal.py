"""Tables that follow the hour and the weekday, and faults that only a calendar can see.

Every value of a fault is a normal one, at the wrong time: a stretch of the table is replaced by other readings of the
same table. So nothing but the time of the day and the kind of day tells a fault from normal operation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from cometad.arrays import Array, Floats
from cometad.datasets.synthetic import Fault

ZONE = ZoneInfo("Europe/Berlin")
START = datetime(2025, 7, 7, tzinfo=ZONE)  # a Monday; the clocks go back in the test part
WEEKS = 12  # of each part
APART = 14  # days from fault to fault: more of them would become normal
COPIES = 10  # of the test part, each with one fault of every kind

# Means at the hours 0, 3, 6, ... 21 of a working day and of a day of the weekend, as shares of the highest one.
PROFILES = {
    "office": ([0.2, 0.2, 0.3, 0.9, 1.0, 0.9, 0.5, 0.25], [0.2, 0.2, 0.2, 0.25, 0.25, 0.25, 0.2, 0.2]),
    "web": ([0.3, 0.1, 0.25, 0.7, 0.8, 0.8, 0.9, 1.0], [0.45, 0.2, 0.1, 0.3, 0.5, 0.6, 0.7, 0.7]),
    "water": ([0.2, 0.15, 0.8, 0.6, 0.5, 0.4, 0.9, 0.5], [0.25, 0.15, 0.3, 0.9, 0.8, 0.5, 0.8, 0.5]),
    "traffic": ([0.1, 0.05, 0.7, 0.8, 0.5, 0.9, 0.5, 0.3], [0.2, 0.1, 0.15, 0.3, 0.5, 0.5, 0.4, 0.25]),
    "kitchen": ([0.05, 0.05, 0.3, 0.6, 1.0, 0.3, 0.7, 0.1], [0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.05, 0.05]),
}
MINUTES = {"office": 60, "web": 30, "water": 60, "traffic": 30, "kitchen": 60}  # from reading to reading
VARIABLES = 4


@dataclass(frozen=True, eq=False)
class SeasonalTable:
    """A table of normal readings, in local time.

    >>> from cometad_bench.seasonal import seasonal_table
    >>> table = seasonal_table("office")
    >>> table.values.shape, table.frame(table.values[:2]).columns[:2]
    ((4033, 4), ['time', 'load'])
    """

    name: str
    values: Floats  # (time, variable)
    times: list[datetime]  # with the zone
    split: int  # the first reading of the test part

    @property
    def per_day(self) -> int:
        return 24 * 60 // MINUTES[self.name]

    @property
    def test(self) -> Floats:
        return self.values[self.split :]

    def frame(self, values: Floats, first: int = 0) -> pl.DataFrame:
        """Readings from a time step on, with their times in UTC."""
        moments = [time.astimezone(UTC).replace(tzinfo=None) for time in self.times[first : first + len(values)]]
        names = ("load", "return", "second", "ambient")
        return pl.DataFrame({"time": moments, **{name: values[:, i] for i, name in enumerate(names)}})


def seasonal_table(name: str, seed: int = 0) -> SeasonalTable:
    """Simulate a table: a load with a profile, one that follows it, a half as large one, and one of the day alone.

    Days differ by a tenth, the level drifts slowly by a fifth, and noise has a memory of some readings.
    """
    rng = np.random.default_rng([seed, list(PROFILES).index(name)])
    step, count = timedelta(minutes=MINUTES[name]), WEEKS * 14 * 24 * 60 // MINUTES[name]
    times = [(START.astimezone(UTC) + k * step).astimezone(ZONE) for k in range(count + 1)]
    hours = np.array([time.hour + time.minute / 60 for time in times])
    weekend = np.array([time.weekday() >= 5 for time in times])
    working, free = (np.interp(hours, np.arange(0, 25, 3), [*means, means[0]]) for means in PROFILES[name])
    days = np.array([(time.date() - START.date()).days for time in times])
    daily = 1 + 0.1 * rng.normal(size=days.max() + 1)[days]
    drift = 1 + 0.2 * np.sin(2 * np.pi * (np.arange(count + 1) / count + rng.uniform()))
    load = np.where(weekend, free, working) * daily * drift
    delayed = np.concatenate([load[:1], load[:-1]])
    ambient = 0.5 + 0.3 * np.sin(2 * np.pi * (hours - 9) / 24) + 0.1 * np.sin(2 * np.pi * np.arange(count + 1) / count)
    clean = np.stack([load, 0.3 + 0.6 * delayed, 0.5 * load, ambient], axis=1)
    noise = np.zeros_like(clean)
    for t, shock in enumerate(rng.normal(size=clean.shape)[1:], 1):
        noise[t] = 0.7 * noise[t - 1] + 0.02 * shock
    return SeasonalTable(name, 100 * (clean + noise), times, int(np.searchsorted(days, WEEKS * 7)))


# -- faults: each returns the rows it replaces, and the rows that take their place -------------------------------------

Rows = tuple[slice, Array]


def _sunday_like_a_weekday(table: SeasonalTable, day: int) -> Rows:
    sunday = _day(table, day + 6)
    return sunday, _shifted(table, sunday, 4)


def _weekday_like_a_sunday(table: SeasonalTable, day: int) -> Rows:
    wednesday = _day(table, day + 9)
    return wednesday, _shifted(table, wednesday, 3)


def _night_at_noon(table: SeasonalTable, day: int) -> Rows:
    start, hour = _day(table, day + 1).start, table.per_day // 24
    return slice(start + 10 * hour, start + 15 * hour), np.arange(start, start + 5 * hour)


def _missing_peak(table: SeasonalTable, day: int) -> Rows:
    """The five hours around the highest load are as those before them."""
    tuesday, hour = _day(table, day + 1), table.per_day // 24
    peak = int(np.clip(table.test[tuesday, 0].argmax() - 2 * hour, 6 * hour, 19 * hour)) + tuesday.start
    return slice(peak, peak + 5 * hour), np.arange(peak - 5 * hour, peak)


def _shifted_day(table: SeasonalTable, day: int) -> Rows:
    thursday = _day(table, day + 3)
    return thursday, np.arange(thursday.start, thursday.stop) - 4 * (table.per_day // 24)


SEASONAL_FAULTS: dict[str, Callable[[SeasonalTable, int], Rows]] = {
    "Sunday like a weekday": _sunday_like_a_weekday,
    "weekday like a Sunday": _weekday_like_a_sunday,
    "night at noon": _night_at_noon,
    "missing peak": _missing_peak,
    "day shifted by 4 h": _shifted_day,
}


def with_seasonal_faults(table: SeasonalTable, seed: int) -> tuple[Floats, list[Fault]]:
    """The test part with one fault of every kind, in any order and `APART` days apart.

    It is in all variables, or in all but the last: they still fit each other.
    """
    rng = np.random.default_rng([seed, len(table.name)])
    values, faults = table.test.copy(), []
    kinds = rng.permutation(list(SEASONAL_FAULTS))
    for k, kind in enumerate(kinds):
        rows, source = SEASONAL_FAULTS[kind](table, 7 + APART * k)
        chosen = range(VARIABLES - int(rng.integers(2)))
        for i in chosen:
            values[rows, i] = table.test[source, i]
        faults.append(Fault(str(kind), rows.start, rows.stop, tuple(chosen)))
    return values, faults


def _day(table: SeasonalTable, day: int) -> slice:
    """The time steps of a day of the test part, from midnight to midnight, local time."""
    dates = np.array([time.toordinal() for time in table.times[table.split :]])
    found = np.flatnonzero(dates == dates[0] + day)
    return slice(int(found[0]), int(found[-1]) + 1)


def _shifted(table: SeasonalTable, day: slice, days: int) -> Array:
    """The same hours some days earlier."""
    return np.arange(day.start, day.stop) - days * table.per_day
