"""The connector for Prometheus, against the real server: history, live steps, outages, kills, and what is refused."""

import asyncio
import itertools
import json
import random
import threading
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad import Comet
from cometad.connect import prometheus, source
from cometad.connect.address import Address
from cometad.connect.contract import Lost, UnknownStream
from cometad.connect.intake import Connection, Intake
from cometad.connect.prometheus import history
from cometad.connect.prometheus_api import PrometheusApi
from cometad.connect.prometheus_steps import Queries, StepGrid
from cometad.connect.source import source_of
from cometad.errors import CometadError, InputError, ParameterError
from cometad.serve.models import StreamSettings
from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.sources import rejected
from cometad.serve.storage import schema
from cometad.serve.storage.history import by_time
from contract import is_a_sentence
from plant_case import feeding, service_in
from prometheus_consumer import Consumer
from serve_case import NAMES, WAIT, expected, until
from servers.certificate import self_signed
from servers.prometheus import PAST, Plant, PrometheusServer

TAGS = {name: f'plant{{sensor="{name}"}}' for name in NAMES}
HOLES = {name: f'holes{{sensor="{name}"}}' for name in NAMES}
TWICE = 'plant or label_replace(plant, "twice", "yes", "", "")'
SECRET_HASH = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"  # bcrypt of "secret"


@pytest.fixture(scope="module")
def plant_server(tmp_path_factory):
    """A running Prometheus with the samples of a plant, and these."""
    data = Plant()
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), data.samples()) as server:
        yield server, data


@pytest.fixture(scope="module")
def service(tmp_path_factory, pump_file, gappy_file):
    """A service with a detector that refuses gaps, and one that fills them."""
    with service_in(tmp_path_factory.mktemp("service"), pump_file) as service:
        service.detectors.add("gappy", gappy_file.read_bytes())
        yield service


@pytest.fixture
def stream(service, request):
    """The name of a new stream of the detector that takes no gaps."""
    return new_stream(service)


_numbers = itertools.count()


def new_stream(service, detector="pump"):
    name = f"s{next(_numbers)}"
    service.put_stream(name, StreamSettings(detector=detector))
    return name


def at(server, stream=None, tags=TAGS, period="1s", back_fill="10min", **options):
    url = server if isinstance(server, str) else f"prometheus+{server.url}"
    return Address(url, stream, tags, period, options={"back_fill": back_fill} | options)


def pull(service, address, done, changed=lambda one: None):
    """Run a source until something is so; gives its connection."""
    with feeding(service, address, changed) as connection:
        until(done)
    return connection


def stored(service, stream, table=schema.readings):
    """The times and cells (row, column) of a stream that are on disk."""
    service.recorder.flush()
    with service.store.read() as connection:
        rows = by_time(connection, table, service.stream(stream).id, 0, 1e12)
    return rows.ats, rows.cells.reshape(len(rows.ats), -1 if len(rows.ats) else 3)


def caught_up(service, stream):
    """Whether there is a reading of these seconds."""
    last = service.last_time(stream)
    return last is not None and last > time.time() - 3


def run_once(service, address):
    asyncio.run(asyncio.wait_for(source_of(address).run(Intake(service, Connection("once", ""))), WAIT))


def refusal(service, address):
    """The message of a source that cannot be used."""

    with pytest.raises(CometadError) as caught:
        run_once(service, address)
    assert is_a_sentence(str(caught.value)), str(caught.value)
    assert not isinstance(caught.value, Lost)
    return str(caught.value)


# -- steps and pages --------------------------------------------------------------------------------------------------


@given(step=st.integers(1, 10**7), k=st.integers(0, 10**7))
def test_a_step_is_found_again_from_its_time(step, k):
    grid = StepGrid(f"{step}ms")
    assert grid.before(grid.seconds(k)) == k
    assert grid.after(grid.seconds(k)) == k + 1
    assert grid.before(np.nextafter(grid.seconds(k), np.inf)) == k


