"""Several services on one PostgreSQL database: a stream is scored by one of them, and moves with its state."""

import asyncio
import json
import signal
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from sqlalchemy import create_engine, delete, select, text

from cometad.connect.bodies import parse_body
from cometad.connect.contract import Lost, Message, Position
from cometad.connect.intake import Connection, Intake
from cometad.serve.arrivals import Accepted
from cometad.serve.members import LOCKS
from cometad.serve.storage import history, schema
from cometad.serve.storage.history import HistoryRows
from cometad.serve.storage.store import StorageError
from serve_case import (
    START,
    Server,
    as_readings,
    database_watched,
    expected,
    faulty,
    fed,
    in_process,
    is_refusal,
    post,
    put,
    settled,
    until,
    upload,
)

VALUES = faulty(400)
READINGS = as_readings(VALUES)


@pytest.fixture
def pair(tmp_path, postgres, pump):
    """Two services on one database, with a detector."""
    database = postgres()
    with ExitStack() as stack:
        found = [stack.enter_context(in_process(tmp_path / name, database=database)) for name in ("one", "two")]
        upload(found[0][1], "pump", pump[1])
        yield found


def owner(service, stream):
    with service.store.read() as connection:
        return connection.execute(select(schema.streams.c.owner).where(schema.streams.c.name == stream)).scalar_one()


def test_a_stream_created_in_one_process_takes_readings_in_another(pair, pump):
    (one, first), (two, second) = pair
    put(first, "a")
    assert second.get("/v1/streams/a").json()["detector"] == "pump"
    post(second, "a", READINGS[:200])
    assert owner(one, "a") == two.members.id
    found = settled(first, "a", 200)
    assert found["scores"] == expected(pump[0], VALUES[:200])[0]


def test_readings_of_a_stream_that_is_new_here_do_not_keep_other_requests_waiting_for_the_database(pair):
    (_, first), (two, second) = pair
    for name in ("a", "b"):
        put(first, name)
    with database_watched(two) as waiting:
        post(second, "a", READINGS[:1])
        assert second.post("/v1/readings", json=[{"stream": "b"} | READINGS[0]]).json()["accepted"] == 1
    assert waiting == []


def test_one_process_alone_sends_the_messages_of_a_stream(pair):
    (one, first), (two, second) = pair
    put(first, "a")
    put(first, "b")
    post(second, "a", READINGS[:10])
    assert owner(one, "b") is None  # nobody has sent anything for it
    owned, free = one.streams.find("a").id, one.streams.find("b").id
    assert set(two.members.in_charge({owned, free})) == {owned}
    assert set(one.members.in_charge({owned, free})) == {free}  # the oldest one leads


def test_readings_for_a_stream_of_another_process_are_refused_with_its_name(pair):
    (one, first), (_, second) = pair
    put(first, "a")
    put(first, "b")
    post(first, "a", READINGS[:10])
    answer = second.post("/v1/streams/a/readings", json=READINGS[10:20])
    assert is_refusal(answer, 409)
    assert "scores the stream" in answer.json()["error"]
    mixed = [{"stream": name, **READINGS[10]} for name in ("a", "b")]
    taken = second.post("/v1/readings", json=mixed).json()
    assert (taken["accepted"], [line["stream"] for line in taken["refused"]]) == (1, ["a"])
    assert second.post("/v1/streams/a/pause").status_code == 409
    assert second.delete("/v1/streams/a").status_code == 409
    assert post(first, "a", READINGS[10:20])["accepted"] == 10
    assert owner(one, "a") == one.members.id


