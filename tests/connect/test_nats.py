"""JetStream of a real nats-server: readings reach their streams once and in order, whoever is killed."""

import pytest

from broker_case import bodies, fed, problems_of, scored
from cometad.serve.sources import rejected
from contract import is_a_sentence
from serve_case import faulty, until
from servers.nats import NatsServer, running_nats

VALUES = faulty(300)


@pytest.fixture(scope="module")
def nats_server():
    with running_nats() as server:
        yield server


def test_readings_may_name_their_stream_and_everything_is_acknowledged(nats_server, service, pump):
    with fed(service, f"{nats_server.url}/NAMED?subject=named.*&parts=4") as connection:
        until(lambda: connection.state == "connected")
        nats_server.publish([("named.x", b'{"stream": "b", "flow": 1}'), ("named.b", bodies(VALUES)[0])])
        scored(service, "b", 1)
        until(lambda: connection.set_aside == 1)
    (found,) = rejected(service.store, "broker", 10)
    assert found.stream == "b"
    assert found.where.endswith(".x")

    def waiting():
        infos = nats_server.do(lambda js: js.consumers_info("NAMED"))
        return [(one.name, one.num_pending, one.num_ack_pending) for one in infos]

    until(lambda: waiting() == [(f"cometad-{i}", 0, 0) for i in range(4)])  # acknowledged after the commit


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_streams_that_delete_what_was_acknowledged_are_read_as_well(nats_server, service, pump, retention):
    name = retention.upper()
    config = {"name": name, "subjects": [f"{retention}.*"], "retention": retention}
    nats_server.do(lambda js: js.add_stream(**config))
    good = bodies(VALUES)
    for first in (0, 150):
        with fed(service, f"{nats_server.url}/{name}") as connection:
            until(lambda: connection.state == "connected")
            until(lambda: nats_server.do(lambda js: js.consumers_info(name)))
            nats_server.publish([(f"{retention}.a", body) for body in good[first : first + 150]])
            scored(service, "a", first + 150)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


def test_a_server_that_freezes_is_lost_and_found_again(tmp_path, service, pump, monkeypatch):
    monkeypatch.setattr("cometad.connect.nats.ANSWER", 1.0)
    with (
        NatsServer(tmp_path) as server,
        fed(service, f"{server.url}/READINGS?subject=readings.*&parts=2") as connection,
    ):
        until(lambda: connection.state == "connected")
        server.freeze()
        until(lambda: connection.state == "lost")
        assert "does not respond" in connection.reason
        server.freeze(False)
        until(lambda: connection.state == "connected")
        server.publish([("readings.a", body) for body in bodies(VALUES)])
        scored(service, "a", 300)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


ALLOWED = 'permissions: { publish: ["_INBOX.>"], subscribe: ["_INBOX.>"] }'


@pytest.mark.parametrize(
    ("config", "jetstream", "path", "options", "state", "said"),
    [
        ("", True, "NONE", {}, "failed", "There is no JetStream stream 'NONE'"),
        ("", False, "R?subject=r.*", {}, "failed", "has no JetStream"),
        (
            "authorization { user: me, password: right }",
            True,
            "R?subject=r.*",
            {"user": "me"},
            "failed",
            "refused the login",
        ),
        (
            f"authorization {{ users: [ {{ user: me, password: right, {ALLOWED} }} ] }}",
            True,
            "R?subject=r.*",
            {"user": "me", "password_variable": "NATS_RIGHT"},
            "failed",
            "ermissions",
        ),
        (None, True, "R?subject=r.*", {}, "lost", "No NATS server responds"),
    ],
)
def test_what_only_a_person_can_mend_is_said_in_a_sentence(
    tmp_path, service, monkeypatch, config, jetstream, path, options, state, said
):
    monkeypatch.setenv("NATS_RIGHT", "right")
    monkeypatch.setattr("cometad.connect.nats.ANSWER", 1.0)
    server = NatsServer(tmp_path, config or "", jetstream)
    if config is not None:
        server.start()
    with fed(service, f"{server.url}/{path}", **options) as connection:
        until(lambda: connection.state == state)
        assert said in connection.reason
        assert is_a_sentence(connection.reason)
    server.stop()
