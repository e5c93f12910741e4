"""What a connector may rely on: everything it took is on disk, bad messages are set aside, a lost source comes back."""

import asyncio
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad.connect.bodies import parse_body, parse_messages
from cometad.connect.contract import Busy, Lost, Message, Receipt, Refusal, UnknownStream
from cometad.connect.intake import Connection, Intake
from cometad.connect.source import supervise
from cometad.data.text import Layout
from cometad.errors import InputError
from contract import is_a_sentence

LAYOUT = Layout(["flow", "level"], named=True)


class Shelf:
    """A receiver that keeps what it takes, and is busy now and then."""

    def __init__(self, busy=0):
        self.busy, self.rows, self.aside, self.positions = busy, [], [], {}

    def layout(self, stream):
        if stream != "pump":
            raise UnknownStream(stream)
        return LAYOUT

    def last_time(self, stream):
        return None

    def position(self, connection):
        return self.positions.get(connection)

    async def receive(self, batches, position=None):
        if self.busy:
            self.busy -= 1
            raise Busy(seconds=0)
        receipt = Receipt()
        for batch in batches:
            for row, line in zip(batch.values.tolist(), batch.lines, strict=True):
                if row[0] < 0:
                    receipt.refused.append(Refusal(line, batch.stream, "It is negative."))
                else:
                    self.rows.append(row)
                    receipt.accepted += 1
        if position is not None:
            self.positions[position.connection] = position.content
        return receipt

    async def reject(self, connection, messages):
        self.aside += messages


def intake(shelf, changed=lambda one: None):
    return Intake(shelf, Connection("test", "test://here", {"pump"}), changed)


def message(body, where="here", stream="pump"):
    return Message(body if isinstance(body, bytes) else json.dumps(body).encode(), where, stream)


def test_messages_are_taken_in_order_and_bad_ones_are_set_aside_with_their_reasons():
    shelf = Shelf()
    messages = [
        message({"flow": 1, "level": 2}),
        message(b"on fire", "topic 7"),
        message([{"flow": 3, "level": 4}, {"flow": 5, "level": 6}]),
        message({"flow": "high", "level": 4}, "topic 8"),
        message({"flow": 1, "level": 2}, "topic 9", stream="fan"),
        message({"flow": -1, "level": 2}, "topic 10"),
    ]
    taker = intake(shelf)
    asyncio.run(taker.take(messages))
    assert shelf.rows == [[1, 2], [3, 4], [5, 6]]
    assert [one.where for one in shelf.aside] == ["topic 7", "topic 8", "topic 9", "topic 10"]
    assert all(is_a_sentence(one.reason) for one in shelf.aside)
    assert shelf.aside[0].content == b"on fire"
    assert (taker.connection.readings, taker.connection.set_aside) == (3, 4)


def test_the_receipt_of_messages_that_were_taken_in_halves_counts_them_all():
    class Small(Shelf):
        async def receive(self, batches, position=None):
            if sum(len(one.lines) for one in batches) > 2:
                raise InputError("These are too many.")
            return await super().receive(batches, position)

    good = {"flow": 1, "level": 2}
    bodies = [good, good, b"on fire", [good, good, good], {"flow": -1, "level": 2}, good]
    receipt = asyncio.run(intake(Small()).take([message(body) for body in bodies], 6))
    assert receipt.accepted == 3
    assert [one.line for one in receipt.refused] == [3, 4, 5]


def test_a_busy_receiver_gets_the_readings_once_it_has_room():
    shelf = Shelf(busy=3)
    asyncio.run(intake(shelf).take([message({"flow": 1, "level": 2})]))
    assert shelf.rows == [[1, 2]]


def test_a_long_message_is_set_aside_without_its_end():
    shelf = Shelf()
    asyncio.run(intake(shelf).take([message(b"x" * 100_000)]))
    assert len(shelf.aside[0].content) == 4096


def test_a_lost_source_is_run_again_and_its_state_is_seen():
    states, runs = [], iter(range(10))

    class Flaky:
        async def run(self, intake):
            if next(runs) < 2:
                raise Lost("The broker is away.")
            intake.connected()
            await intake.take([message({"flow": 1, "level": 2})])

    shelf = Shelf()
    asyncio.run(supervise(Flaky(), intake(shelf, lambda one: states.append(one.state))))
    assert states == ["lost", "connecting", "lost", "connecting", "connected"]
    assert shelf.rows == [[1, 2]]


def test_a_stream_that_does_not_exist_is_a_state_and_no_message_is_taken(monkeypatch):
    monkeypatch.setattr("cometad.connect.source.LONGEST_WAIT", 0.0)
    states, asked = [], []

    class Never:
        async def run(self, intake):
            asked.append(1)

    shelf = Shelf()
    known = Intake(
        shelf, Connection("test", "test://here", {"fan"}), lambda one: states.append((one.state, one.reason))
    )

    async def briefly():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(supervise(Never(), known), 0.1)

    asyncio.run(briefly())
    assert ("failed", "There is no stream 'fan'. Create it with PUT /v1/streams/fan.") in states
    assert not asked


CELLS = st.one_of(st.floats(-5, 5), st.sampled_from([None, "x", True]))
READINGS = st.dictionaries(st.sampled_from(["flow", "level", "note"]), CELLS, max_size=3)
BODIES = st.one_of(
    READINGS.map(lambda one: json.dumps(one).encode()),
    st.lists(READINGS, max_size=3).map(lambda some: json.dumps(some).encode()),
    st.sampled_from([b"", b"[", b"{}", b"7", b'{"flow": 1},{"flow": 2}', b'{"flow":1,"flow":2,"level":1}', b"\xff"]),
)


@given(st.lists(BODIES, max_size=6))
@settings(max_examples=200)
def test_messages_together_are_parsed_like_each_by_itself(bodies):
    batches, refused = parse_messages([message(body) for body in bodies], lambda name: LAYOUT)
    rows, bad = [], set()
    for number, body in enumerate(bodies, 1):
        try:
            items = json.loads(body)
        except ValueError:
            items = None
        parts = items if isinstance(items, list) and items else [None]
        for part in parts:
            one = body if not isinstance(items, list) or not items else json.dumps(part).encode()
            try:
                rows += [(number, row) for row in parse_body(one, "json", "pump", LAYOUT).values.tolist()]
            except InputError:
                bad.add(number)
    found = [(line, row) for batch in batches for line, row in zip(batch.lines, batch.values.tolist(), strict=True)]
    assert found == rows
    assert {one.line for one in refused} == bad


def test_a_position_is_kept_with_the_readings():
    shelf = Shelf()
    taker = intake(shelf)
    batch = parse_body(b'{"flow": 1, "level": 2}', "json", "pump", LAYOUT)
    asyncio.run(taker.deliver([batch], position={"offset": 7}))
    assert taker.position == {"offset": 7}
    np.testing.assert_array_equal(shelf.rows, [[1, 2]])