def test_a_released_stream_goes_on_elsewhere_and_back_as_if_it_had_never_moved(pair, pump):
    (one, first), (two, second) = pair
    put(first, "a")
    turns = [(one, first), (two, second), (two, second), (one, first)] * 2
    for at, (service, client) in zip(range(0, 400, 50), turns, strict=True):
        post(client, "a", READINGS[at : at + 50])
        service.sharing.release(["a"])
        assert owner(one, "a") is None
    found = settled(first, "a", 400)
    assert (found["scores"], found["thresholds"], found["flags"]) == expected(pump[0], VALUES)
    assert second.get("/v1/streams/a/events").json() == first.get("/v1/streams/a/events").json()


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_read_while_another_process_had_a_stream_is_read_again(pair, pump, dies):
    (one, first), (two, second) = pair
    fed(first, "a", VALUES[:100])
    assert two.streams.find("a").arrivals.next_seq == 100  # knows the stream as it is now
    post(first, "a", READINGS[100:200])
    settled(first, "a", 200)
    one.recorder.flush()
    if dies:
        with one.store.write() as connection:  # as others do with the dead
            connection.execute(delete(schema.members).where(schema.members.c.id == one.members.id))
    else:
        one.sharing.release(["a"])
    assert post(second, "a", READINGS[200:])["accepted"] == 200
    found = settled(second, "a", 400)
    assert (found["scores"], found["thresholds"], found["flags"]) == expected(pump[0], VALUES)


