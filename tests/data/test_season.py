"""What is usual at a time of the day, on a kind of day, is learned, followed and subtracted."""

import itertools
import math
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad import Comet, load
from cometad.data.gaps import Interpolate, ScoreMeasured
from cometad.data.season import Season, _left
from cometad.data.text import Layout
from cometad.errors import InputError, ParameterError
from cometad.live.session import Clock, Ordered, Session
from cometad.series import Series
from cometad.serve.live_stream import LiveStream, StreamRow
from cometad.serve.models import StreamSettings
from serve_case import in_process, post, put, settled, upload

BERLIN = "Europe/Berlin"
MONDAY = datetime(2024, 1, 1, tzinfo=UTC)
HOUR, MINUTE = 3600, 60


def times_of(seconds):
    return np.array([round(1e6 * each) for each in seconds], np.int64).astype("datetime64[us]")


def series_of(values, seconds, imputed=None):
    """Readings (time, variable) at seconds after the Monday; without times if there are none."""
    values = np.asarray(values, np.float64)
    times = None if seconds is None else times_of(MONDAY.timestamp() + each for each in seconds)
    return Series(values, tuple(f"v{i}" for i in range(values.shape[1])), times, True, imputed=imputed)


def added(numbers):
    """One after the other: newer versions of Python compensate for the rounding in `sum`."""
    total = 0.0
    for number in numbers:
        total += number
    return total


class NaiveSeason:
    """The docstrings of the module and of `Season` for one variable: one reading at a time, with lists."""

    def __init__(self, kind, zone, free, nodes, length=None, cycles=42):
        self.kind, self.zone, self.free, self.nodes, self.length = kind, zone, free, nodes, length
        self.cycles = cycles
        self.recent = defaultdict(dict)  # slot -> place of the cycle in the memory -> (mean, day)
        self.open, self.readings, self.day, self.known = None, [], None, None

    def like(self, day, other):
        free = [day in self.free or day.weekday() == 6, other in self.free or other.weekday() == 6]
        weekend = [one.weekday() >= 5 or one in self.free for one in (day, other)]
        return {
            1: True,
            2: weekend[0] == weekend[1],
            7: free[0] == free[1] and (free[0] or day.weekday() == other.weekday()),
        }[self.kind]

    def place(self, at):
        """The cycle, the slot and the position in it."""
        slots = len(self.nodes)
        if self.length is not None:
            return (
                at // self.length,
                at % self.length * slots // self.length,
                at % self.length * slots % self.length / (self.length),
            )
        local = at.astimezone(self.zone)
        seconds = (local.hour * 60 + local.minute) * 60 + local.second
        return local.date().toordinal(), seconds * slots // 86400, seconds * slots % 86400 / 86400

    def enter(self):
        if self.open is not None:
            cycle, slot = self.open
            if self.readings:
                self.recent[slot][cycle % self.cycles] = (added(self.readings) / len(self.readings), cycle)
        self.open, self.readings = None, []

    def center(self, occurrence, until):
        slots = len(self.nodes)
        cycle, slot = divmod(occurrence, slots)
        found = {
            place: each
            for place, each in self.recent[slot].items()
            if not (cycle < until and place == cycle % self.cycles)
        }
        days = [date.fromordinal(each[1]) if self.length is None else None for each in found.values()]
        today = date.fromordinal(cycle) if self.length is None else None
        alike = [
            each[0] for each, day in zip(found.values(), days, strict=True) if self.kind == 1 or self.like(today, day)
        ]
        if alike or found:
            return median(alike or [each[0] for each in found.values()])
        return self.usual

    def push(self, reading, at, known=True, imputed=False, until=-math.inf):
        cycle, slot, offset = self.place(at)
        if (cycle, slot) != self.open:
            self.enter()
            self.open = (cycle, slot)
        slots, node = len(self.nodes), self.nodes[slot]
        occurrence, share, side = cycle * slots + slot, 0.0, 0
        if offset < node - 1e-9:
            side, share = -1, (node - offset) / (1 - (self.nodes[slot - 1] - node))
        elif offset > node + 1e-9:
            side, share = 1, (offset - node) / (1 + (self.nodes[(slot + 1) % slots] - node))
        usual = (1 - share) * self.center(occurrence, until)
        usual += share * self.center(occurrence + side, until)
        if known:
            self.readings.append(reading)
        return 0.0 if imputed else reading - usual


