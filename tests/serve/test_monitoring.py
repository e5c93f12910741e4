"""The service beside a real Prometheus and a real Alertmanager, and the dashboard for Grafana."""

import json
import re
import time
from pathlib import Path

import pytest

from cometad.connect.out.posting import NAMES
from cometad.serve.notify import receivers
from serve_case import as_readings, faulty, in_process, post, put, settled, until, upload
from servers.alertmanager import AlertmanagerServer
from servers.program import free_port
from servers.prometheus import PrometheusServer

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "cometad.json"
VALUES = faulty(150)


def test_an_event_is_an_alert_until_it_ends_also_across_a_restart(tmp_path, pump):
    with AlertmanagerServer(tmp_path) as alerts:
        receiver = {"name": "on-call", "url": f"{alerts.url}/?resend=0.3"}
        active = alerts.active
        with in_process(tmp_path / "data", notify=[receiver]) as (_, client):
            upload(client, "pump", pump[1])
            put(client, "pump")
            post(client, "pump", as_readings(VALUES[:64]))
            (alert,) = until(active)
            assert alert["labels"]["stream"] == "pump"
            assert alert["labels"]["event"] == "1-1"
            assert "expected" in alert["annotations"]["description"]
            assert alert["generatorURL"].endswith("/#/events/1-1")
            ends = alert["endsAt"]
            until(lambda: active() and active()[0]["endsAt"] > ends)  # it is sent again
        until(lambda: not active())  # nobody says any more that it is open
        with in_process(tmp_path / "data", notify=[receiver]) as (_, client):
            until(active)
            post(client, "pump", as_readings(VALUES[64:120], first=64))
            until(lambda: not active())
            states = until(lambda: client.get("/v1/deliveries?state=delivered").json())
            assert [one["change"] for one in states["deliveries"]] == ["closed", "opened"]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    sample = [("up", time.time() - 3600, 1.0)]
    folder = tmp_path_factory.mktemp("prometheus")
    with PrometheusServer(folder, sample, "--web.enable-remote-write-receiver") as server:
        yield server


def test_prometheus_gets_every_score_by_remote_write_and_by_scraping(tmp_path, pump, prometheus):
    url = f"remote-write+{prometheus.url}/api/v1/write"
    receiver = {"name": "copy", "url": url, "labels": {"site": "north"}, "streams": ["pump"]}
    with in_process(tmp_path / "data", notify=[receiver]) as (_, client):
        upload(client, "pump", pump[1])
        for name in ("pump", "other"):
            put(client, name)
            start = float(int(time.time()) - len(VALUES) - 1)
            post(client, name, as_readings(VALUES, start=start))
        found = settled(client, "pump", len(VALUES))
        event = client.get("/v1/streams/pump/events").json()["events"][-1]

        def written():
            rows = prometheus.at('{site="north"}[10m]', start + len(VALUES) + 5)
            return rows if rows and len(rows[0]["values"]) == len(VALUES) else None

        rows = {row["metric"]["__name__"]: row for row in until(written)}
        assert set(rows) == set(NAMES)
        assert {row["metric"]["stream"] for row in rows.values()} == {"pump"}
        for name, field in (("anomaly_score", "scores"), ("anomaly_threshold", "thresholds")):
            assert [float(value) for _, value in rows[name]["values"]] == found[field]
            assert [at for at, _ in rows[name]["values"]] == found["times"]
        open_at = [at for at, value in rows["anomaly_event_open"]["values"] if value == "1"]
        assert event["start_time"] in open_at
        state = next(one for one in client.get("/v1/deliveries").json()["receivers"] if one["name"] == "copy")
        assert (state["gets"], state["delivered"], state["waiting"]) == ("scores", len(VALUES), 0)
        page = client.get("/metrics").text
    assert f'cometad_scores_copied_total{{receiver="copy",result="written"}} {len(VALUES)}.0' in page
    assert f'anomaly_score{{stream="pump"}} {found["scores"][-1]}' in page


def test_scores_of_a_stream_that_prometheus_refuses_do_not_cost_those_of_others(
    tmp_path, pump, prometheus, monkeypatch
):
    monkeypatch.setattr(receivers, "GATHER", 5.0)  # so that one request has both streams
    receiver = {"name": "copy", "url": f"remote-write+{prometheus.url}/api/v1/write", "labels": {"site": "south"}}
    now = float(int(time.time())) - 400
    with in_process(tmp_path, notify=[receiver]) as (service, client):
        upload(client, "pump", pump[1])
        (copies,) = service.notifications.copies
        for name, start in (("old", now - 1e6), ("new", now)):
            put(client, name)
            post(client, name, as_readings(VALUES, start=start))
            settled(client, name, len(VALUES))
        until(lambda: copies.written + copies.lost == 2 * len(VALUES))
        assert (copies.written, copies.lost) == (len(VALUES), len(VALUES))
        (row,) = prometheus.at('anomaly_score{site="south"}[10m]', now + len(VALUES) + 5)
        assert (row["metric"]["stream"], len(row["values"])) == ("new", len(VALUES))


def test_a_receiver_of_scores_that_is_away_costs_bounded_memory(tmp_path, pump, monkeypatch):
    monkeypatch.setattr(receivers, "MOST", 50)
    monkeypatch.setattr(receivers, "BATCH", 10)
    receiver = {"name": "copy", "url": f"remote-write+http://127.0.0.1:{free_port()}/"}
    with in_process(tmp_path, notify=[receiver]) as (_, client):
        upload(client, "pump", pump[1])
        put(client, "pump")
        post(client, "pump", as_readings(VALUES))
        settled(client, "pump", len(VALUES))
        (state,) = until(lambda: [one for one in client.get("/v1/deliveries").json()["receivers"] if one["error"]])
    assert state["waiting"] <= 50
    assert len(VALUES) - 60 <= state["undelivered"] + state["waiting"] <= len(VALUES)  # a batch is on its way
    assert "cannot be reached" in state["error"]


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(DASHBOARD.read_text())


def test_every_query_of_the_dashboard_names_a_metric_of_the_service(dashboard, running):
    _, client = running
    page = client.get("/metrics").text
    known = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    known |= {f"{name}_bucket" for name in re.findall(r"^# TYPE (\w+) histogram", page, re.MULTILINE)}
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [one["definition"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert len(queries) > 10
    for query in queries:
        names = re.findall(r"\b(?:cometad|anomaly)_\w+", query)
        assert names, query
        assert set(names) <= known, query


def test_prometheus_understands_every_query_of_the_dashboard(dashboard, prometheus):
    for target in [target for panel in dashboard["panels"] for target in panel["targets"]]:
        query = target["expr"].replace("$stream", ".*").replace("$__rate_interval", "1m")
        assert prometheus.get("/api/v1/query", query=query).json()["status"] == "success", query
