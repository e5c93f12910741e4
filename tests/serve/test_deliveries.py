"""Events go to receivers at least once, in order and signed; a dead receiver holds up nobody; nothing gets lost."""

import base64
import hashlib
import hmac
import socket
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from sqlalchemy import func, select, update

from cometad.errors import ParameterError
from cometad.serve.notify import outbox, receivers
from cometad.serve.notify.outbox import KEEP_DAYS
from cometad.serve.server import plan
from cometad.serve.service import Service
from cometad.serve.settings import NotifySettings, Settings
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store
from contract import is_a_sentence
from serve_case import (
    Server,
    as_readings,
    expected,
    faulty,
    in_process,
    is_refusal,
    plant,
    post,
    put,
    settled,
    until,
    upload,
)
from servers.webhook import hook

VALUES = faulty(300)  # three events
KEY = "a secret of the test"
EVENT_OPEN = 80  # readings up to the middle of the first event


@pytest.fixture
def receiver():
    with hook() as found:
        yield found


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("cometad.connect.contract.FIRST_WAIT", 0.05)
    monkeypatch.setattr(receivers, "LONGEST_WAIT", 0.2)


@pytest.fixture
def serving(tmp_path, pump):
    """Start services that tell receivers about the events of streams; the same folder each time."""

    def start(*receivers, **settings):
        return in_process(tmp_path, notify=list(receivers), **settings)

    def ready(client, *streams):
        upload(client, "pump", pump[1])
        for stream in streams:
            put(client, stream)

    start.ready = ready
    return start


def listed(client, query=""):
    return client.get(f"/v1/deliveries?limit=1000&{query}").json()["deliveries"]