def naive_nodes(naive, ats):
    offsets = defaultdict(list)
    for at in ats:
        _, slot, offset = naive.place(at)
        offsets[slot].append(offset)
    return [added(offsets[slot]) / len(offsets[slot]) if slot in offsets else 0.0 for slot in range(len(naive.nodes))]


def naive_fit(naive, readings, ats, known):
    """Residuals of the training series, and the memory after it."""
    naive.nodes = naive_nodes(naive, ats)
    naive.usual = median(reading for reading, is_known in zip(readings, known, strict=True) if is_known)
    first = naive.place(ats[0])[0]
    early = [k for k, at in enumerate(ats) if naive.place(at)[0] < first + naive.cycles]
    for k in early:
        naive.push(readings[k], ats[k], known[k])
    naive.enter()
    moved = [naive.push(*each, until=first + naive.cycles) for each in zip(readings, ats, known, strict=True)]
    naive.enter()
    return moved


FREE = {
    date(2024, *each) for each in ((1, 1), (3, 29), (4, 1), (5, 1), (5, 9), (5, 20), (10, 3), (12, 25), (12, 26))
}  # Germany


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 9999),
    kind=st.sampled_from([1, 2, 7]),
    step=st.sampled_from([15 * MINUTE, HOUR, 5 * HOUR, 24 * HOUR]),
    days=st.integers(2, 90),
    zone=st.sampled_from(["UTC", BERLIN, "Asia/Kolkata"]),
    data=st.data(),
)
def test_a_season_equals_the_naive_loop_on_any_chunking_and_through_snapshots(seed, kind, step, days, zone, data):
    random = np.random.default_rng(seed)
    count = min(max(days * 86400 // step, 4), 200)
    start = data.draw(st.sampled_from([0, 60 * 86400, 70 * 86400 + 1234]))
    seconds = [start + step * k + (step > HOUR) * 60 for k in range(2 * count) if random.random() > 0.1]
    values = np.round(random.normal(size=(len(seconds), 1)), 2)
    cut = len(seconds) // 2
    unknown = random.random(len(seconds)) < 0.1
    learned = np.ones(cut, bool)
    learned[2:5] = False
    slots = min(max(86400 // step, 1), 24)
    found = Season(np.array([kind]), zone, "DE", slots=slots)
    training = series_of(values[:cut], seconds[:cut], unknown[:cut, None])
    left_out = unknown[:cut, None] | ~learned[:, None]
    moved = found._learn(training, *found._placed(cut, training.micros), left_out)
    naive = NaiveSeason(kind, ZoneInfo(zone), FREE, [0.0] * slots)
    ats = [MONDAY + timedelta(seconds=each) for each in seconds]
    expected = naive_fit(naive, values[:cut, 0].tolist(), ats[:cut], (~unknown[:cut] & learned).tolist())
    expected = np.where(unknown[:cut], 0.0, expected)
    assert moved[:, 0].tolist() == expected.tolist()
    later = [
        naive.push(value, at, not gap, gap)
        for value, at, gap in zip(values[cut:, 0].tolist(), ats[cut:], unknown[cut:].tolist(), strict=True)
    ]
    micros = times_of(MONDAY.timestamp() + each for each in seconds[cut:]).astype(np.int64)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(micros)), max_size=5))), len(micros)]
    run, parts = deepcopy(found), []
    for begin, end in itertools.pairwise(cuts):
        part = slice(begin, end)
        parts.append(run.push(values[cut:][part], micros[part], unknown[cut:, None][part]))
        state, run = run.state(), deepcopy(found)
        run.restore(state)
    whole = deepcopy(found).push(values[cut:], micros, unknown[cut:, None])
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole[:, 0].tolist() == later


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 9999), length=st.sampled_from([2, 7, 24, 200]), count=st.integers(4, 450))
def test_a_season_of_readings_equals_the_naive_loop(seed, length, count):
    values = np.random.default_rng(seed).normal(size=(2 * count, 1))
    if count < 2 * length:
        with pytest.raises(InputError, match="at most half of the series"):
            Season.fit(length, "UTC", None, series_of(values[:count], None), np.ones(count, bool))
        return
    found, moved = Season.fit(length, "UTC", None, series_of(values[:count], None), np.ones(count, bool))
    slots = min(length, 168)
    naive = NaiveSeason(1, None, (), [0.0] * slots, length, cycles=min(42, 1008 // slots))
    expected = naive_fit(naive, values[:count, 0].tolist(), range(count), [True] * count)
    assert moved[:, 0].tolist() == expected
    later = [naive.push(value, count + k) for k, value in enumerate(values[count:, 0].tolist())]
    assert deepcopy(found).push(values[count:], None)[:, 0].tolist() == later


def naive_left(apart, group):
    """Distances of one variable (day, slot) from the median of every other day of its group; at most six weeks."""
    left = apart.copy()
    for part in np.array_split(np.arange(len(apart)), math.ceil(len(apart) / 42)):
        for kind in set(group[part].tolist()):
            days = [day for day in part if group[day] == kind]
            for k, day in enumerate(days):
                others = [other for j, other in enumerate(days) if (j - k) % 2]
                for slot in range(apart.shape[1]):
                    if others:
                        left[day, slot] -= median(apart[other, slot] for other in others)
        left[part] -= median(left[part].ravel())
    return np.abs(left)


@given(seed=st.integers(0, 9999), days=st.integers(1, 100), kinds=st.sampled_from([1, 2, 7]))
def test_held_out_days_are_compared_with_the_others(seed, days, kinds):
    random = np.random.default_rng(seed)
    apart, group = random.normal(size=(days, 3, 1)), random.integers(kinds, size=days)
    np.testing.assert_allclose(_left(apart, group)[..., 0], naive_left(apart[..., 0], group), atol=1e-12)


# -- what is found ----------------------------------------------------------------------------------------------------

HOURS = np.arange(24 * 7 * 8)
OFFICE = (10.0 + 20.0 * ((HOURS % 24 >= 8) & (HOURS % 24 < 18))) * np.where(HOURS // 24 % 7 < 5, 1.0, 0.3)


def kinds_of(values, step=HOUR, zone="UTC", holidays=None):
    series = series_of(values, np.arange(len(values)) * step)
    found, _ = Season.fit("auto", zone, holidays, series, np.ones(len(series), bool))
    return np.zeros(values.shape[1], int) if found is None else found.kind


def walk(random, shape):
    return np.cumsum(random.normal(size=shape), axis=0)


def lasting(random, shape):
    noise = random.normal(size=shape)
    for t in range(1, len(noise)):
        noise[t] += 0.95 * noise[t - 1]
    return noise


NOISE = {
    "white noise": lambda random, shape: random.normal(size=shape),
    "lasting noise": lasting,
    "random walk": walk,
    "smooth walk": lambda random, shape: np.cumsum(walk(random, shape), axis=0),
    "drift": lambda random, shape: np.linspace(0, 30, shape[0])[:, None] + random.normal(size=shape),
    "ramp": lambda random, shape: np.linspace(0, 30, shape[0])[:, None] + np.zeros(shape),
    "heavy tails": lambda random, shape: np.exp(2 * random.normal(size=shape)),
    "rare states": lambda random, shape: (random.random(shape) < 0.02).astype(float),
    "other period": lambda random, shape: (
        np.sin(np.arange(shape[0]) * 2 * np.pi / 17)[:, None] + 0.3 * random.normal(size=shape)
    ),
}


@pytest.mark.parametrize("days", [2, 9, 30, 70])
@pytest.mark.parametrize("kind", NOISE)
def test_what_does_not_repeat_gets_no_season(kind, days):
    values = NOISE[kind](np.random.default_rng(days), (24 * days, 200))
    assert (kinds_of(values) > 0).sum() <= 4


def test_the_coarsest_kinds_of_days_that_explain_more_are_chosen():
    random = np.random.default_rng(0)
    daily = 5 * np.sin(HOURS % 24 / 24 * 2 * np.pi)
    monday = 10.0 * (HOURS // 24 % 7 == 0) * (HOURS % 24 < 12)
    values = np.column_stack([daily, OFFICE, monday, 0 * daily]) + random.normal(size=(len(HOURS), 4))
    assert kinds_of(values).tolist() == [1, 2, 7, 0]
    assert kinds_of(values[: 24 * 9]).tolist()[0] == 1  # weeks are not looked at in less than two
    assert kinds_of(values[:30]).tolist() == [0, 0, 0, 0]
    assert kinds_of(values[::24]).tolist()[0] == 0  # nor hours in daily readings


def test_a_weekend_is_found_in_daily_readings():
    values = np.where(np.arange(70) % 7 < 5, 10.0, 3.0)[:, None] + np.random.default_rng(0).normal(size=(70, 1))
    assert kinds_of(values, 24 * HOUR).tolist() == [2]


def test_a_holiday_is_a_sunday():
    seconds = np.arange(24 * 7 * 13) * HOUR  # to Easter Monday
    days = [(MONDAY + timedelta(seconds=int(each))).date() for each in seconds]
    working = np.array([day.weekday() < 5 and day not in FREE for day in days])
    values = (10.0 * working + 0.1 * np.random.default_rng(0).normal(size=len(days)))[:, None]
    series = series_of(values, seconds)
    for holidays, missed in (("DE", 0), (None, 2)):  # without them, Good Friday (and New Year) is a surprise
        _, moved = Season.fit("auto", "UTC", holidays, series, np.ones(len(days), bool))
        far = {day for day, own in zip(days, moved[:, 0], strict=True) if abs(own) > 5}
        assert len(far) == missed


def test_parts_of_countries_have_holidays_of_their_own():
    epiphany = np.array([datetime(2024, 1, 6 - 1, tzinfo=UTC).timestamp() + 24 * HOUR])
    kinds = [
        Season(np.ones(1, np.int64), "UTC", where)._placed(1, times_of(epiphany).astype(np.int64))[1][0, 1]
        for where in ("DE", "DE-BY")
    ]
    assert kinds == [5, 6]


@pytest.mark.parametrize(("day", "hours"), [(date(2024, 3, 31), 23), (date(2024, 10, 27), 25)])
def test_when_clocks_change_hours_are_local_ones(day, hours):
    """02:30 is missing in spring and comes twice in autumn; a load that follows the clock stays as expected."""
    start = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(BERLIN)) - timedelta(days=20)
    ats = [start.astimezone(UTC) + timedelta(minutes=30 * k) for k in range(48 * 25)]
    local = [at.astimezone(ZoneInfo(BERLIN)) for at in ats]
    assert sum(each.date() == day for each in local) == 2 * hours
    values = np.array([[abs(12.0 - each.hour - each.minute / 60)] for each in local])
    seconds = [at.timestamp() - MONDAY.timestamp() for at in ats]
    for zone, explained in ((BERLIN, True), ("UTC", False)):
        _, moved = Season.fit("1d", zone, None, series_of(values, seconds), np.ones(len(ats), bool))
        assert (np.abs(moved[48 * 5 :]).max() < 0.5) == explained


def test_minute_data_are_compared_with_a_curve_and_hourly_data_with_their_hour():
    minutes = np.arange(24 * 60 * 5)
    curve = 100 * np.sin(minutes / 1440 * 2 * np.pi)[:, None]
    learned = np.ones(len(minutes), bool)
    _, moved = Season.fit("1d", "UTC", None, series_of(curve, minutes * MINUTE), learned)
    steps = curve - np.repeat(curve.reshape(-1, 60).mean(axis=1), 60)[:, None]
    assert np.abs(moved).max() < 1.2 < 12 < np.abs(steps).max()
    _, moved = Season.fit("1d", "UTC", None, series_of(curve[::60], minutes[::60] * MINUTE), learned[::60])
    assert np.abs(moved).max() < 1e-9


# -- what is followed -------------------------------------------------------------------------------------------------


def test_a_fault_of_days_is_not_learned_and_slow_change_is():
    random = np.random.default_rng(0)
    hours = np.arange(24 * 7 * 20)
    values = (10 * np.sin(hours * 2 * np.pi / 24) + hours / 168 + 0.1 * random.normal(size=len(hours)))[:, None]
    values[24 * 100 : 24 * 103] += 50.0
    cut = 24 * 42
    found, _ = Season.fit("1d", "UTC", None, series_of(values[:cut], hours[:cut] * HOUR), np.ones(cut, bool))
    moved = deepcopy(found).push(values[cut:], series_of(values, hours * HOUR).micros[cut:])[:, 0]
    days = moved.reshape(-1, 24)
    assert np.abs(days[58:61] - 53.5).max() < 2
    assert np.abs(np.delete(days, slice(58, 61), axis=0) - 3.5).max() < 2  # three weeks behind: it does not grow


def test_excluded_and_imputed_readings_are_not_learned():
    values = np.tile(np.arange(24.0), 30)[:, None]
    seconds, learned = np.arange(len(values)) * HOUR, np.ones(len(values), bool)
    faulty, imputed = values.copy(), np.zeros(values.shape, bool)
    faulty[: 24 * 12] = 900.0
    learned[: 24 * 10], imputed[24 * 10 : 24 * 12] = False, True
    found, moved = Season.fit("1d", "UTC", None, series_of(faulty, seconds, imputed), learned)
    assert np.abs(moved[24 * 10 :]).max() == 0
    assert moved[30, 0] == 900 - 6
    assert np.nanmax(found._recent) == 23
    long = series_of(np.vstack([faulty, np.tile(values, (2, 1))]), np.arange(3 * len(values)) * HOUR)
    learned = np.arange(3 * len(values)) >= 24 * 50  # more than what is remembered
    _, moved = Season.fit("1d", "UTC", None, long, learned)
    assert np.isfinite(moved).all()
    assert np.abs(moved[24 * 51 :]).max() == 0
    assert np.abs(moved[24 * 50 :]).max() <= 12  # from the median, as long as nothing else is known


def test_the_state_has_the_same_size_for_ever():
    values = np.tile(np.arange(24.0), 14)[:, None]
    series = series_of(values, np.arange(len(values)) * HOUR)
    found, _ = Season.fit("1w", "UTC", None, series, np.ones(len(values), bool))
    sizes = {name: array.shape for name, array in found.state().items()}
    found.push(np.tile(values, (50, 1)), series.micros[-1] + 3_600_000_000 * np.arange(1, 50 * len(values) + 1))
    assert {name: array.shape for name, array in found.state().items()} == sizes


# -- in a detector ----------------------------------------------------------------------------------------------------


def frame_of(values, step=HOUR):
    times = [MONDAY.replace(tzinfo=None) + timedelta(seconds=k * step) for k in range(len(values))]
    return pl.DataFrame({"time": times, **{name: values[:, i] for i, name in enumerate(("load", "noise"))}})


WEEKS = 24 * 7
NORMAL = np.column_stack([OFFICE, 0 * OFFICE]) + np.random.default_rng(0).normal(size=(len(HOURS), 2))
FRAME = frame_of(NORMAL)


@pytest.fixture(scope="module")
def seasonal():
    return Comet(timezone=BERLIN, holidays="DE", gaps=Interpolate(3)).fit(FRAME[: 5 * WEEKS])


def test_a_sunday_like_a_working_day_is_found_and_named(seasonal):
    faulty = FRAME[5 * WEEKS :].with_columns(
        load=pl.when(pl.int_range(pl.len()).is_between(WEEKS - 24 + 9, WEEKS - 24 + 14)).then(30.0).otherwise("load")
    )
    start = WEEKS - 24 + 9
    detector = seasonal.with_gaps(ScoreMeasured())
    assert detector.season_.kind.tolist() == [2, 0]
    event = max(detector.events(faulty), key=lambda event: event.severity)
    assert start <= event.start < event.stop <= start + 24
    reason = detector.explain(faulty, event).reasons[0]
    assert reason.variable == "load"
    assert reason.usually == "on weekends at this hour"
    assert reason.sentence().endswith(" on weekends at this hour.")
    assert abs(reason.expected[0] - 9) < 3 * reason.band
    plain = Comet(season="none").fit(FRAME[: 5 * WEEKS])
    assert plain.explain(faulty, event).reasons[0].usually == ""
    away = np.abs(plain.step_scores(faulty).alerts - plain.threshold_)
    assert away[start : start + 6].min() < np.abs(detector.step_scores(faulty).alerts[start : start + 6]).max()


def test_the_level_is_far_from_what_is_usual_then(seasonal):
    words = seasonal.season_.usually(0, int(MONDAY.timestamp() * 1e6))  # New Year's Day
    assert words == "on weekends at this hour"
    assert seasonal.season_.usually(1, 0) == ""


@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_a_stream_equals_the_batch_on_any_chunking_and_through_snapshots(seasonal, data):
    rest = FRAME[5 * WEEKS : 6 * WEEKS].with_columns(
        load=pl.when(pl.int_range(pl.len()) % 11 == 3).then(None).otherwise("load")
    )
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, WEEKS), max_size=6))), WEEKS]
    stream, parts = seasonal.stream(), []
    for begin, end in itertools.pairwise(cuts):
        parts.append(stream.update_many(rest[begin:end]) if end > begin else np.empty(0))
        stream = seasonal.stream(stream.snapshot())
    assert np.array_equal(np.concatenate([*parts, stream.finish()]), seasonal.decision_function(rest))
    stream, values = seasonal.stream(), rest.drop("time").fill_null(math.nan).to_numpy()
    ats = [MONDAY.timestamp() + HOUR * (5 * WEEKS + k) for k in range(WEEKS)]
    single = [stream.update(row, at) for row, at in zip(values[:40], ats[:40], strict=True)]
    single += [stream.update_many(values[40:], ats[40:]), stream.finish()]
    assert np.array_equal(np.concatenate(single), seasonal.decision_function(rest))


