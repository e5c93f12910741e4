"""Several services on one PostgreSQL database: a stream is scored by one of them, and moves with its state."""

import asyncio
import signal
import threading
from contextlib import ExitStack

import pytest
from sqlalchemy import delete, select, text

from cometad.connect.contract import Lost, Position
from cometad.connect.intake import Connection, Intake, Message
from cometad.serve.several.ownership import LOCKS
from cometad.serve.storage import schema
from cometad.serve.storage.store import StorageError
from serve_case import (
    START,
    Server,
    as_readings,
    expected,
    faulty,
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
    assert owner(one, "a") == two.ownership.id
    found = settled(first, "a", 200)
    assert found["scores"] == expected(pump[0], VALUES[:200])[0]


def test_one_process_alone_sends_the_messages_of_a_stream(pair):
    (one, first), (two, second) = pair
    put(first, "a")
    put(first, "b")
    post(second, "a", READINGS[:10])
    until(lambda: {"a", "b"} <= two.streams.keys() and owner(one, "b") is None)  # it is idle, so it was released
    owned, free = one.streams["a"].id, one.streams["b"].id
    assert set(two.ownership.in_charge({owned, free})) == {owned}
    assert set(one.ownership.in_charge({owned, free})) == {free}  # the oldest one leads


def test_readings_for_a_stream_of_another_process_are_refused_with_its_name(pair):
    (one, first), (_, second) = pair
    put(first, "a")
    put(first, "b")
    post(first, "a", READINGS[:10])
    answer = second.post("/v1/streams/a/readings", json=READINGS[10:20])
    assert answer.status_code == 409
    assert is_refusal(answer)
    assert "is scored by the process" in answer.json()["error"]
    mixed = [{"stream": name, **READINGS[10]} for name in ("a", "b")]
    taken = second.post("/v1/readings", json=mixed).json()
    assert (taken["accepted"], [line["stream"] for line in taken["refused"]]) == (1, ["a"])
    assert second.post("/v1/streams/a/pause").status_code == 409
    assert second.delete("/v1/streams/a").status_code == 409
    assert post(first, "a", READINGS[10:20])["accepted"] == 10
    assert owner(one, "a") == one.ownership.id


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
    put(first, "a")
    post(first, "a", READINGS[:100])
    settled(first, "a", 100)
    two.sharing.refresh()  # knows the stream as it is now
    assert two.streams["a"].arrivals.next_seq == 100
    post(first, "a", READINGS[100:200])
    settled(first, "a", 200)
    one.recorder.flush()
    if dies:
        with one.store.write() as connection:  # as others do with the dead
            connection.execute(delete(schema.members).where(schema.members.c.id == one.ownership.id))
    else:
        one.sharing.release(["a"])
    assert post(second, "a", READINGS[200:])["accepted"] == 200
    found = settled(second, "a", 400)
    assert (found["scores"], found["thresholds"], found["flags"]) == expected(pump[0], VALUES)


def test_a_released_stream_that_nobody_took_needs_no_reading_from_disk(pair):
    (one, first), _ = pair
    put(first, "a")
    post(first, "a", READINGS[:50])
    settled(first, "a", 50)
    one.sharing.release(["a"])
    known = one.streams["a"]
    session = known.session
    post(first, "a", READINGS[50:60])
    settled(first, "a", 60)
    assert one.streams["a"] is known
    assert known.session is session


def test_a_stream_of_another_process_is_shown_as_it_is_stored(pair):
    (_, first), (_, second) = pair
    put(first, "a")
    assert second.get("/v1/streams/a").json()["state"] == "waiting"
    post(first, "a", READINGS[:64])
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
    one.sharing.refresh()
    assert first.get("/v1/streams/a").json()["budget"] == {"rate": 0.02}
    assert second.post("/v1/streams/a/pause").status_code == 200
    one.sharing.refresh()
    assert first.get("/v1/streams/a").json()["state"] == "paused"
    assert first.post("/v1/streams/a/resume").status_code == 200
    assert second.delete("/v1/streams/a").status_code == 204
    one.sharing.refresh()
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
        pid = connection.execute(holder, {"locks": LOCKS, "id": service.ownership.id}).scalar_one()
        connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def test_a_process_without_its_lock_loses_its_streams_and_writes_nothing_more(pair, pump):
    (one, first), (_, second) = pair
    put(first, "a")
    put(first, "b")
    for name in ("a", "b"):
        post(first, name, READINGS[:100])
        settled(first, name, 100)
    one.ownership._lock.acquire()  # no sign of life until the other process has noticed
    before, old = one.ownership.id, one.streams["a"]
    cut(one)
    until(lambda: second.post("/v1/streams/a/readings", json=READINGS[100:200]).status_code == 200)
    assert old.owned
    one.ownership._lock.release()
    answer = first.post("/v1/streams/a/readings", json=READINGS[150:300])  # 100 to 150 would be missing
    assert answer.status_code == 409, answer.text
    assert old.gone
    assert one.ownership.id not in (before, None)
    assert post(first, "b", READINGS[100:200])["accepted"] == 100
    post(second, "a", READINGS[200:])
    assert settled(second, "a", 400)["scores"] == expected(pump[0], VALUES)[0]
    assert settled(second, "b", 200)["scores"] == expected(pump[0], VALUES[:200])[0]


def test_a_process_that_loses_its_lock_for_a_moment_keeps_its_streams(pair):
    (one, first), _ = pair
    put(first, "a")
    post(first, "a", READINGS[:50])
    before = one.ownership.id
    cut(one)
    assert one.ownership._signed()
    assert post(first, "a", READINGS[50:100])["accepted"] == 50
    assert one.ownership.id == before


def test_a_process_that_is_stopped_within_a_transaction_does_not_stop_the_others(pair, monkeypatch):
    monkeypatch.setattr("cometad.serve.storage.store.FROZEN", 1)
    (one, first), (_, second) = pair
    put(first, "a")
    post(first, "a", READINGS[:10])
    settled(first, "a", 10)
    one.recorder.flush()

    def stop_within():
        with one.store.write() as connection:
            one.ownership.fence(connection)
            cut(one)
            with one.ownership._lock:  # no sign of life
                post(second, "a", READINGS[10:20])

    with pytest.raises(StorageError):  # PostgreSQL ended it
        stop_within()


def test_a_part_is_left_with_all_that_was_on_its_way(pair, monkeypatch):
    (one, first), (two, second) = pair
    put(first, "a")
    lines = [Message(b'{"flow": %d, "level": 0, "heat": 0}' % i, str(i), "a") for i in range(20)]
    may, wait_for_work, release = threading.Event(), one.recorder._wait_for_work, one.sharing.release

    def held():
        while not may.is_set():
            one.recorder._wake.wait(0.01)
        wait_for_work()

    def released(names):
        release(names)
        may.set()  # what is on its way is stored now, at the worst moment
        until(lambda: not one.recorder._requests and not one.recorder._busy)

    async def steps():
        mine, theirs = (Intake(service, Connection("c", "nats://x")) for service in (one, two))
        part = await mine.take_part(3)
        assert (await part.take(lines[:10], 10)).accepted == 10
        release(["a"])
        one.sharing.take(one.streams["a"])  # with nothing to save
        monkeypatch.setattr(one.recorder, "_wait_for_work", held)
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
        assert (await part.take(lines[:10], 10)).accepted == 10
        assert two.position("c/3") == 10
        assert await theirs.take_part(3) is None
        with pytest.raises(Lost, match="Another process reads part 3"):
            await two.receive([], Position("c", 99, 3))
        await mine.leave_part(part)
        part = await theirs.take_part(3)
        assert part.position == 10
        assert (await part.take(lines[10:], 20)).accepted == 10
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
        assert other.ownership.alone


def test_a_stopped_process_that_wakes_up_writes_nothing_for_streams_that_moved(tmp_path, postgres, pump, monkeypatch):
    monkeypatch.setattr("cometad.serve.several.ownership.DEAD_AFTER", 3.0)
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


def test_readings_that_a_dead_process_had_not_scored_are_scored_by_another(pair, pump, monkeypatch):
    monkeypatch.setattr("cometad.serve.several.sharing.LEFT_FOR", 0.0)
    (one, first), (two, second) = pair
    put(first, "a")
    stuck = threading.Event()
    one.scorer.do(lambda: stuck.wait(60))
    post(first, "a", READINGS[:100])
    with two.store.write() as connection:  # as if it had died
        connection.execute(schema.members.delete().where(schema.members.c.id == one.ownership.id))
    two.sharing.tick()
    assert settled(second, "a", 100)["scores"] == expected(pump[0], VALUES[:100])[0]
    assert owner(two, "a") is None
    stuck.set()
