"""A session answers reading by reading like the batch, and resumes from its snapshot; no command line involved."""

import math
from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad import Alerts, Comet, NetworkComet, Quantile
from cometad.checkpoint import from_bytes, to_bytes
from cometad.data import ForwardFill
from cometad.data.cells import StreamDates
from cometad.data.resample import Resampling, resample
from cometad.data.text import Reading
from cometad.errors import CometadError, InputError, ModelFileError
from cometad.live.session import KIND, Clock, Grid, Ordered, Session
from cometad.network import OneCycle
from cometad.series import Series
from contract import is_a_sentence, waves

NETWORK = {
    "window": 24,
    "patch_sizes": (2, 5),
    "patch_strides": (1, 2),
    "dim": 8,
    "core_dim": 5,
    "codebook_size": 12,
    "schedule": OneCycle(10),
}
FRESH = waves(160, seed=1)
FRESH[100:104] += 5
SECONDS = [20 * i + 5 * (i % 3) for i in range(len(FRESH))]
MINUTE = Resampling("60s", "mean")


@pytest.fixture(scope="module")
def strict():
    return Comet(threshold=Quantile(0.05)).fit(waves(300))


@pytest.fixture(scope="module")
def lenient():
    return Comet(threshold=Quantile(0.05), gaps=ForwardFill(3)).fit(waves(300))


@pytest.fixture(scope="module")
def network():
    """A detector whose scores wait for later readings."""
    return NetworkComet(**NETWORK, threshold=Quantile(0.05), gaps=ForwardFill(3)).fit(waves(300))


def readings(rows=None, times=SECONDS):
    chosen = range(len(FRESH)) if rows is None else rows
    return [Reading(i + 1, FRESH[i].tolist(), times[i]) for i in chosen]


def answers(session, some):
    return [answer for reading in some for answer in session.take(reading)]


def gates(detector, late="refuse"):
    """A new gate of each kind."""
    return {"clock": Clock(late=late), "grid": Grid(MINUTE, detector.names_, late)}


# -- answers --------------------------------------------------------------------------------------------------------


def test_a_session_with_a_clock_answers_like_the_batch(strict):
    session = Session(strict, Clock())
    found = answers(session, readings())
    assert_answers_like_the_batch(found, strict)
    assert "imputed" not in found[0]
    assert all("step" in answer and "events" in answer and "time" not in answer for answer in session.finish())


def test_every_reading_is_answered_at_once(strict):
    session = Session(strict, Clock())
    for number, reading in enumerate(readings()):
        (answer,) = session.take(reading)
        assert answer["step"] == number


def test_a_network_answers_like_the_batch_too(network):
    session = Session(network, Clock())
    assert_answers_like_the_batch([*answers(session, readings()), *session.finish()], network)


def assert_answers_like_the_batch(found, detector):
    assert [answer["step"] for answer in found] == list(range(len(FRESH)))
    assert [answer["time"] for answer in found] == SECONDS
    np.testing.assert_array_equal([answer["alert_score"] for answer in found], detector.step_scores(FRESH).alerts)
    np.testing.assert_array_equal([answer["anomaly"] for answer in found], detector.predict(FRESH))
    above = [answer["alert_score"] > answer["threshold"] for answer in found]
    assert above == [bool(answer["anomaly"]) for answer in found]
    assert 0 < sum(above) < len(above)


def test_a_session_with_a_grid_answers_like_the_resampled_batch(lenient):
    session = Session(lenient, gates(lenient)["grid"])
    found = [*answers(session, readings()), *session.finish()]
    times = np.array(SECONDS) * 1_000_000
    bins = resample(Series(FRESH, lenient.names_, times.astype("datetime64[us]"), named=True), "60s", "mean")
    found = [answer for answer in found if "time" in answer]  # without one that closes an event at the end
    np.testing.assert_array_equal([answer["alert_score"] for answer in found], lenient.step_scores(bins.values).alerts)
    assert [answer["time"][:19] for answer in found] == [str(time)[:19] for time in bins.times]
    assert {answer["imputed"] for answer in found} == {0}


def test_the_variables_of_an_answer_are_its_highest_and_events_open_and_close_once(strict):
    session = Session(strict, Clock(), Alerts(min_length=2))
    found = [*answers(session, readings()), *session.finish()]
    for answer in found[: len(FRESH)]:
        assert len(answer["variables"]) == 3
        assert list(answer["variables"].values()) == sorted(answer["variables"].values(), reverse=True)
    changes = [change for answer in found for change in answer.get("events", [])]
    expected = strict.events(FRESH, Alerts(min_length=2))
    assert expected
    for kind in ("opened", "closed"):
        assert [change["number"] for change in changes if change["change"] == kind] == [e.number for e in expected]