def test_a_stream_whose_first_readings_are_on_their_way_is_scored_before_it_is_released(pair, pump, monkeypatch):
    (one, first), (_, second) = pair
    put(first, "a")
    one.sharing.take("a")
    one.scorer.do(lambda: setattr(one.streams["a"].scoring, "session", None)).result()  # as after it was read from disk
    flush = one.recorder.flush

    def readings_come(*stream):
        monkeypatch.setattr(one.recorder, "flush", flush)
        post(first, "a", READINGS[:100])
        flush()

    monkeypatch.setattr(one.recorder, "flush", readings_come)
    one.sharing.release(["a"])
    assert owner(one, "a") is None
    assert one.streams.find("a").scoring.scored_seq == 100
    post(second, "a", READINGS[100:])
    assert settled(second, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def test_a_stream_is_released_only_after_readings_that_wait_behind_its_release(pair, pump):
    (one, first), (_, second) = pair
    fed(first, "a", VALUES[:50])
    stuck = threading.Event()
    one.scorer.do(lambda: stuck.wait(60))
    post(first, "a", READINGS[50:100])
    releasing = threading.Thread(target=one.sharing.release, args=[["a"]])
    releasing.start()
    until(lambda: len(one.scorer._work) == 2)
    post(first, "a", READINGS[100:150])
    until(lambda: len(one.scorer._work) == 3)
    stuck.set()
    releasing.join(60)
    assert owner(one, "a") is None
    assert one.streams.find("a").scoring.scored_seq == 150
    assert settled(second, "a", 150)["scores"] == expected(pump[0], VALUES[:150])[0]


def test_readings_that_were_dropped_while_their_stream_moved_are_scored_with_the_next_ones(pair, pump, monkeypatch):
    (one, first), _ = pair
    fed(first, "a", VALUES[:50])
    with monkeypatch.context() as patch:
        patch.setattr(one.scorer, "put", lambda work: list(work))
        post(first, "a", READINGS[50:100])
    post(first, "a", READINGS[100:])
    assert settled(first, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def test_a_stream_that_fails_while_the_database_is_away_does_not_end_the_thread_that_scores(pair, pump, monkeypatch):
    (one, first), _ = pair
    for name in ("a", "b"):
        fed(first, name, VALUES[:50])

    def away(*_):
        raise StorageError("The database is away.")

    stream = one.streams["a"]

    def fail(*_):
        stream.owned = False  # lost in this moment
        raise ValueError

    monkeypatch.setattr(one.store, "read", away)
    one.scorer.do(lambda: one.scorer._guarded(stream, fail, str)).result(60)
    assert not stream.row.paused
    stream.owned = True
    one.scorer.do(lambda: one.scorer.pause(stream, "It failed.")).result(60)
    assert stream.row.paused
    monkeypatch.setattr(one.scorer, "_guarded", away)
    one.scorer.put([Accepted(stream, HistoryRows(50, np.zeros(1), np.zeros((1, 3))), 0.0)])
    one.scorer.do(lambda: None).result(60)
    assert one.scorer.unscored == 0
    monkeypatch.undo()
    post(first, "b", READINGS[50:100])
    assert settled(first, "b", 100)["scores"] == expected(pump[0], VALUES[:100])[0]


def test_a_stream_that_is_being_released_keeps_its_scoring_when_it_is_looked_at(pair):
    (one, first), _ = pair
    fed(first, "a", VALUES[:50])
    stream = one.streams["a"]
    last = stream.scoring.last
    one.members.doubt([stream])  # as within a release
    one.describe([stream])
    assert stream.scoring.last is last


def test_a_stream_that_cannot_be_released_goes_on(pair, pump, monkeypatch):
    (one, first), _ = pair
    put(first, "a")
    post(first, "a", READINGS[:100])
    monkeypatch.setattr("cometad.serve.sharing.TRIES", 0)  # as if readings never ended
    one.sharing.release(["a"])
    post(first, "a", READINGS[100:])
    assert settled(first, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def failing_after(store, monkeypatch):
    """Let the next transaction be stored, but end with an error: the connection broke before the answer came."""
    write, left = store.write, [1]

    @contextmanager
    def broken():
        with write() as connection:
            yield connection
        if left:
            left.clear()
            raise StorageError("The connection was lost.")

    monkeypatch.setattr(store, "write", broken)


def test_readings_that_were_stored_although_the_connection_broke_do_not_stop_the_stream(pair, pump, monkeypatch):
    (one, first), _ = pair
    fed(first, "a", VALUES[:100])
    one.recorder.flush()
    failing_after(one.store, monkeypatch)
    assert first.post("/v1/streams/a/readings", json=READINGS[100:200]).status_code == 503
    assert post(first, "a", READINGS[100:300]) | {"refused": []} == {
        "accepted": 100,
        "repeated": 100,
        "dropped": 0,
        "refused": [],
    }
    post(first, "a", READINGS[300:])
    assert settled(first, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def test_a_stream_that_may_have_been_released_is_not_scored_by_two(pair, pump, monkeypatch):
    (one, first), (_, second) = pair
    fed(first, "a", VALUES[:100])
    one.recorder.flush()
    with monkeypatch.context() as patch:
        failing_after(one.store, patch)
        with pytest.raises(StorageError):
            one.members.release([one.streams["a"]])
    post(second, "a", READINGS[100:200])
    assert first.post("/v1/streams/a/readings", json=READINGS[200:]).status_code == 409
    post(second, "a", READINGS[200:])
    assert settled(second, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def test_a_stream_that_was_not_released_because_of_an_error_is_released_later(pair, pump, monkeypatch):
    (one, first), (_, second) = pair
    fed(first, "a", VALUES[:100])
    one.members.doubt([one.streams["a"]])
    monkeypatch.setattr("cometad.serve.sharing.LEFT_FOR", 0.0)
    until(lambda: owner(one, "a") is None)
    post(second, "a", READINGS[100:])
    assert settled(second, "a", 400)["scores"] == expected(pump[0], VALUES)[0]


def test_a_stream_that_was_deleted_and_made_anew_takes_readings_everywhere(pair):
    (_, first), (two, second) = pair
    put(first, "a")
    post(second, "a", READINGS[:10])
    settled(second, "a", 10)
    two.sharing.release(["a"])
    assert first.delete("/v1/streams/a").status_code == 204
    put(first, "a")
    assert post(second, "a", READINGS[:10])["accepted"] == 10


def test_a_stream_that_is_deleted_while_its_readings_come_is_gone(pair, monkeypatch):
    (one, first), _ = pair
    put(first, "a")
    post(first, "a", READINGS[:10])
    flush = one.recorder.flush

    def while_it_is_deleted(*stream):
        monkeypatch.setattr(one.recorder, "flush", flush)
        post(first, "a", READINGS[10:20])
        flush()

    monkeypatch.setattr(one.recorder, "flush", while_it_is_deleted)
    assert first.delete("/v1/streams/a").status_code == 204
    assert first.post("/v1/streams/a/readings", json=READINGS[20:30]).status_code == 404
    assert "a" not in one.streams


def test_a_row_that_was_read_before_its_stream_was_deleted_does_not_bring_it_back(pair):
    (one, first), _ = pair
    put(first, "a")
    batch = parse_body(json.dumps(READINGS[:1]).encode(), "json", "a", one.layout("a"))
    assert first.delete("/v1/streams/a").status_code == 204
    assert len(one.recorder.submit([batch]).result(60).refused) == 1
    assert one.streams.find("a") is None
    put(first, "a")
    assert one.streams.find("a") is not None


def test_a_stream_is_compared_with_what_others_made_of_it(pair):
    (_, first), (_, second) = pair
    put(first, "a")
    assert second.get("/v1/streams/a").status_code == 200
    put(first, "a", budget={"rate": 0.02})
    put(second, "a")  # what it was when this process saw it last
    assert first.get("/v1/streams/a").json()["budget"] == second.get("/v1/streams/a").json()["budget"] != {"rate": 0.02}


def test_a_process_that_was_taken_for_dead_changes_no_stream(pair):
    (one, first), (_, second) = pair
    for name in ("a", "b", "c"):
        fed(first, name, VALUES[:100])
    assert first.post("/v1/streams/c/pause").status_code == 200
    event = until(lambda: first.get("/v1/streams/a/events").json()["events"])[0]
    one.recorder.flush()
    one.members._lock.acquire()  # it does not notice
    try:
        with one.store.write() as connection:
            connection.execute(delete(schema.members).where(schema.members.c.id == one.members.id))
        for name in ("a", "b", "c"):
            post(second, name, READINGS[100:110])
        assert all(one.streams[name].owned for name in ("a", "b", "c"))
        answers = [
            first.put("/v1/streams/a", json={"detector": "pump", "budget": {"rate": 0.02}}),
            first.delete("/v1/streams/b"),
            first.post("/v1/streams/c/resume"),
        ]
    finally:
        one.members._lock.release()
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    answer = first.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"})
    assert answer.status_code in (409, 503), answer.text
    found = {one["name"]: one for one in second.get("/v1/streams").json()["streams"]}
    assert found["a"]["budget"] == {"rate": 0.01}
    assert found.keys() == {"a", "b", "c"}
    assert found["c"]["state"] == "paused"


def test_a_process_that_is_stopped_within_a_transaction_does_not_stop_the_others(pair, monkeypatch):
    monkeypatch.setattr("cometad.serve.storage.store.FROZEN", 1)
    (one, first), (_, second) = pair
    fed(first, "a", VALUES[:10])
    one.recorder.flush()

    def stop_within():
        with one.members.write(), one.members._lock:  # no sign of life
            cut(one)
            post(second, "a", READINGS[10:20])

    with pytest.raises(StorageError):  # PostgreSQL ended it
        stop_within()


def test_a_process_gives_signs_of_life_again_once_the_database_is_back(pair):
    (one, _), _ = pair
    engine = one.store.engine
    with one.members._lock:
        cut(one)
        one.store.engine = create_engine("postgresql+psycopg://127.0.0.1:1/nothing")
        for _ in range(2):
            with pytest.raises(StorageError):
                one.members._signed()
        one.store.engine = engine
        one.members._signed()  # false if the other process was quicker
        assert one.members._link is not None


def test_a_process_keeps_no_session_without_its_lock(pair):
    (one, _), (two, _) = pair
    lock = {"locks": LOCKS, "id": one.members.id}
    with one.members._lock, two.store.engine.connect() as old:  # as its own, which the server has not ended yet
        one.members._unlink()
        until(lambda: old.execute(text("SELECT pg_try_advisory_lock(:locks, :id)"), lock).scalar_one())
        assert one.members._signed()
        assert one.members._link is None
        old.execute(text("SELECT pg_advisory_unlock(:locks, :id)"), lock)
        assert one.members._signed()
        assert one.members._link is not None


def test_a_process_that_has_just_joined_is_not_taken_for_dead(pair, monkeypatch):
    (one, first), (two, second) = pair
    put(first, "a")
    stream_id, rows = one.streams.find("a").id, one.store.rows

    def join_meanwhile(statement):
        found = rows(statement)
        if not two.streams:
            post(second, "a", READINGS[:1])
        return found

    two.members.leave()
    monkeypatch.setattr(one.store, "rows", join_meanwhile)
    assert "a" not in one.members.orphans()
    two.sharing.release(["a"])
    two.members.leave()
    assert not one.members.in_charge({stream_id})
    assert owner(one, "a") == two.members.id


def test_signs_of_life_do_not_wait_for_the_scorer(pair):
    (one, first), (two, _) = pair
    fed(first, "a", VALUES[:10])
    stuck = threading.Event()
    one.scorer.do(lambda: stuck.wait(60))
    waiting = threading.Thread(target=one.sharing.release, args=[["a"]])
    waiting.start()
    try:

        def seen():
            with two.store.read() as connection:
                own = schema.members.c.id == one.members.id
                return connection.execute(select(schema.members.c.seen).where(own)).scalar_one()

        before = seen()
        until(lambda: seen() > before)
        assert waiting.is_alive()
    finally:
        stuck.set()
        waiting.join(60)


def test_a_part_is_left_with_all_that_was_on_its_way(pair, monkeypatch):
    (one, first), (two, second) = pair
    put(first, "a")
    lines = [Message(b'{"flow": %d, "level": 0, "heat": 0}' % i, str(i), "a") for i in range(20)]
    may, next_round, release = threading.Event(), one.recorder._next_round, one.sharing.release

    def held():
        while not may.is_set():
            time.sleep(0.01)
        return next_round()

    def released(names):
        release(names)
        may.set()  # what is on its way is stored now, at the worst moment
        until(lambda: not one.recorder._requests and not one.recorder._running)

    async def steps():
        mine, theirs = (Intake(service, Connection("c", "nats://x")) for service in (one, two))
        part = await mine.take_part(3)
        await part.take(lines[:10], 10)
        assert mine.connection.readings == 10
        release(["a"])
        one.sharing.take("a")  # with nothing to save
        monkeypatch.setattr(one.recorder, "_next_round", held)
        one.recorder.wake()
        monkeypatch.setattr(one.sharing, "release", released)
        task = asyncio.create_task(part.take(lines[10:], 20))
        await asyncio.sleep(0.3)
        task.cancel()
        threading.Timer(0.5, may.set).start()
        await asyncio.gather(task, return_exceptions=True)
        await mine.leave_part(part)
        assert owner(one, "a") is None
        part = await theirs.take_part(3)
        assert part.position == 20

    asyncio.run(steps())
    assert settled(second, "a", 20)["total"] == 20


def test_a_released_stream_that_nobody_took_needs_no_reading_from_disk(pair):
    (one, first), _ = pair
    fed(first, "a", VALUES[:50])
    one.sharing.release(["a"])
    known = one.streams.find("a")
    session = known.scoring.session
    post(first, "a", READINGS[50:60])
    settled(first, "a", 60)
    assert one.streams["a"] is known
    assert known.scoring.session is session


def test_a_stream_of_another_process_is_shown_as_it_is_stored(pair):
    (_, first), (_, second) = pair
    put(first, "a")
    assert second.get("/v1/streams/a").json()["state"] == "waiting"
    post(first, "a", READINGS[:10])
    post(first, "a", READINGS[10:64])
    settled(first, "a", 64)
    mine = until(lambda: (found := first.get("/v1/streams/a").json())["state"] == "event" and found)
    theirs = until(lambda: (found := second.get("/v1/streams").json()["streams"][0])["state"] == "event" and found)
    for field in ("readings", "score", "threshold", "open_event", "last_time"):
        assert theirs[field] == mine[field], field


def test_changes_of_a_stream_are_known_everywhere(pair):
    (one, first), (two, second) = pair
    put(first, "a")
    post(first, "a", READINGS[:50])
    one.sharing.release(["a"])
    assert put(second, "a", budget={"rate": 0.02})["budget"] == {"rate": 0.02}
    assert first.get("/v1/streams/a").json()["budget"] == {"rate": 0.02}
    assert second.post("/v1/streams/a/pause").status_code == 200
    assert first.get("/v1/streams/a").json()["state"] == "paused"
    assert first.post("/v1/streams/a/resume").status_code == 200
    assert second.delete("/v1/streams/a").status_code == 204
    assert first.get("/v1/streams/a").status_code == 404
    upload(second, "other", upload_content(two))
    put(first, "b", detector="other")


def upload_content(service):
    with service.store.read() as connection:
        return connection.execute(select(schema.detectors.c.content)).scalars().first()


def cut(service):
    """End the session that holds the lock of a process, as a broken network would."""
    holder = text(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = :locks AND objid::int = :id"
    )
    with service.store.write() as connection:
        pid = connection.execute(holder, {"locks": LOCKS, "id": service.members.id}).scalar_one()
        connection.execute(text("SELECT pg_terminate_backend(:pid, 60000)"), {"pid": pid})  # once it has ended


def test_a_process_without_its_lock_loses_its_streams_and_writes_nothing_more(pair, pump):
    (one, first), (_, second) = pair
    put(first, "a")
    put(first, "b")
    for name in ("a", "b"):
        post(first, name, READINGS[:100])
        settled(first, name, 100)
    one.members._lock.acquire()  # no sign of life until the other process has noticed
    before, old = one.members.id, one.streams["a"]
    cut(one)
    until(lambda: second.post("/v1/streams/a/readings", json=READINGS[100:200]).status_code == 200)
    assert old.owned
    one.members._lock.release()
    answer = first.post("/v1/streams/a/readings", json=READINGS[150:300])  # 100 to 150 would be missing
    assert answer.status_code == 409, answer.text
    assert not old.owned
    assert one.members.id not in (before, None)
    assert post(first, "b", READINGS[100:200])["accepted"] == 100
    post(second, "a", READINGS[200:])
    assert settled(second, "a", 400)["scores"] == expected(pump[0], VALUES)[0]
    assert settled(second, "b", 200)["scores"] == expected(pump[0], VALUES[:200])[0]


def test_a_process_that_loses_its_lock_for_a_moment_keeps_its_streams(pair, monkeypatch):
    (one, first), (two, _) = pair
    monkeypatch.setattr(two.members, "_bury", lambda: None)  # it does not look in that moment
    put(first, "a")
    post(first, "a", READINGS[:50])
    before = one.members.id
    cut(one)
    assert one.members._signed()
    assert post(first, "a", READINGS[50:100])["accepted"] == 50
    assert one.members.id == before


def test_two_processes_that_join_the_chunks_of_a_stream_at_once_lose_none(pair, monkeypatch):
    (one, first), (two, _) = pair
    put(first, "a")
    for i in range(8):
        post(first, "a", READINGS[10 * i : 10 * i + 10])
    stream_id, neighbors = one.streams["a"].id, history._neighbors

    def join(store, before):
        with store.write() as connection:
            history.join_chunks(connection, schema.readings, stream_id, before)

    others = threading.Thread(target=join, args=[two.store, 80])

    def meanwhile(chunks):
        monkeypatch.setattr(history, "_neighbors", neighbors)
        others.start()
        others.join(0.5)
        return neighbors(chunks)

    monkeypatch.setattr(history, "_neighbors", meanwhile)
    join(one.store, 50)
    others.join(60)
    with one.store.read() as connection:
        rows = connection.execute(
            select(schema.readings.c.first, schema.readings.c.count).order_by(schema.readings.c.first)
        )
        assert [i for first, count in rows for i in range(first, first + count)] == list(range(80))


def test_parts_of_a_source_are_divided_and_left(pair):
    (one, _), (two, _) = pair

    async def steps():
        assert await one.share("c", 5) == 5
        assert await two.share("c", 5) == 2
        assert await one.share("c", 5) == 3
        assert await one.take_part("c", 0)
        assert not await two.take_part("c", 0)
        await one.leave_part("c", 0, ())
        assert await two.take_part("c", 0)
        assert not await one.take_part("c", 0)

    asyncio.run(steps())


def test_a_position_is_written_only_by_the_process_that_reads_the_part(pair):
    (one, first), (two, _) = pair
    put(first, "a")
    lines = [Message(b'{"flow": %d, "level": 0, "heat": 0}' % i, str(i), "a") for i in range(20)]

    async def steps():
        mine, theirs = (Intake(service, Connection("c", "nats://x")) for service in (one, two))
        part = await mine.take_part(3)
        await part.take(lines[:10], 10)
        assert mine.connection.readings == 10
        assert two.position("c/3") == 10
        assert await theirs.take_part(3) is None
        with pytest.raises(Lost, match="Another process reads part 3"):
            await two.receive([], Position("c", 99, 3))
        await mine.leave_part(part)
        part = await theirs.take_part(3)
        assert part.position == 10
        await part.take(lines[10:], 20)
        assert theirs.connection.readings == 10
        assert one.position("c/3") == 20

    asyncio.run(steps())
    assert settled(first, "a", 20)["total"] == 20


def test_a_killed_process_leaves_its_streams_to_the_others(tmp_path, postgres, pump):
    database = postgres()
    with (
        Server(tmp_path / "killed", f"--database={database}") as server,
        in_process(tmp_path / "other", database=database) as (other, client),
    ):
        upload(server.client, "pump", pump[1])
        put(server.client, "a")
        post(server.client, "a", READINGS[:150])
        assert client.post("/v1/streams/a/readings", json=READINGS[150:]).status_code == 409
        server.kill()
        until(lambda: client.post("/v1/streams/a/readings", json=READINGS[150:]).status_code == 200)
        found = settled(client, "a", 400)
        assert found["scores"] == expected(pump[0], VALUES)[0]
        assert found["times"][0] == START
        assert other.members.alone


def test_a_process_that_was_alone_when_it_was_killed_scores_what_it_had_stored(tmp_path, postgres, pump):
    with Server(tmp_path, f"--database={postgres()}") as server:
        upload(server.client, "pump", pump[1])
        put(server.client, "a")
        post(server.client, "a", READINGS[:150])
        server.kill()
        server.start()
        assert settled(server.client, "a", 150)["scores"] == expected(pump[0], VALUES[:150])[0]


def test_a_stopped_process_that_wakes_up_writes_nothing_for_streams_that_moved(tmp_path, postgres, pump, monkeypatch):
    monkeypatch.setattr("cometad.serve.members.DEAD_AFTER", 3.0)
    database = postgres()
    with (
        Server(tmp_path / "stopped", f"--database={database}") as server,
        in_process(tmp_path / "other", database=database) as (_, client),
    ):
        upload(server.client, "pump", pump[1])
        put(server.client, "a")
        post(server.client, "a", READINGS[:150])
        server.process.send_signal(signal.SIGSTOP)
        until(lambda: client.post("/v1/streams/a/readings", json=READINGS[150:200]).status_code == 200)
        server.process.send_signal(signal.SIGCONT)
        answer = server.client.post("/v1/streams/a/readings", json=READINGS[220:300])
        assert answer.status_code == 409, answer.text
        post(client, "a", READINGS[200:])
        assert settled(client, "a", 400)["scores"] == expected(pump[0], VALUES)[0]
        assert server.stop() == 0


def dead_before_scoring(service, client):
    """Let a process take readings of "a" and look dead before it scores them; set the event to let it go on."""
    put(client, "a")
    stuck = threading.Event()
    service.scorer.do(lambda: stuck.wait(60))
    post(client, "a", READINGS[:100])
    with service.store.write() as connection:
        connection.execute(schema.members.delete().where(schema.members.c.id == service.members.id))
    return stuck


def test_readings_that_a_dead_process_had_not_scored_are_scored_by_another(pair, pump, monkeypatch):
    monkeypatch.setattr("cometad.serve.sharing.LEFT_FOR", 0.0)
    (one, first), (two, second) = pair
    stuck = dead_before_scoring(one, first)
    assert settled(second, "a", 100)["scores"] == expected(pump[0], VALUES[:100])[0]
    until(lambda: owner(two, "a") is None)
    stuck.set()


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_stream_that_is_taken_without_new_readings_is_scored_as_far_as_it_is_stored(pair, pump, is_paused):
    (one, first), (_, second) = pair
    stuck = dead_before_scoring(one, first)
    if is_paused:
        until(lambda: second.post("/v1/streams/a/pause").status_code == 200)
    else:
        assert post(second, "a", READINGS[:100])["repeated"] == 100
    assert settled(second, "a", 100)["scores"] == expected(pump[0], VALUES[:100])[0]
    stuck.set()


def test_a_stream_is_known_even_if_it_was_looked_up_just_before_it_was_created(pair, monkeypatch):
    (one, first), _ = pair
    load = one.streams.load

    def create_meanwhile(which):
        found = load(which)
        monkeypatch.setattr(one.streams, "load", load)
        put(first, "a")
        return found

    monkeypatch.setattr(one.streams, "load", create_meanwhile)
    assert one.streams.find("a") is None
    assert one.streams.find("a") is not None