def test_a_saved_detector_continues_with_its_season(seasonal, tmp_path):
    seasonal.save(tmp_path / "plant.comet")
    again, rest = load(tmp_path / "plant.comet"), FRAME[5 * WEEKS :]
    assert np.array_equal(again.decision_function(rest), seasonal.decision_function(rest))
    assert again.timezone == BERLIN
    snapshot = seasonal.stream().snapshot()
    assert again.stream(snapshot).snapshot() == snapshot


def test_scoring_does_not_change_the_season(seasonal):
    before = seasonal.to_bytes()
    seasonal.decision_function(FRAME[5 * WEEKS :])
    seasonal.stream().update_many(FRAME[5 * WEEKS :])
    assert seasonal.to_bytes() == before


def test_readings_without_times_are_refused_and_leave_the_stream_unchanged(seasonal):
    with pytest.raises(InputError, match=r"every reading needs a time\. Pass a frame with a column of dates"):
        seasonal.decision_function(NORMAL)
    stream = seasonal.stream()
    for refused in (lambda: stream.update([1.0, 2.0]), lambda: stream.update_many(NORMAL[:9])):
        with pytest.raises(InputError, match="every reading needs a time"):
            refused()
    assert (stream.seen, stream.snapshot()) == (0, seasonal.stream().snapshot())