def test_missing_values_are_imputed_and_named(lenient):
    gappy = [reading._replace(values=[math.nan, *reading.values[1:]]) for reading in readings(range(60, 62))]
    session = Session(lenient, Clock())
    some = [*readings(range(60)), *gappy, *readings(range(62, 100))]
    found = [*answers(session, some), *session.finish()]
    assert found[60]["left_out"] == ["v0"]
    assert "v0" not in found[60]["variables"]
    assert found[60]["imputed"] == 0


# -- late readings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clock", "grid"])
def test_late_readings_are_dropped_and_counted_across_a_snapshot(lenient, tmp_path, kind):
    whole = Session(lenient, gates(lenient)[kind])
    expected = [*answers(whole, readings()), *whole.finish()]
    late = readings([3])
    first = Session(lenient, gates(lenient, "drop")[kind])
    found = answers(first, [*readings(range(80)), *late])
    first.save(tmp_path / "state")
    second = Session.resume(tmp_path / "state", lenient, gates(lenient, "drop")[kind])
    found += [*answers(second, [*late, *readings(range(80, len(FRESH)))]), *second.finish()]
    assert found == expected
    assert second.gate.summary()[-1] == "Dropped 2 late or repeated readings."
    assert first.gate.summary()[-1] == "Dropped 1 late or repeated readings."


@pytest.mark.parametrize(
    ("kind", "words"),
    [("clock", "Line 4: the time 60 is not after 1190"), ("grid", "belongs to a bin that is already complete")],
)
def test_late_readings_are_refused_by_default_and_change_nothing(lenient, kind, words):
    session, other = (Session(lenient, gates(lenient)[kind]) for _ in range(2))
    before = answers(session, readings(range(60)))
    assert before == answers(other, readings(range(60)))
    with pytest.raises(InputError, match=words) as caught:
        answers(session, readings([3]))
    assert is_a_sentence(str(caught.value))
    assert str(caught.value).endswith('or pass late="drop".')
    assert answers(session, readings(range(60, 90))) == answers(other, readings(range(60, 90)))


# -- snapshots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 50, 101, 159])
@pytest.mark.parametrize("kind", ["clock", "grid"])
@pytest.mark.parametrize("detector", ["lenient", "network"])
def test_a_session_resumes_from_its_snapshot(request, tmp_path, detector, kind, cut):
    alerts, lenient = Alerts(min_length=2, merge_gap=1), request.getfixturevalue(detector)
    whole = Session(lenient, gates(lenient)[kind], alerts)
    expected = [*answers(whole, readings()), *whole.finish()]
    first = Session(lenient, gates(lenient)[kind], alerts)
    found = answers(first, readings(range(cut)))
    first.save(tmp_path / "state")
    second = Session.resume(tmp_path / "state", lenient, gates(lenient)[kind], alerts)
    found += [*answers(second, readings(range(cut, len(FRESH)))), *second.finish()]
    assert found == expected


@pytest.mark.parametrize("kind", ["clock", "grid"])
def test_a_resumed_session_can_finish_without_another_reading(network, tmp_path, kind):
    first = Session(network, gates(network)[kind])
    answers(first, readings())
    first.save(tmp_path / "state")
    expected = first.finish()
    assert expected
    assert Session.resume(tmp_path / "state", network, gates(network)[kind]).finish() == expected


@pytest.mark.parametrize("gate", [lambda: Clock(), lambda: Grid(MINUTE, ["flow"])])
def test_an_unknown_date_order_in_a_snapshot_is_refused(gate):
    facts = gate().state() | {"date_order": "year-last"}
    with pytest.raises(ModelFileError, match="'date_order' is not one"):
        gate().restore(facts)


def test_a_snapshot_needs_the_same_resampling(lenient, tmp_path):
    path = tmp_path / "state"
    for saved, other in (("clock", Grid(MINUTE, lenient.names_)), ("grid", Grid(Resampling("30s"), lenient.names_))):
        session = Session(lenient, gates(lenient)[saved])
        answers(session, readings(range(30)))
        session.save(path)
        with pytest.raises(ModelFileError, match="different resampling") as caught:
            Session.resume(path, lenient, other)
        assert is_a_sentence(str(caught.value))


