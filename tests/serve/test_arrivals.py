"""Which readings are new, repeated or late: against a plain list of the readings before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_serve
from cometad import Comet
from cometad.connect.contract import ReadingBatch, Receipt
from cometad.serve.arrivals import admit
from cometad.serve.live_stream import LiveStream, StreamRow
from cometad.serve.models import StreamSettings
from contract import is_a_sentence

TIMES = st.one_of(st.floats(0, 20), st.integers(0, 20).map(float))
READING = st.tuples(st.one_of(TIMES, TIMES, TIMES, TIMES, st.none()), st.one_of(st.none(), st.integers(0, 20)))
UNTIMED = st.tuples(st.none(), st.one_of(st.none(), st.integers(0, 20)))
RISING = st.lists(TIMES, min_size=1, unique=True).map(lambda times: [(time, None) for time in sorted(times)])
BATCHES = st.lists(
    st.one_of(RISING, st.lists(READING, min_size=1, max_size=6), st.lists(UNTIMED, min_size=1, max_size=4)), max_size=5
)


def stream_of(late="refuse"):
    return LiveStream(StreamRow(1, "s", StreamSettings(detector="d", late=late)), detector=Comet(), layout=None)


def batch_of(readings, first=0):
    times, sequences = zip(*readings, strict=True)
    values = np.arange(first, first + len(readings), dtype=float)[:, None]
    return ReadingBatch("s", ["flow"], values, times, sequences, list(range(1, len(readings) + 1)))


def admitted_of(stream, batch, received, known=lambda at: False):
    receipt = Receipt()
    return admit(batch, stream, stream.arrivals, received, known, receipt), receipt


@settings(max_examples=400)
@given(
    batches=BATCHES, clock=st.lists(st.floats(0, 20), min_size=5, max_size=5), late=st.sampled_from(["refuse", "drop"])
)
def test_readings_are_admitted_like_one_by_one(batches, clock, late):
    stream, naive = stream_of(late), naive_serve.Stream(late)
    known, rows, first = [], [], 0
    for readings, received in zip(batches, clock, strict=False):
        wanted = [naive.take(time, sequence, received) for time, sequence in readings]
        admitted, receipt = admitted_of(stream, batch_of(readings, first), received, known.__contains__)
        known += admitted.ats.tolist()
        rows += admitted.values[:, 0].tolist()
        counts = receipt.accepted, receipt.repeated, receipt.dropped, len(receipt.refused)
        assert counts == tuple(map(wanted.count, ("accepted", "repeated", "dropped", "refused")))
        assert [one.line - 1 for one in receipt.refused] == [i for i, what in enumerate(wanted) if what == "refused"]
        assert all(is_a_sentence(one.reason) for one in receipt.refused)
        kept = [i for i, what in enumerate(wanted) if what == "accepted"]
        assert rows[len(rows) - len(kept) :] == [first + i for i in kept]
        assert admitted.last_time == (readings[kept[-1]][0] if kept else None)
        first += len(readings)
    assert known == naive.ats
    arrivals = stream.arrivals
    assert arrivals.next_seq == len(naive.ats)
    assert (arrivals.last_sequence, arrivals.timed) == (naive.last_sequence, naive.timed)
    assert arrivals.last_at == (naive.ats[-1] if naive.ats else None)


def test_a_bad_time_refuses_its_reading_only():
    stream = stream_of()
    readings = [("2026-03-01T12:00:00Z", None), ("noon", None), (7.5, None), ("2026-03-01T12:00:01Z", None)]
    admitted, receipt = admitted_of(stream, batch_of(readings), 1772366400.0)
    assert admitted.ats.tolist() == [1772366400.0, 1772366401.0]
    assert [one.line for one in receipt.refused] == [2, 3]
    assert admitted.last_time == "2026-03-01T12:00:01Z"


@pytest.mark.parametrize("others", [[], [("2026-03-01T12:00:02Z", None), ("2026-03-01T12:00:01Z", None)]])
def test_a_time_far_ahead_does_not_make_all_others_late(others):
    stream = stream_of()
    readings = [("2026-03-01T12:00:00Z", None), *others, ("2062-03-01T12:00:00Z", None)]
    _, receipt = admitted_of(stream, batch_of(readings), 1772366400.0)
    assert stream.arrivals.last_at < 1772366410
    assert receipt.refused[-1].line == len(readings)
    assert "more than a day ahead" in receipt.refused[-1].reason
    later, receipt = admitted_of(stream, batch_of([("2026-03-01T12:00:03Z", None)]), 1772366403.0)
    assert receipt.accepted == len(later.ats) == 1


def test_a_reading_that_is_refused_does_not_decide_how_times_are_written():
    stream = stream_of()
    _, receipt = admitted_of(stream, batch_of([(9e9, None)]), 1772366400.0)
    assert len(receipt.refused) == 1
    _, receipt = admitted_of(stream, batch_of([("2026-03-01T12:00:00Z", None)]), 1772366400.0)
    assert receipt.accepted == 1


def test_the_times_of_readings_without_any_never_go_back():
    stream = stream_of()
    ats = []
    for received in (10.0, 9.0, 11.0, 3.0):
        admitted, _ = admitted_of(stream, batch_of([(None, None)]), received)
        ats += admitted.ats.tolist()
    assert ats == [10.0, 10.0, 11.0, 11.0]


@pytest.mark.parametrize(("resample", "time"), [(None, 1e300), (None, -1e16), ("2s:mean", 1e13), ("2s:mean", -1e11)])
def test_times_that_nothing_can_show_are_refused_at_the_door(resample, time):
    stream = stream_of()
    stream.change(settings=StreamSettings(detector="d", resample=resample))
    stream.arrivals.dates.seconds(0.0, 1)
    for readings in ([(time, None)], [(time, 1)]):
        admitted, receipt = admitted_of(stream, batch_of(readings), 0.0)
        assert len(admitted.ats) == 0
        assert [one.line for one in receipt.refused] == [1]
        assert is_a_sentence(receipt.refused[0].reason)