@pytest.mark.parametrize("most", [1, 7, 40])
@pytest.mark.parametrize(("tags", "options"), [(HOLES, {}), ({}, {"query": "holes", "by": "sensor"})])
def test_pages_of_any_size_equal_one_query_per_step(plant_server, tags, options, most):
    server, data = plant_server
    address = at(server, tags=tags, **options)
    queries = Queries(address, address.read_options(prometheus.OPTIONS))
    first = data.start + PAST // 2 - 20  # across the time at which a label of the series changes
    steps = range(first, first + 40)

    async def pages():
        async with queries.api.opened():
            cut = [steps[i : i + most] for i in range(0, len(steps), most)]
            return np.concatenate([queries.placed(page, await queries.over(page), NAMES) for page in cut])

    naive = np.full((len(steps), 3), np.nan)
    for i, k in enumerate(steps):
        for one in server.at("holes", k):
            naive[i, NAMES.index(one["metric"]["sensor"])] = float(one["value"][1])
    assert np.isnan(naive).any()
    np.testing.assert_array_equal(asyncio.run(pages()), naive)


# -- history and live -------------------------------------------------------------------------------------------------


def test_every_step_from_the_back_fill_to_now_is_scored_once(plant_server, service, stream, pump):
    server, data = plant_server
    begun = time.time()
    pull(service, at(server, stream), lambda: caught_up(service, stream) and time.time() > begun + 2)
    times, values = stored(service, stream)
    assert abs(times[0] - (begun - 600)) < 5
    np.testing.assert_array_equal(np.diff(times), 1.0)
    np.testing.assert_array_equal(values, [data.row(at) for at in times])
    until(lambda: len(stored(service, stream, schema.scores)[0]) == len(times))
    scores = stored(service, stream, schema.scores)[1]
    np.testing.assert_array_equal(scores.T, expected(pump[0], values))


def test_one_query_gives_all_variables_by_a_label(plant_server, service, stream):
    server, data = plant_server
    address = at(server, stream, {}, query="plant", by="sensor")
    pull(service, address, lambda: caught_up(service, stream))
    times, values = stored(service, stream)
    assert len(times) > 590
    np.testing.assert_array_equal(values, [data.row(at) for at in times])


def test_a_source_started_again_goes_on_where_it_was(plant_server, service, stream):
    server, _ = plant_server
    pull(service, at(server, stream, back_fill="1min"), lambda: caught_up(service, stream))
    first = service.last_time(stream)
    until(lambda: time.time() > first + 4)
    with feeding(service, at(server, stream, back_fill="1h")) as again:
        until(lambda: again.readings > 1)
    np.testing.assert_array_equal(np.diff(stored(service, stream)[0]), 1.0)
    assert 1 < again.readings <= service.last_time(stream) - first  # the last ones may not be counted yet


def test_only_steps_older_than_the_delay_are_asked_for(plant_server, service, stream):
    server, _ = plant_server
    pull(service, at(server, stream, delay="100s"), lambda: service.last_time(stream) is not None)
    assert service.last_time(stream) < time.time() - 99


def test_missing_samples_are_missing_values_if_the_detector_takes_them(plant_server, service):
    server, data = plant_server
    stream = new_stream(service, "gappy")
    pull(service, at(server, stream, HOLES), lambda: caught_up(service, stream))
    times, values = stored(service, stream)
    for at_, row in zip(times, values, strict=True):
        second = round(at_) - data.start
        wanted = [np.nan if data.is_missing(name, second) else data.row(at_)[i] for i, name in enumerate(NAMES)]
        np.testing.assert_array_equal(row, wanted)
    assert np.isnan(values).any()
    assert not np.isnan(values).all(axis=1).any()  # a step without any value is left out
    assert 2.0 in np.diff(times)


def test_steps_with_missing_values_are_set_aside_if_the_detector_takes_none(plant_server, service, stream):
    server, data = plant_server
    one = pull(service, at(server, stream, HOLES, back_fill="3min"), lambda: caught_up(service, stream))
    times, values = stored(service, stream)
    assert not np.isnan(values).any()
    assert all(not data.is_missing("level", round(at) - data.start) for at in times)
    rows = rejected(service.store, one.name, 100)
    assert 2 <= len(rows) == one.set_aside <= 5  # one for each stretch
    assert rows[0].reason == (
        "Prometheus has no value for 'level', and the detector has no gap rule. "
        "Fit it with one, such as gaps=ForwardFill(limit=5)."
    )
    assert json.loads(rows[0].content)["queries"] == list(HOLES.values())