def test_a_snapshot_of_another_detector_or_another_file_is_refused(strict, lenient, tmp_path):
    Session(strict, Clock()).save(tmp_path / "state")
    with pytest.raises(ModelFileError, match="another detector"):
        Session.resume(tmp_path / "state", lenient, Clock())
    strict.save(tmp_path / "detector")
    with pytest.raises(ModelFileError, match="not a stream snapshot"):
        Session.resume(tmp_path / "detector", strict, Clock())


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_session_without_readings_cannot_finish(strict):
    with pytest.raises(InputError, match=r"No readings arrived\. Send at least one reading\."):
        Session(strict, Clock()).finish()


def test_a_grid_needs_a_detector_with_a_gap_rule_and_readings_with_times(strict, lenient):
    with pytest.raises(InputError, match="this detector has no gap rule"):
        Session(strict, Grid(MINUTE, strict.names_))
    with pytest.raises(InputError, match="Line 7: resampling needs a time"):
        answers(Session(lenient, Grid(MINUTE, lenient.names_)), [Reading(7, [1.0, 2.0, 3.0], None)])


# -- many readings at once ------------------------------------------------------------------------------------------


GAPPY = FRESH.copy()
GAPPY[30:33, 0] = math.nan
GAPPY[70, :2] = math.nan


def cut(values, times, sizes):
    """The readings in chunks of these sizes; the last chunk has the rest."""
    edges = [0, *np.cumsum(sizes).clip(max=len(values)).tolist(), len(values)]
    return [(values[a:b], times[a:b]) for a, b in pairwise(edges)]


def in_one(timed):
    """The parts of several results as lists, to compare them by."""
    columns = ("alert_scores", "thresholds", "flags", "variables")
    joined = {name: [row for one in timed for row in getattr(one.scored, name).tolist()] for name in columns}
    changes = [change for one in timed for change in one.scored.changes]
    return joined | {"times": [time for one in timed for time in one.times], "changes": changes}


def as_answers(timed):
    """The results of `take_many` in the words of `take`, without variables."""
    found = []
    for one in timed:
        for i, time in enumerate(one.times):
            scored = one.scored
            found.append(
                {
                    "step": scored.start + i,
                    "time": time,
                    "alert_score": float(scored.alert_scores[i]),
                    "threshold": float(scored.thresholds[i]),
                    "anomaly": int(scored.flags[i]),
                }
            )
    return found


@settings(max_examples=8)
@given(sizes=st.lists(st.integers(0, 60), max_size=8), kind=st.sampled_from(["ordered", "clock", "grid"]))
@pytest.mark.parametrize("name", ["lenient", "network"])
def test_many_readings_at_once_score_like_one_by_one(request, name, sizes, kind):
    detector = request.getfixturevalue(name)
    gate = {"ordered": Ordered, "clock": Clock, "grid": lambda: Grid(MINUTE, detector.names_)}[kind]
    alerts = Alerts(min_length=2, merge_gap=1)
    whole = Session(detector, gate(), alerts)
    rows = [Reading(i + 1, row, SECONDS[i]) for i, row in enumerate(GAPPY.tolist())]
    wanted = [answer for row in rows for answer in whole.take(row)]
    session = Session(detector, gate(), alerts)
    timed = [one for values, times in cut(GAPPY, SECONDS, sizes) for one in session.take_many(values, times)]
    kept = ("step", "time", "alert_score", "threshold", "anomaly")
    assert as_answers(timed) == [{key: answer[key] for key in kept} for answer in wanted]
    told = [(answer["step"], event) for answer in wanted for event in answer.get("events", [])]
    changes = [change for one in timed for change in one.scored.changes]
    assert [(one.step, one.kind, one.event.number) for one in changes] == [
        (step, event["change"], event["number"]) for step, event in told
    ]
    assert told


@settings(max_examples=8)
@given(at=st.integers(0, len(FRESH)), kind=st.sampled_from(["ordered", "clock", "grid"]))
@pytest.mark.parametrize("name", ["lenient", "network"])
def test_a_session_resumed_from_bytes_goes_on_to_the_bit(request, name, at, kind):
    detector = request.getfixturevalue(name)
    gate = {"ordered": Ordered, "clock": Clock, "grid": lambda: Grid(MINUTE, detector.names_)}[kind]
    whole, first = (Session(detector, gate()) for _ in range(2))
    expected = whole.take_many(GAPPY[:at], SECONDS[:at]) + whole.take_many(GAPPY[at:], SECONDS[at:])
    found = first.take_many(GAPPY[:at], SECONDS[:at])
    second = Session.resume(first.snapshot(), detector, gate())
    assert second.snapshot() == first.snapshot()
    found += second.take_many(GAPPY[at:], SECONDS[at:])
    assert in_one(found) == in_one(expected)
    assert second.snapshot() == whole.snapshot()


