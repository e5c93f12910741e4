"""The real server, killed under load and started again: nothing acknowledged is lost, nothing is scored twice."""

import itertools
import json
import signal
import threading
import time
from contextlib import ExitStack

import httpx
import pytest

from serve_case import (
    WAIT,
    Server,
    as_readings,
    expected,
    faulty,
    in_process,
    post,
    put,
    settled,
    until,
    upload,
)

ROWS, BATCH = 1600, 20
VALUES = faulty(ROWS)
READINGS = as_readings(VALUES)
STREAMS = ("a", "b")
SAME = ("number", "start", "stop", "peak", "steps", "peak_score", "threshold", "severity", "variables", "state")


class Sender(threading.Thread):
    """Sends the readings of a stream in order; after a failure, it sends the same again."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.url = stream, None
        self.acknowledged, self.broken = 0, 0
        self.ended = threading.Event()

    def run(self):
        with httpx.Client(timeout=WAIT, trust_env=False) as client:
            while self.acknowledged < ROWS and not self.ended.is_set():
                self._send(client)

    def _send(self, client):
        part = READINGS[self.acknowledged : self.acknowledged + BATCH]
        try:
            answer = client.post(f"{self.url}/v1/streams/{self.stream}/readings", json=part)
        except httpx.TransportError:
            self.broken += 1
            self.ended.wait(0.1)
            return
        assert answer.status_code == 200, answer.text
        taken = answer.json()
        assert taken["accepted"] + taken["repeated"] == len(part), taken
        self.acknowledged += len(part)


def told(client, stream):
    """Scores and events of a stream, to compare."""
    found = settled(client, stream, ROWS)
    events = client.get(f"/v1/streams/{stream}/events?limit=1000").json()["events"]
    return found, [{name: event[name] for name in SAME} for event in events]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, pump):
    """What a service gives that nobody stops."""
    with in_process(tmp_path_factory.mktemp("whole")) as (_, client):
        upload(client, "pump", pump[1])
        put(client, "a")
        for at in range(0, ROWS, 1000):
            post(client, "a", READINGS[at : at + 1000])
        settled(client, "a", ROWS)
        until(lambda: client.get("/v1/streams/a").json()["events"] > 5)
        found, events = told(client, "a")
    assert (found["total"], len(events) > 5) == (ROWS, True)
    return found, events


def killed_and_started(server, kills, pump, uninterrupted):
    senders = [Sender(name) for name in STREAMS]
    with server, ExitStack() as ends:
        for sender in senders:
            ends.callback(sender.ended.set)
        upload(server.client, "pump", pump[1])
        for name in STREAMS:
            put(server.client, name)
        for sender in senders:
            sender.url = server.url
            sender.start()
        for number in range(1, kills + 1):
            share = ROWS * number // (kills + 1)
            until(lambda share=share: min(sender.acknowledged for sender in senders) >= share, 60)
            server.kill()
            before = [sender.acknowledged for sender in senders]
            server.start()
            for sender, least in zip(senders, before, strict=True):
                sender.url = server.url
                kept = server.client.get(f"/v1/streams/{sender.stream}").json()["readings"]
                assert kept >= least, "a reading was acknowledged and lost"
        for sender in senders:
            sender.join(60)
            assert sender.acknowledged == ROWS
        for name in STREAMS:
            assert server.client.get(f"/v1/streams/{name}").json()["readings"] == ROWS
            found, events = told(server.client, name)
            assert {**found, "stream": "a"} == uninterrupted[0]
            assert events == uninterrupted[1]
        assert server.stop() == 0
    assert all(sender.broken for sender in senders)


def test_killing_the_server_under_load_loses_and_doubles_nothing(tmp_path, pump, uninterrupted):
    killed_and_started(Server(tmp_path), 5, pump, uninterrupted)


def test_killing_the_server_on_postgresql_loses_and_doubles_nothing(tmp_path, pump, uninterrupted, postgres):
    killed_and_started(Server(tmp_path, f"--database={postgres()}"), 1, pump, uninterrupted)


def test_verdicts_survive_a_kill_and_are_applied_again_where_they_were_given(tmp_path, pump):
    values = VALUES[:600]
    rows = READINGS[:600]
    given = {150: ("normal", 1), 250: (None, 1), 350: ("fault", 2), 450: ("normal", 1)}
    edges = [0, *given, 600]

    def fed(client, part):
        post(client, "v", part)
        settled(client, "v", rows.index(part[-1]) + 1)

    def said(client, verdict, number):
        event = until(lambda: [e for e in client.get("/v1/streams/v/events").json()["events"] if e["number"] == number])
        answer = client.post(f"/v1/events/{event[0]['id']}/verdict", json={"verdict": verdict})
        assert answer.status_code == 200, answer.text
        assert answer.json()["verdict"] == verdict

    with in_process(tmp_path / "whole") as (_, client):
        upload(client, "pump", pump[1])
        put(client, "v")
        for start, stop in itertools.pairwise(edges):
            fed(client, rows[start:stop])
            if stop in given:
                said(client, *given[stop])
        wanted = settled(client, "v", 600)
    assert wanted["scores"] != expected(pump[0], values)[0]

    with Server(tmp_path) as server:
        upload(server.client, "pump", pump[1])
        put(server.client, "v")
        for start, stop in itertools.pairwise(edges):
            fed(server.client, rows[start:stop])
            if stop in given:
                said(server.client, *given[stop])
                if stop in (150, 350):
                    server.kill()
                    server.start()
        assert settled(server.client, "v", 600) == wanted
        verdicts = {e["number"]: e["verdict"] for e in server.client.get("/v1/streams/v/events").json()["events"]}
        assert (verdicts[1], verdicts[2]) == ("normal", "fault")


def test_a_signal_to_stop_ends_with_everything_scored_and_stored(tmp_path, pump):
    secret = "postgres-password-or-token"
    rows = READINGS[:2000]
    with Server(tmp_path) as server:
        upload(server.client, "pump", pump[1])
        put(server.client, "s")
        lines = []

        def listen():
            own = httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False)
            with own, own.stream("GET", "/v1/live") as answer:
                for line in answer.iter_lines():
                    lines.append(line)  # seen by the test at once

        listener = threading.Thread(target=listen)
        listener.start()
        server.client.get(f"/v1/streams/s?token={secret}", headers={"authorization": f"Bearer {secret}"})
        until(lambda: "cometad_listeners 1.0" in server.client.get("/metrics").text)
        post(server.client, "s", rows[:500])
        until(lambda: any(line.startswith("event: scores") for line in lines))
        for at in range(500, 2000, 500):
            post(server.client, "s", rows[at : at + 500])
        begun = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begun < WAIT
        listener.join(10)
        assert not listener.is_alive()
    with in_process(tmp_path / "data") as (_, client):
        found = client.get("/v1/streams/s/scores?points=5000").json()
    assert found["scores"] == expected(pump[0], VALUES[:2000])[0]
    logs = server.logs.read_text().splitlines()
    for line in logs:
        assert {"event", "level", "timestamp"} <= set(json.loads(line))
    events = [json.loads(line)["event"] for line in logs]
    assert events[0] == "listening"
    assert events[-1] == "stopped"
    assert "request" in events
    assert secret not in server.logs.read_text()
    assert "Traceback" not in server.logs.read_text()