def test_infinite_and_huge_values_are_missing(plant_server):
    server, _ = plant_server
    found = history(at(server, tags={"odd": "odd", "one": "vector(1)"}), "1min")
    assert found["odd"].null_count() == len(found) - found["odd"].eq(1.0).sum() > 0


def test_a_variable_without_values_is_told_until_it_has_some_again(plant_server, service, monkeypatch):
    server, _ = plant_server
    monkeypatch.setattr(prometheus, "MOST_STEPS", 1)
    stream = new_stream(service, "gappy")
    pull(service, at(server, stream, delay="10s"), lambda: service.last_time(stream) is not None)
    last, told = service.last_time(stream), []
    # As if a target were down for a while: the stream has readings, so this is no mistake.
    down = TAGS | {"heat": f'plant{{sensor="heat"}} and on() (vector(time()) >= {last + 4})'}
    until_up = at(server, stream, down), lambda: service.last_time(stream) > last + 4
    one = pull(service, *until_up, changed=lambda one: told.append(one.reason))
    times, values = stored(service, stream)
    missing = np.isnan(values[:, list(service.layout(stream).names).index("heat")])
    first = datetime.fromtimestamp(times[missing][0], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert list(dict.fromkeys(told)) == [None, f"Prometheus has no value for 'heat' since {first}."]
    assert told[-1] is None
    assert one.state == "connected"


def test_pulling_waits_while_the_service_is_behind(plant_server, service, stream, monkeypatch):
    server, _ = plant_server
    behind = threading.Event()
    monkeypatch.setattr(type(service.scorer), "unscored", property(lambda _: 0 if behind.is_set() else 10**9))
    threading.Timer(0.5, behind.set).start()
    pull(service, at(server, stream, back_fill="1min"), lambda: caught_up(service, stream))
    assert behind.is_set()
    np.testing.assert_array_equal(np.diff(stored(service, stream)[0]), 1.0)


def test_a_stream_with_another_detector_goes_on_with_the_next_step(plant_server, service, stream):
    server, _ = plant_server
    changed = []

    def done():
        if not changed and caught_up(service, stream):
            service.put_stream(stream, StreamSettings(detector="gappy"))
            changed.append(service.last_time(stream))
        return changed and service.last_time(stream) > changed[0] + 1

    pull(service, at(server, stream, back_fill="1min"), done)
    np.testing.assert_array_equal(np.diff(stored(service, stream)[0]), 1.0)


def test_a_page_that_is_too_much_is_halved_and_a_step_that_cannot_be_evaluated_is_set_aside(
    plant_server, service, stream
):
    server, _ = plant_server
    pull(service, at(server, stream, delay="100s"), lambda: service.last_time(stream) is not None)
    last, bad = service.last_time(stream), round(time.time()) - 50
    # At one time there are two series for `heat`; before and after it, one.
    other = f'plant{{sensor="level"}} and on() (vector(time()) == {bad})'
    tags = TAGS | {"heat": f'plant{{sensor="heat"}} or label_replace({other}, "twice", "yes", "", "")'}
    one = pull(service, at(server, stream, tags), lambda: caught_up(service, stream))
    times = stored(service, stream)[0]
    wanted = [at for at in np.arange(times[0], times[-1] + 1) if at != bad]
    assert last < bad
    np.testing.assert_array_equal(times, wanted)
    (row,) = rejected(service.store, one.name, 10)
    assert row.where == datetime.fromtimestamp(bad, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "returned 2 series" in row.reason


# -- outages and kills ------------------------------------------------------------------------------------------------


def test_after_a_restart_of_prometheus_no_step_is_lost_or_doubled(tmp_path, service, stream, plant_server, monkeypatch):
    _, data = plant_server
    monkeypatch.setattr(source, "LONGEST_WAIT", 1.0)
    states = []
    server = PrometheusServer(tmp_path, data.samples())

    def outage():
        until(lambda: caught_up(service, stream))
        server.stop()
        until(lambda: states[-1][0] == "lost")
        time.sleep(1.5)
        server.start()

    with server:
        down = threading.Thread(target=outage)
        down.start()

        def is_over():
            return not down.is_alive() and states[-1][0] == "connected" and caught_up(service, stream)

        pull(service, at(server, stream), is_over, lambda one: states.append((one.state, one.reason)))
    times, values = stored(service, stream)
    np.testing.assert_array_equal(np.diff(times), 1.0)
    np.testing.assert_array_equal(values, [data.row(at) for at in times])
    lost = next(reason for state, reason in states if state == "lost")
    assert is_a_sentence(lost)
    assert f"The server {server.url} does not respond: " in lost
    assert states[-1] == ("connected", None)


def test_after_kills_every_step_is_scored_once_as_in_a_run_without_them(tmp_path, plant_server, pump):
    server, data = plant_server
    detector, content = pump
    (tmp_path / "pump.comet").write_bytes(content)
    tags = [f"--tag={name}={query}" for name, query in TAGS.items()]
    options = ["--stream=plant", f"--detector={tmp_path / 'pump.comet'}", "--period=1s", "--option=back_fill=100min"]
    consumer = Consumer(tmp_path, f"prometheus+{server.url}", *tags, *options)
    consumer.kill_often(5, random.Random(5))
    found = consumer.finish()
    times = [line["time"] for line in found]
    assert len(times) > 6000
    np.testing.assert_array_equal(np.diff(times), 1.0)
    assert [line["step"] for line in found] == list(range(len(found)))
    scores = [[line[name] for line in found] for name in ("alert_score", "threshold", "anomaly")]
    np.testing.assert_array_equal(scores, expected(detector, np.array([data.row(at) for at in times])))
    with closing(Service(Settings(data_dir=tmp_path / "data"))) as service:
        service.start()
        np.testing.assert_array_equal(stored(service, "plant")[0], times)
        np.testing.assert_array_equal(stored(service, "plant", schema.scores)[1].T, scores)


# -- history for fitting ----------------------------------------------------------------------------------------------


def test_history_is_a_table_to_fit_on(plant_server):
    server, data = plant_server
    start = datetime.fromtimestamp(data.start + 100, UTC)
    stop = datetime.fromtimestamp(data.start + 1099, UTC)
    found = history(at(server), start, stop.isoformat())
    assert found.columns == ["time", *NAMES]
    assert found["time"].dt.epoch("s").to_list() == list(range(data.start + 100, data.start + 1100))
    np.testing.assert_array_equal(found.drop("time").to_numpy(), data.values[100:1100])
    by_label = history(at(server, tags={}, query="plant", by="sensor"), start, stop)
    assert by_label.select(found.columns).equals(found)
    assert list(Comet().fit(found).names_) == NAMES


def test_history_of_many_pages_has_every_step(plant_server, monkeypatch):
    server, data = plant_server
    monkeypatch.setattr(prometheus, "MOST_STEPS", 97)
    found = history(at(server, tags=HOLES), "20min", datetime.fromtimestamp(data.start + PAST - 100, UTC))
    seconds = found["time"].dt.epoch("s") - data.start
    assert seconds.to_list() == [s for s in range(PAST - 1300, PAST - 99) if not data.is_missing("flow", s)]
    assert found["level"].is_null().to_list() == [data.is_missing("level", s) for s in seconds]


def test_history_works_where_a_loop_runs(plant_server):
    server, _ = plant_server

    async def notebook():
        return history(at(server), "1min")

    assert len(asyncio.run(notebook())) > 50


@pytest.mark.parametrize(
    ("address", "start", "words"),
    [
        ({"tags": {"cpu": "upp"}}, "1min", "'upp' for 'cpu' returned nothing from"),
        ({"tags": {}, "query": "upp", "by": "sensor"}, "1min", "'upp' returned nothing"),
        ({}, "2000-01-01T00:00:00+00:00", "steps. Choose a later start"),
        ({"tags": {"time": "vector(1)"}}, "1min", "cannot be called 'time'"),
        ({}, "last week", "Cannot read the time 'last week'"),
        ({"tags": {"cpu": "rate("}}, "1min", "unclosed left parenthesis"),
        ({"tags": {"cpu": "plant"}}, "1min", "returned 3 series"),
        ({"period": None}, "1min", "needs a period"),
    ],
)
def test_a_history_that_cannot_be_read_is_refused(plant_server, monkeypatch, address, start, words):
    server, _ = plant_server
    monkeypatch.setattr(prometheus, "MOST_HISTORY", 10**6)
    with pytest.raises((ParameterError, InputError)) as caught:
        history(at(server, **address), start)
    assert words in str(caught.value)
    assert is_a_sentence(str(caught.value))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (
            {"heat": "rate("},
            "Prometheus cannot read the query 'rate(': invalid parameter \"query\": 1:6: parse error: un",
        ),
        ({"heat": "plant"}, "The query 'plant' for 'heat' returned 3 series. Aggregate it"),
        ({"heat": "last_over_time(many[3h])"}, "returned 10,000 series. Aggregate it, for example avg by (instance)"),
        ({"heat": "upp"}, "The query 'upp' for 'heat' returned nothing from 20"),
        ({"heat": "plant[5m]"}, "The query 'plant[5m]' returns ranges of samples, not a number per step."),
        ({"heat": "'hot'"}, "returns a text, not a number per step."),
        ({"heat": "plant * on() plant"}, "Prometheus cannot evaluate the query 'plant * on() plant': found duplicate"),
        ({"cold": "vector(1)"}, "The detector has no variable 'cold'. Remove that query"),
    ],
)
def test_a_wrong_query_is_refused_before_any_reading(plant_server, service, stream, tags, words):
    server, _ = plant_server
    assert words in refusal(service, at(server, stream, TAGS | tags))
    assert service.last_time(stream) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"query": "upp", "by": "sensor"}, "The query 'upp' returned nothing from"),
        (
            {"query": TWICE, "by": "sensor"},
            "returned 2 series with sensor='flow'. Aggregate it, for example sum by (sen",
        ),
        ({"query": "plant", "by": "instance"}, "without the label 'instance' (it has '__name__', 'sensor', 'version')"),
        ({"query": "last_over_time(many[3h])", "by": "number"}, "returned 10,000 series."),
        (
            {"query": "plant{sensor!='heat'}", "by": "sensor"},
            "No series has sensor='heat', a variable of the detector; ",
        ),
        ({"query": "vector(1)", "by": "sensor"}, "without the label 'sensor' (it has none)"),
        ({"query": "scalar(plant)", "by": "sensor"}, "without the label 'sensor' (it has none)"),
    ],
)
def test_a_wrong_query_with_a_label_is_refused(plant_server, service, stream, options, words):
    server, _ = plant_server
    assert words in refusal(service, at(server, stream, {}, **options))