@pytest.mark.parametrize("season", ["1d", 24])
@pytest.mark.parametrize("at", [math.nan, math.inf, -1e12, 1.7e12, 1e300])
def test_times_that_are_none_are_refused_and_leave_the_stream_unchanged(seasonal, at, season):
    detector = seasonal if season == "1d" else Comet(season=24).fit(NORMAL)
    stream = detector.stream()
    for refused in (lambda: stream.update([1.0, 2.0], at), lambda: stream.update_many(NORMAL[:2], [0.0, at])):
        with pytest.raises(InputError, match=r"is out of range\. Send seconds since 1970\."):
            refused()
    with pytest.raises(InputError, match=r"Expected 9 times, one for each reading, got 2\."):
        stream.update_many(NORMAL[:9], [0.0, None, 1.0])
    assert stream.snapshot() == detector.stream().snapshot()


def test_a_service_takes_only_times_with_a_date_if_there_is_a_season(seasonal):
    row = StreamRow(1, "plant", StreamSettings(detector="plant"))
    for detector, far in ((seasonal, False), (Comet(season="none").fit(FRAME), True)):
        stream = LiveStream(row, detector, Layout(detector.names_, True))
        assert [stream.can_have(at) for at in (0.0, -1e12, 1e14)] == [True, far, far]


