"""JetStream of a real nats-server: readings reach their streams once and in order, whoever is killed."""

import pytest

from broker_case import bodies, fed, problems_of, scored
from cometad.connect.address import Address
from cometad.connect.source import source_of
from cometad.errors import ParameterError
from cometad.serve.sources import rejected
from contract import is_a_sentence
from serve_case import faulty, until
from servers.nats import NatsServer, running_nats

VALUES = faulty(300)


@pytest.fixture(scope="module")
def nats_server():
    with running_nats() as server:
        yield server


def test_messages_become_scores_and_what_cannot_be_used_is_set_aside(nats_server, service, pump):
    with fed(service, f"{nats_server.url}/FIRST?subject=first.*&parts=4") as connection:
        until(lambda: connection.state == "connected")
        good = bodies(VALUES)
        for name in ("a", "b"):
            nats_server.publish([(f"first.{name}", body) for body in good[:100]])
        nats_server.publish(
            [("first.a", b"on fire"), ("first.nobody", good[0]), ("first.x", b'{"stream": "b", "flow": 1}')]
        )
        nats_server.publish([(f"first.{name}", body) for body in good[100:] for name in ("a", "b")])
        for name in ("a", "b"):
            scored(service, name, 300)
        assert (connection.readings, connection.set_aside) == (600, 3)
    for name in ("a", "b"):
        assert problems_of(service.store, name, VALUES, pump[0]) == []
    found = rejected(service.store, "broker", 10)
    assert sorted((one.stream, one.place.split(", ")[1].split(".")[-1]) for one in found) == [
        ("a", "a"),
        ("b", "x"),
        ("nobody", "nobody"),
    ]
    assert all(is_a_sentence(one.reason) for one in found)
    infos = nats_server.do(lambda js: js.consumers_info("FIRST"))
    assert [(one.name, one.num_pending, one.num_ack_pending) for one in infos] == [
        (f"cometad-{i}", 0, 0) for i in range(4)
    ]


def test_readings_without_times_are_taken_once_although_nothing_was_acknowledged(nats_server, service, pump):
    url = f"{nats_server.url}/AGAIN?subject=again.*"
    with fed(service, url):
        until(lambda: "AGAIN" in nats_server.do(names))
        nats_server.publish([("again.a", body) for body in bodies(VALUES[:100], timed=False)])
        scored(service, "a", 100)

    async def forget(js):
        for one in await js.consumers_info("AGAIN"):  # as if no acknowledgement had reached the server
            await js.reset_consumer("AGAIN", one.name, seq=1)

    nats_server.do(forget)
    with fed(service, url):
        nats_server.publish([("again.a", body) for body in bodies(VALUES[100:], timed=False)])
        scored(service, "a", 300)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


async def names(js):
    return [one.config.name for one in await js.streams_info()]


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


def test_a_server_that_is_killed_and_started_again_goes_on_by_itself(tmp_path, service, pump):
    try:
        server = NatsServer(tmp_path).start()
    except LookupError as error:
        pytest.skip(str(error))
    good = bodies(VALUES)
    with fed(service, f"{server.url}/READINGS?subject=readings.*&parts=2") as connection:
        until(lambda: connection.state == "connected")
        server.publish([("readings.a", body) for body in good[:150]])
        scored(service, "a", 150)
        server.kill()
        until(lambda: connection.state == "lost")
        assert is_a_sentence(connection.reason)
        server.start()
        until(lambda: connection.state == "connected")
        server.publish([("readings.a", body) for body in good[150:]])
        scored(service, "a", 300)
    server.kill()
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


def test_a_server_that_freezes_is_lost_and_found_again(tmp_path, service, pump, monkeypatch):
    monkeypatch.setattr("cometad.connect.nats.ANSWER", 1.0)
    try:
        server = NatsServer(tmp_path).start()
    except LookupError as error:
        pytest.skip(str(error))
    try:
        with fed(service, f"{server.url}/READINGS?subject=readings.*&parts=2") as connection:
            until(lambda: connection.state == "connected")
            server.freeze()
            until(lambda: connection.state == "lost")
            assert "does not respond" in connection.reason
            server.freeze(False)
            until(lambda: connection.state == "connected")
            server.publish([("readings.a", body) for body in bodies(VALUES)])
            scored(service, "a", 300)
    finally:
        server.freeze(False)
        server.kill()
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1",
        "nats:///READINGS",
        "nats://127.0.0.1/TWO.WORDS",
        "nats://127.0.0.1/READINGS?parts=0",
        "nats://127.0.0.1/READINGS?parts=4",
        "nats://127.0.0.1/READINGS?start=yesterday",
        "nats://127.0.0.1/READINGS?group=a.b",
        "nats://127.0.0.1/READINGS?subjects=readings",
    ],
)
def test_a_wrong_url_is_refused_in_a_sentence(url):
    with pytest.raises(ParameterError) as caught:
        source_of(Address(url))
    assert is_a_sentence(str(caught.value))


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
    try:
        server = NatsServer(tmp_path, config or "", jetstream)
    except LookupError as error:
        pytest.skip(str(error))
    if config is not None:
        server.start()
    with fed(service, f"{server.url}/{path}", **options) as connection:
        until(lambda: connection.state == state)
        assert said in connection.reason
        assert is_a_sentence(connection.reason)
    if config is not None:
        server.kill()