def test_of_several_series_labels_pick_one(plant_server, service, stream):
    server, _ = plant_server
    tags = dict.fromkeys(NAMES, "plant")
    assert "returned 3 series" in refusal(service, at(server, stream, tags))
    pull(service, at(server, stream, tags, labels='sensor="flow"'), lambda: caught_up(service, stream))
    assert (np.ptp(stored(service, stream)[1], axis=1) == 0).all()


def test_queries_must_be_those_of_the_detector(plant_server, service, stream):
    server, _ = plant_server
    renamed = {"flow": "vector(1)", "level": "vector(1)", "temperature": "vector(1)"}
    message = refusal(service, at(server, stream, renamed))
    assert message == (
        "There is no query for the detector's variable 'heat'. The query for 'temperature' matches none of its "
        "variables. Add it to the tags."
    )
    with pytest.raises(UnknownStream):
        run_once(service, at(server, "gone"))


@contextmanager
def answering(status, body=b"", **headers):
    """A server that is not Prometheus: it gives the same answer to every request, and keeps the headers it got."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            got.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"prometheus+http://127.0.0.1:{server.server_address[1]}", got
        finally:
            server.shutdown()
            thread.join(WAIT)


SCALAR = b'{"status": "success", "data": {"resultType": "%s", "result": %s}}'


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>Welcome</html>", "does not respond like Prometheus. Check host, port and the path"),
        (200, b'{"data": 7}', "does not respond like Prometheus."),
        (200, SCALAR % (b"scalar", b"null"), "does not respond like Prometheus."),
        (200, SCALAR % (b"vector", b"[]"), "does not respond like Prometheus."),
        (200, SCALAR % (b"scalar", b'[1, "99999999999"]'), "days ahead of the local clock"),
        (404, b"404 page not found", "(HTTP status 404)"),
        (405, b"", "(HTTP status 405)"),
        (401, b"", "requires a login, or refused this one. Set user and password_variable, or token_variable"),
        (403, b"", "This user may not query"),
        (302, b"", "redirects to http://login.example/. Use that address instead."),
        (400, b'{"status": "error", "error": "line 1\\nline 2."}', "cannot read the query 'time()': line 1 line 2."),
    ],
)
def test_a_server_that_is_not_prometheus_or_refuses_is_named(service, stream, status, body, words):
    with answering(status, body, location="http://login.example/") as (url, _):
        assert words in refusal(service, at(url, stream))


@pytest.mark.parametrize(("status", "body"), [(503, b""), (502, b"<html>Bad gateway</html>"), (429, b"")])
def test_a_server_in_trouble_is_lost_and_tried_again(service, stream, status, body):
    with answering(status, body) as (url, _), pytest.raises(Lost, match=f"HTTP status {status}"):
        run_once(service, at(url, stream))


def test_a_token_is_sent_and_does_not_follow_a_redirect(service, stream, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_TOKEN", "abc")
    with answering(403) as (other, leaked):
        where = other.removeprefix("prometheus+")
        with answering(307, location=where) as (url, got):
            message = refusal(service, at(url, stream, token_variable="PROMETHEUS_TOKEN"))
    assert got[0]["authorization"] == "Bearer abc"
    assert leaked == []
    assert f"redirects to {where}." in message
    assert "abc" not in message


def test_histograms_and_other_times_are_refused(service, stream):
    histogram = b'[{"metric": {}, "histogram": []}]'
    with answering(200, SCALAR % (b"vector", histogram)) as (url, _):
        api = PrometheusApi(at(url), at(url).read_options(prometheus.OPTIONS))

        async def ask(what):
            async with api.opened():
                return await what()

        with pytest.raises(ParameterError, match=r"returns histograms.*histogram_quantile"):
            asyncio.run(ask(lambda: api.at("up", 7000)))
    rounded = b'[{"metric": {}, "values": [[1.5, "7"]]}]'
    with (
        answering(200, SCALAR % (b"matrix", rounded)) as (url, _),
        pytest.raises(InputError, match="samples at other times"),
    ):
        history(at(url, tags={"cpu": "up"}), "1970-01-01T00:00:01+00:00", "1970-01-01T00:00:02+00:00")


def test_a_login_and_a_certificate_are_checked(tmp_path, service, stream, plant_server, monkeypatch):
    _, data = plant_server
    certificate, key = self_signed(tmp_path)
    (tmp_path / "web.yml").write_text(
        f"basic_auth_users: {{sre: {SECRET_HASH}}}\ntls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n"
    )
    samples = itertools.takewhile(lambda one: one[1] < data.start + PAST + 600, data.samples())
    server = PrometheusServer(tmp_path / "server", samples, f"--web.config.file={tmp_path / 'web.yml'}")
    server.url = server.url.replace("http:", "https:")
    monkeypatch.setattr(server, "get", lambda path: _insecure(server.url + path))
    monkeypatch.setenv("PROMETHEUS_PASSWORD", "secret")
    with server:
        given_ = {"user": "sre", "password_variable": "PROMETHEUS_PASSWORD", "options": {"back_fill": "1min"}}
        address = Address(f"prometheus+{server.url}", stream, TAGS, "1s", **given_)
        assert "Cannot verify the certificate" in refusal(service, address)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert "requires a login" in refusal(service, at(server, stream))
        pull(service, address, lambda: caught_up(service, stream))
        monkeypatch.setenv("PROMETHEUS_PASSWORD", "wrong")
        assert "requires a login" in refusal(service, address)


def _insecure(url):
    import httpx

    answer = httpx.get(url, verify=False, trust_env=False)
    return httpx.Response(200 if answer.status_code == 401 else answer.status_code)