@pytest.mark.parametrize("season", ["1d", 24])
def test_a_service_explains_readings_without_times_that_came_together(tmp_path, season):
    fresh = np.column_stack([NORMAL, NORMAL[:, 0]])[:300]
    fresh[200:206, 1] += 15.0
    detector = Comet(season=season).fit(FRAME.with_columns(third=FRAME["load"]))
    with in_process(tmp_path) as (_, client):
        upload(client, "pump", detector.to_bytes())
        put(client, "plant")
        post(client, "plant", [dict(zip(detector.names_, row, strict=True)) for row in fresh.tolist()])
        settled(client, "plant", len(fresh))
        event = client.get("/v1/events").json()["events"][0]
        explanation = client.get(f"/v1/events/{event['id']}").json()["explanation"]
    assert explanation["variables"][0]["name"] == "noise"


def test_a_state_with_a_season_is_expected_to_be_what_it_is_then():
    working = (HOURS % 24 >= 8) & (HOURS % 24 < 18)
    readings = frame_of(np.column_stack([working, NORMAL[:, 1]]).astype(float))
    detector = Comet(season="1d", kinds={"load": "state"}).fit(readings[: 7 * WEEKS])
    found = detector.explain(readings[7 * WEEKS :], (50, 60), context=40)
    assert np.array_equal(found.normal[31:, 0], found.observed[31:, 0])