def all_delivered(client, count):
    return until(lambda: len(listed(client, "state=delivered")) >= count and not listed(client, "state=waiting"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def told(receiver):
    return [(one["event"], one["change"]) for one in receiver.taken]


EVENTS = [(f"1-{number}", change) for number in (1, 2, 3) for change in ("opened", "closed")]


def test_a_webhook_hears_of_each_change_once_signed_and_with_what_was_expected(serving, receiver, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + base64.b64encode(KEY.encode()).decode())
    settings = {"name": "chat", "url": receiver.url, "secret_variable": "HOOK_SECRET"}
    with serving(settings, public_url="https://plant.example/cometad/") as (_service, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES))
        all_delivered(client, 6)
        events = {event["id"]: event for event in client.get("/v1/streams/pump/events").json()["events"]}
        details = client.get("/v1/events/1-1").json()
        figures = client.get("/metrics").text
    assert sorted(told(receiver)) == sorted(EVENTS)
    for number in (1, 2, 3):
        changes = [change for event, change in told(receiver) if event == f"1-{number}"]
        assert changes == ["opened", "closed"]
    for path, headers, body in receiver.requests:
        assert path == "/hook"
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.digest(KEY.encode(), signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"
        assert abs(time.time() - int(headers["webhook-timestamp"])) < 600
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 6
    closed = next(one for one in receiver.taken if (one["event"], one["change"]) == ("1-1", "closed"))
    assert closed["link"] == "https://plant.example/cometad/#/events/1-1"
    assert (closed["stream"], closed["detector"]) == ("pump", "pump")
    for name in ("start_time", "stop_time", "severity", "threshold", "closed_at"):
        assert closed[name] == events["1-1"][name], name
    assert closed["score"] == events["1-1"]["peak_score"]
    (first, *_) = closed["variables"]
    assert first["sentence"] == details["explanation"]["variables"][0]["sentence"]
    assert abs(first["observed"] - first["expected"]) > 3  # a fault of 6
    assert first["name"] in closed["message"]
    assert closed["link"] in closed["message"]
    assert 'cometad_deliveries_total{receiver="chat",result="delivered"} 6.0' in figures


def test_a_receiver_that_fails_is_tried_again_with_the_same_id(serving, receiver, no_waiting):
    receiver.answers = [500, 503, 429]
    with serving({"name": "chat", "url": receiver.url}) as (_, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        all_delivered(client, 2)
        attempts = {one["change"]: one["attempts"] for one in listed(client)}
    assert told(receiver) == EVENTS[:2]
    ids = [headers["webhook-id"] for _, headers, _ in receiver.requests]
    assert len(ids) == 5
    assert len(set(ids[:4])) == 1
    assert attempts == {"opened": 4, "closed": 1}


def test_a_dead_receiver_holds_up_neither_scoring_nor_other_receivers(serving, receiver, no_waiting, pump):
    port = free_port()
    dead = {"name": "dead", "url": f"webhook+http://127.0.0.1:{port}/"}
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections and never answers
        silent = {"name": "mute", "url": f"webhook+http://127.0.0.1:{mute.getsockname()[1]}/", "timeout": 300}
        with serving(silent, dead, {"name": "well", "url": receiver.url}) as (_service, client):
            serving.ready(client, "pump")
            post(client, "pump", as_readings(VALUES))
            assert settled(client, "pump", len(VALUES))["scores"] == expected(pump[0], VALUES)[0]
            until(lambda: len(receiver.taken) == 6)
            waiting = until(lambda: [one for one in listed(client, "receiver=dead") if one["attempts"] > 1])
            assert is_a_sentence(waiting[0]["error"])
            assert "cannot be reached" in waiting[0]["error"]
            states = {one["name"]: one for one in client.get("/v1/deliveries").json()["receivers"]}
            assert (states["dead"]["waiting"], states["mute"]["waiting"], states["well"]["delivered"]) == (6, 6, 6)
            assert 'cometad_deliveries_waiting{receiver="dead"} 6.0' in client.get("/metrics").text
            with hook(port) as revived:
                until(lambda: len(revived.taken) == 6)
                assert sorted(told(revived)) == sorted(EVENTS)


def test_a_receiver_that_hears_of_open_events_again_after_an_outage_is_well(serving, no_waiting):
    with hook() as alertmanager:
        url = alertmanager.url.replace("webhook", "alertmanager") + "?resend=0.1"
        with serving({"name": "alerts", "url": url}) as (_, client):
            serving.ready(client, "pump")
            post(client, "pump", as_readings(VALUES[:EVENT_OPEN]))
            all_delivered(client, 1)

            def state():
                (found,) = client.get("/v1/deliveries").json()["receivers"]
                return found

            alertmanager.always = 500
            assert "status 500" in until(lambda: state()["error"])
            alertmanager.always = None
            until(lambda: state()["error"] is None)
            post(client, "pump", as_readings(VALUES[:120])[EVENT_OPEN:])  # it is told of the end at once
            all_delivered(client, 2)


def test_deliveries_that_are_stopped_right_after_their_start_end(serving, receiver, tmp_path):
    for _ in range(10):
        with closing(Service(Settings(data_dir=tmp_path, notify=[{"name": "chat", "url": receiver.url}]))) as service:
            service.notifications.start()
            service.notifications.stop()
            assert "cometad-deliveries" not in {one.name for one in threading.enumerate()}


def test_killing_the_service_between_an_event_and_its_delivery_loses_nothing(tmp_path, pump):
    port = free_port()
    file = tmp_path / "cometad.toml"
    file.write_text(f'[[notify]]\nname = "chat"\nurl = "webhook+http://127.0.0.1:{port}/hook"\n')
    server = Server(tmp_path, f"--config={file}")
    with server:
        upload(server.client, "pump", pump[1])
        put(server.client, "pump")
        post(server.client, "pump", as_readings(VALUES))
        until(lambda: len(listed(server.client)) == 6)
        server.kill()
        server.start()
        before = {one["message"]: (one["event"], one["change"]) for one in listed(server.client)}
        assert sorted(before.values()) == sorted(EVENTS)
        with hook(port) as receiver:
            server.client.post("/v1/deliveries/retry?receiver=chat").raise_for_status()
            until(lambda: len(receiver.taken) >= 3)
            server.kill()  # some may have been taken and not noted: they come again, with the same id
            server.start()
            all_delivered(server.client, 6)
    assert set(told(receiver)) == set(EVENTS)
    assert {headers["webhook-id"] for _, headers, _ in receiver.requests} == set(before)
    for one in receiver.taken:
        assert before[one["id"]] == (one["event"], one["change"])
    assert receiver.taken[0]["link"].startswith("http://127.0.0.1:")


def test_messages_are_delivered_from_postgresql(tmp_path, pump, receiver, no_waiting, postgres):
    receiver.answers = [500]
    notify = [{"name": "chat", "url": receiver.url, "max_age_hours": 1e6}]
    with in_process(tmp_path, notify=notify, database=postgres()) as (service, client):
        upload(client, "pump", pump[1])
        put(client, "pump")
        post(client, "pump", as_readings(VALUES))
        all_delivered(client, 6)
        assert sorted(told(receiver)) == sorted(EVENTS)
        service.notifications.outbox.forget_old()
        assert client.post("/v1/deliveries/retry?receiver=chat").json() == {"count": 0}
        assert service.notifications.outbox.still_open("chat") == []


def test_a_message_that_is_refused_is_given_up_listed_and_sent_once_somebody_asks(serving, receiver, no_waiting):
    receiver.always = 401
    with serving({"name": "chat", "url": receiver.url}) as (_, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        given_up = until(lambda: [one for one in listed(client, "state=undelivered") if one["change"] == "closed"])
        assert is_a_sentence(given_up[0]["error"])
        assert "status 401" in given_up[0]["error"]
        assert given_up[0]["attempts"] == receivers.REFUSALS
        assert given_up[0]["next_attempt"] is None
        receiver.always = None
        assert client.post(f"/v1/deliveries/{given_up[0]['id']}/retry").json() == {"count": 1}
        until(lambda: told(receiver) == [("1-1", "closed")])
        assert client.post("/v1/deliveries/retry?receiver=chat").json() == {"count": 1}
        until(lambda: told(receiver) == [("1-1", "closed"), ("1-1", "opened")])
        all_delivered(client, 2)
        assert client.post(f"/v1/deliveries/{given_up[0]['id']}/retry").json() == {"count": 0}
        for path in ("/v1/deliveries/999/retry", "/v1/deliveries/retry?receiver=nobody"):
            answer = client.post(path)
            assert is_refusal(answer, 404)


def test_a_redirect_is_not_followed_with_a_signed_message(serving, receiver, no_waiting, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", KEY)
    receiver.always = 307
    with serving({"name": "chat", "url": receiver.url, "secret_variable": "HOOK_SECRET"}) as (_, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        failed = until(lambda: [one for one in listed(client) if one["attempts"] > 1])
        assert "redirect" in failed[0]["error"]
    assert {path for path, _, _ in receiver.requests} == {"/hook"}


def test_messages_are_given_up_after_some_hours_and_kept_in_the_list(serving, no_waiting):
    dead = {"name": "dead", "url": f"webhook+http://127.0.0.1:{free_port()}/", "give_up_hours": 1}
    with serving(dead) as (service, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        until(lambda: len(listed(client, "state=waiting")) == 2)
        with service.store.write() as connection:
            connection.execute(update(schema.deliveries).values(since=time.time() - 3700))
        until(lambda: len(listed(client, "state=undelivered")) == 2)
        assert 'cometad_deliveries_undelivered{receiver="dead"} 2.0' in client.get("/metrics").text
        month = time.time() - (KEEP_DAYS + 1) * 86_400
        with service.store.write() as connection:
            connection.execute(update(schema.deliveries).where(schema.deliveries.c.id == 1).values(done_at=month))
        service.notifications.outbox.forget_old()
        assert len(listed(client)) == 1


def weak_then_strong(rows=300):
    """A weak event, and one that is weak at first and then strong."""
    values = plant(rows, seed=1)
    values[60:66] += 0.8
    values[160:164] += 0.8
    values[164:168] += 6
    return values


def test_a_notice_is_listed_and_sent_only_once_it_has_become_an_alert(serving, receiver):
    values = weak_then_strong()
    with serving({"name": "chat", "url": receiver.url}) as (_, client):
        serving.ready(client)
        put(client, "pump", alert_from=0.9)
        post(client, "pump", as_readings(values[:163]))
        settled(client, "pump", 163)
        events = until(lambda: client.get("/v1/events?level=notice").json()["events"][1:] and client.get("/v1/events"))
        assert [(one["number"], one["state"], one["level"]) for one in events.json()["events"]] == [
            (2, "open", "notice"),
            (1, "closed", "notice"),
        ]
        assert 'anomaly_event_open{stream="pump"} 1.0' in client.get("/metrics").text
        assert 'anomaly_alert_open{stream="pump"} 0.0' in client.get("/metrics").text
        post(client, "pump", as_readings(values[163:166], first=163))
        until(lambda: told(receiver) == [("1-2", "opened")])
        assert 'anomaly_alert_open{stream="pump"} 1.0' in client.get("/metrics").text
        post(client, "pump", as_readings(values[166:], first=166))
        all_delivered(client, 2)
        assert [one["number"] for one in client.get("/v1/streams/pump/events?level=alert").json()["events"]] == [2]
    assert told(receiver) == [("1-2", "opened"), ("1-2", "closed")]
    assert all(one["level"] == "alert" and one["meaning"] in one["message"] for one in receiver.taken)


def test_a_receiver_chooses_streams_and_severities(serving, receiver):
    woken = {"name": "phone", "url": receiver.url, "streams": ["pump", "fan"], "min_severity": 0.9}
    chat = {"name": "chat", "url": receiver.url, "streams": ["pum?", "mill-*"], "alert_from": 0.0}
    with serving(chat, woken) as (_, client):
        serving.ready(client, "pump", "fan")
        for stream in ("pump", "fan"):
            post(client, stream, as_readings(weak_then_strong()))
        all_delivered(client, 8)
        sent = {(one["receiver"], one["event"]) for one in listed(client)}
        assert sent == {("chat", "1-1"), ("chat", "1-2"), ("phone", "1-2"), ("phone", "2-2")}


def test_a_new_level_is_told_with_its_beginning_and_asks_for_a_verdict(serving, receiver):
    with serving({"name": "chat", "url": receiver.url}) as (_, client):
        serving.ready(client)
        put(client, "pump", longest=5)
        post(client, "pump", as_readings(VALUES[:64]))
        post(client, "pump", as_readings(VALUES[64:90], first=64))
        all_delivered(client, 2)
        (event,) = client.get("/v1/events").json()["events"]
    closed = receiver.taken[-1]
    assert (event["state"], event["new_level"], closed["new_level"]) == ("closed", True, True)
    assert "New level since 12:01 UTC" in closed["message"]
    assert "verdict" in closed["message"]
    assert "verdict" not in receiver.taken[0]["message"]


def test_events_of_old_readings_are_not_told_if_the_receiver_says_so(serving, receiver):
    with serving({"name": "chat", "url": receiver.url, "max_age_hours": 1}) as (service, client):
        serving.ready(client, "old", "new")
        post(client, "old", as_readings(VALUES[:120]))
        settled(client, "old", 120)
        start = time.time() - 300
        post(client, "new", as_readings(VALUES[:64], start=start))
        until(lambda: told(receiver) == [("2-1", "opened")])
        (known,) = service.notifications.outbox.receivers
        known.max_age_hours = 1e-6  # as if the stream had fallen behind
        post(client, "new", as_readings(VALUES[64:300], first=64, start=start))
        until(lambda: told(receiver) == [("2-1", "opened"), ("2-1", "closed")])
        settled(client, "new", 300)
        assert {(one["event"], one["change"]) for one in listed(client)} == {("2-1", "opened"), ("2-1", "closed")}


def test_an_event_that_ends_with_new_settings_is_told_as_closed(serving, receiver):
    with serving({"name": "chat", "url": receiver.url}) as (_, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:64]))
        until(lambda: told(receiver) == EVENTS[:1])
        put(client, "pump", min_length=3)
        until(lambda: told(receiver) == EVENTS[:2])
        client.delete("/v1/streams/pump").raise_for_status()
        assert listed(client) == []


def test_what_waits_for_a_receiver_that_was_removed_is_listed_as_undelivered(serving, receiver):
    with serving({"name": "old", "url": f"webhook+http://127.0.0.1:{free_port()}/"}) as (_, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        until(lambda: len(listed(client, "state=waiting")) == 2)
    with serving({"name": "new", "url": receiver.url}) as (_, client):
        found = listed(client, "state=undelivered")
        assert [one["receiver"] for one in found] == ["old", "old"]
        assert "no longer in cometad.toml" in found[0]["error"]


def test_changes_that_come_twice_are_told_once(serving, receiver):
    with serving({"name": "chat", "url": receiver.url}) as (service, client):
        serving.ready(client, "pump")
        post(client, "pump", as_readings(VALUES[:120]))
        all_delivered(client, 2)
        with service.store.write() as connection:
            events = connection.execute(select(schema.events)).mappings().all()
            service.notifications.outbox.write(connection, [dict(event) for event in events])
            assert connection.execute(select(func.count()).select_from(schema.deliveries)).scalar_one() == 2


def test_an_example_is_sent_at_once_or_refused_with_the_reason(serving, receiver):
    dead = {"name": "dead", "url": f"webhook+http://127.0.0.1:{free_port()}/"}
    with serving({"name": "chat", "url": receiver.url}, dead) as (_, client):
        assert client.post("/v1/deliveries/test?receiver=chat").json() == {"count": 1}
        assert receiver.taken[0]["stream"] == "example"
        for name, status in (("dead", 502), ("nobody", 404)):
            answer = client.post(f"/v1/deliveries/test?receiver={name}")
            assert answer.status_code == status
            assert is_refusal(answer)
        receiver.always = 401
        answer = client.post("/v1/deliveries/test?receiver=chat")
        assert answer.status_code == 502
        assert "Check its credentials" in answer.json()["error"]


# -- templates and settings -----------------------------------------------------------------------------------------


def test_a_template_writes_the_message(serving, receiver, tmp_path):
    inline = '{"text": {{ (stream ~ " " ~ change ~ " " ~ start_time | time ~ " " ~ link) | tojson }}}'
    file = tmp_path / "message.j2"
    file.write_text(
        '{"names": [{% for one in variables %}{{ one.name | tojson }}{{ "," if not loop.last }}{% endfor %}]}'
    )
    first = {"name": "a", "url": receiver.url, "template": inline, "headers": {"x-team": "plant ${TEAM}"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEAM", "seven")
        with serving(first, {"name": "b", "url": receiver.url, "template_file": str(file)}) as (_, client):
            serving.ready(client, "pump")
            post(client, "pump", as_readings(VALUES[:64]))
            all_delivered(client, 2)
    text = next(one["text"] for one in receiver.taken if "text" in one)
    assert text.startswith("pump opened 2026-03-01T12:01:0")
    assert "#/events/1-1" in text
    assert set(next(one["names"] for one in receiver.taken if "names" in one)) == {"flow", "level", "heat"}
    assert any(headers.get("x-team") == "plant seven" for _, headers, _ in receiver.requests)


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"url": "slack://plant"}, "Unknown receiver 'slack'"),
        ({"url": "plant"}, "is not a URL"),
        ({"url": "webhook+http:///hook"}, "names no host"),
        ({"url": "webhook+http://a:b@plant/"}, "contains a password"),
        ({"secret_variable": "NOT_SET_ANYWHERE"}, "'chat' needs the environment variable 'NOT_SET_ANYWHERE'"),
        ({"headers": {"authorization": "Bearer ${NOT_SET_ANYWHERE}"}}, "NOT_SET_ANYWHERE"),
        ({"url": None, "url_variable": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
        ({"template": "{{ stream"}, "template of the receiver 'chat' is invalid"),
        ({"template": "{{ no_such_field }}"}, "'no_such_field' is undefined"),
        ({"template": "{{ ''.__class__.__mro__ }}"}, "template of the receiver 'chat' is invalid"),
        ({"template": "{{ message }}"}, "does not produce JSON"),
        ({"template_file": "no-such-file.j2"}, "Cannot read 'no-such-file.j2'"),
        ({"url": "alertmanager+http://plant/?resend=often"}, "resend must be a number"),
        ({"url": "alertmanager+http://plant/?again=5"}, "Unknown option of alertmanager+http 'again'"),
    ],
)
def test_a_bad_receiver_is_refused_at_the_start_in_one_sentence(tmp_path, bad, words):
    good = {"name": "chat", "url": "webhook+http://127.0.0.1/"}
    with pytest.raises(ParameterError) as caught:
        Service(Settings(data_dir=tmp_path, notify=[good | bad]))
    assert is_a_sentence(str(caught.value))
    assert words in str(caught.value)


def test_a_check_names_the_receivers_without_their_secrets(tmp_path):
    chat = {"name": "chat", "url": "webhook+https://chat.example/hooks/a1b2c3"}
    copy = {"name": "copy", "url": "remote-write+http://prometheus:9090/api/v1/write"}
    *_, told, written = plan(Settings(data_dir=tmp_path, notify=[chat, copy]))
    assert told == "It would tell 'chat' at webhook+https://chat.example about events."
    assert written == "It would send scores to 'copy' at remote-write+http://prometheus:9090/api/v1/write."


def test_two_receivers_of_one_name_are_refused(tmp_path):
    chat = {"name": "chat", "url": "webhook+http://127.0.0.1/"}
    with pytest.raises(ParameterError, match="Two receivers have the name 'chat'"):
        Service(Settings(data_dir=tmp_path, notify=[chat, chat]))


def test_streams_have_figures_of_their_own_only_up_to_a_number(serving):
    with serving(max_stream_series=1) as (_, client):
        serving.ready(client, "a")
        assert 'anomaly_event_open{stream="a"} 0.0' in client.get("/metrics").text
        put(client, "b")
        assert "anomaly_event_open{" not in client.get("/metrics").text


def test_messages_that_another_process_sends_do_not_hide_our_own(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "LOOKED_AT", 5)
    hook = NotifySettings(name="hook", url="webhook+http://127.0.0.1/")
    known = {i: SimpleNamespace(name=name) for i, name in enumerate(("theirs", "ours"))}
    streams = SimpleNamespace(by_id=lambda ids: {i: known[i] for i in ids})
    alert = {"level": "alert", "severity": 1.0, "stop_at": None, "closed_at": None}
    with closing(Store.in_folder(tmp_path)) as store:
        ours = outbox.Outbox(store, [hook], streams, lambda known: set(known) & {1}, "http://127.0.0.1")
        with store.write() as connection:
            ours.write(connection, [alert | {"stream_id": i, "number": n} for i in range(2) for n in range(5)])
        found, later = ours._due("hook", 10)
        assert ([row.stream_id for row in found], later) == ([1] * 5, None)
        assert ours.due("hook", 10) == ([], None)
        given_up = store.rows(select(schema.deliveries).where(schema.deliveries.c.state == "undelivered"))
        assert [(row.stream_id, row.error) for row in given_up] == [(1, "The event was deleted.")] * 5