def test_snapshots_in_bytes_that_are_damaged_or_of_another_gate_are_refused(strict):
    session = Session(strict, Ordered())
    session.take_many(FRESH[:20], SECONDS[:20])
    content = session.snapshot()
    for bad in (b"", content[:-10], b"x" + content[1:], content[:400] + b"\0\1\2" + content[403:]):
        with pytest.raises(ModelFileError) as caught:
            Session.resume(bad, strict, Ordered())
        assert is_a_sentence(str(caught.value))
    with pytest.raises(ModelFileError, match="different resampling"):
        Session.resume(content, strict, Clock())


def test_a_snapshot_that_is_incomplete_or_contradicts_itself_is_refused(strict):
    session = Session(strict, Ordered())
    session.take_many(FRESH[:20], SECONDS[:20])
    whole = from_bytes(session.snapshot(), KIND, "", needs=())
    arrays = {name: own for name, own in whole.arrays.items() if name != "stream"}
    facts = whole.facts | {"times": [*whole.facts["times"], None]}
    for bad, words in (
        (whole._replace(arrays=arrays), "not a complete"),
        (whole._replace(facts=facts), "1 times for 0"),
    ):
        with pytest.raises(ModelFileError, match=words) as caught:
            Session.resume(to_bytes(bad), strict, Ordered())
        assert is_a_sentence(str(caught.value))


def test_a_verdict_on_an_event_counts_and_survives_a_snapshot(strict):
    session = Session(strict, Ordered(), Alerts(min_length=2))
    timed = session.take_many(FRESH, SECONDS)
    number = next(change.event.number for one in timed for change in one.scored.changes)
    assert session.verdict(number, "normal") is not None
    resumed = Session.resume(session.snapshot(), strict, Ordered(), Alerts(min_length=2))
    more, times = FRESH[90:120], [SECONDS[-1] + i + 1 for i in range(30)]
    taught = in_one(session.take_many(more, times))
    assert taught == in_one(resumed.take_many(more, times))
    plain = Session(strict, Ordered(), Alerts(min_length=2))
    plain.take_many(FRESH, SECONDS)
    assert sum(in_one(plain.take_many(more, times))["flags"]) > sum(taught["flags"])
    with pytest.raises(CometadError):
        session.verdict(999, "normal")


# -- times of many readings -----------------------------------------------------------------------------------------

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1))
ZONES = st.sampled_from(["", "Z", "+00:00", "+02:00", "-07:30", " +0200", "+02"])
SEPARATORS = st.sampled_from(["T", " ", "t", "x", "_", "  "])
ISO = st.builds(
    lambda moment, separator, zone, whole: (
        (moment.replace(microsecond=0) if whole else moment).isoformat(separator[0]).replace(separator[0], separator)
        + zone
    ),
    MOMENTS,
    SEPARATORS,
    ZONES,
    st.booleans(),
)
OTHERS = st.sampled_from(
    [
        "now",
        "2026-03-01",
        "31/12/2025",
        "01/02/2026",
        "12/31/2025",
        "20260301T120000",
        "2026-W09-7T12:00:00",
        "2026-03-01T12:00",
        "nan",
        "inf",
        "2026-03-01T24:00:00",
        "2026-03-01T12:00:60",
        "2026-03-01T12:00:00,5",
        "0",
        "7.5",
        "1e3",
        "1767139200000",
        "٢٠٢٦-03-01T12:00:00",
        "2026-03-01T12:00:00.123456789",
    ]
)
NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(10**8, 10**19), st.floats(-1e3, 2e9), st.just(math.nan), st.just(math.inf)
)
TIMES = st.one_of(
    st.lists(ISO, max_size=6), st.lists(NUMBERS, max_size=6), st.lists(st.one_of(st.none(), ISO, OTHERS, NUMBERS))
)


def read_times(read):
    try:
        return read()
    except InputError as error:
        return str(error)


@settings(max_examples=400)
@given(times=TIMES)
def test_a_time_written_like_the_one_before_is_read_as_any_other(times):
    quick, slow = StreamDates(), StreamDates()
    slow._like_before = lambda time: None
    found = read_times(lambda: list(map(quick.seconds, times, range(99))))
    assert found == read_times(lambda: list(map(slow.seconds, times, range(99))))
    assert quick.state() == slow.state()