def test_a_season_of_readings_needs_no_times_and_goes_on_after_training():
    readings = NORMAL + 20 * np.sin(HOURS * 2 * np.pi / 24)[:, None] * [0, 1]
    detector = Comet(season=24).fit(readings[: 24 * 20 + 5])
    assert detector.season_.kind.tolist() == [1, 1]
    rest = readings[24 * 20 + 5 :]
    assert np.array_equal(detector.stream().update_many(rest[:50]).alert_scores, detector.step_scores(rest[:50]).alerts)
    assert detector.explain(rest, 100).reasons[0].usually == "at this point of its cycle"
    assert np.abs(detector._moved(series_of(rest, None))[:, 1]).max() < 5


def test_no_season_without_times_or_on_request():
    assert Comet().fit(NORMAL).season_ is None
    assert Comet(season="none").fit(FRAME).season_ is None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"season": "1y"}, r"Unknown season '1y'\. Choose from auto, 1d, 1w, none"),
        ({"season": 1}, "a number of readings, at least 2"),
        ({"season": True}, "Unknown season True"),
        ({"season": []}, "Unknown season"),
        ({"timezone": "Europe/Berln"}, r"Unknown time zone 'Europe/Berln'\. Write it like UTC or Europe/Berlin\."),
        ({"timezone": "../etc"}, "Unknown time zone"),
        ({"timezone": 3}, "Unknown time zone"),
        ({"holidays": "XX"}, r"Unknown country 'XX'\. Write it like DE"),
        ({"holidays": "DE-QQ"}, "Unknown country 'DE-QQ'"),
        ({"holidays": 3}, "Unknown country 3"),
        ({"holidays": ["DE"]}, r"Unknown country \['DE'\]"),
        ({"holidays": "utils"}, "Unknown country 'utils'"),  # a module of the package
    ],
)
def test_bad_parameters_are_named(parameters, words):
    with pytest.raises(ParameterError, match=words):
        Comet(**parameters).fit(FRAME)


@pytest.mark.parametrize(
    ("parameters", "readings", "words"),
    [
        ({"season": "1d"}, NORMAL, "With a season, every reading needs a time"),
        ({"season": "1w"}, FRAME[:300], "A season of 1w spans 168 readings, and the series has 300"),
        ({"season": 400}, NORMAL[:700], "A season of 400 spans 400 readings, and the series has 700"),
        ({"season": 1500}, NORMAL, "A season of 1500 spans 1,500 readings, and the series has 1,344"),
        (
            {"season": "1d"},
            frame_of(NORMAL, 86400),
            r"A season of 1d spans 1 readings, and the series has 1,344\. Choose one of at least 2",
        ),
    ],
)
def test_a_season_must_fit_the_series(parameters, readings, words):
    with pytest.raises(InputError, match=words):
        Comet(**parameters).fit(readings)


def test_a_service_passes_the_times_on_and_continues_from_its_snapshots():
    detector = Comet().fit(FRAME[: 5 * WEEKS])
    rest = FRAME[5 * WEEKS : 6 * WEEKS]
    values, ats = rest.drop("time").to_numpy(), [MONDAY.timestamp() + HOUR * (5 * WEEKS + k) for k in range(WEEKS)]
    expected = detector.step_scores(rest).alerts
    for gate in (Ordered, Clock):
        session, found = Session(detector, gate()), []
        for part in (slice(0, 1), slice(1, 50), slice(50, WEEKS)):
            found += [timed.scored.alert_scores for timed in session.take_many(values[part], ats[part])]
            session = Session.resume(session.snapshot(), detector, gate())
        assert np.array_equal(np.concatenate(found), expected)


def test_a_part_of_a_series_of_counted_readings_is_compared_with_its_own_phase():
    readings = 20 * np.sin(HOURS * 2 * np.pi / 24)[:, None] + NORMAL[:, 1:]
    detector = Comet(season=24).fit(readings[: 24 * 20])
    part = Series(readings[24 * 20 + 7 :], ("v0",), None, False, first=7)
    assert np.abs(detector._moved(part)).max() < 5 < np.abs(detector._moved(replace(part, first=0))).max()
