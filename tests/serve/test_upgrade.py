"""Data of earlier formats opens, and the streams go on; tests/fixtures/make_serve_1.py wrote it."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.store import FILE, Store
from serve_case import as_readings, faulty, listening, plant, post, settled, until

FIXTURES = Path(__file__).parents[1] / "fixtures"
ROWS = 1100


@pytest.fixture
def folder(tmp_path):
    """A copy of the data of a service in format 1."""
    (tmp_path / FILE).write_bytes(gzip.decompress((FIXTURES / "serve-1.sqlite.gz").read_bytes()))
    return tmp_path


def test_data_of_format_1_is_upgraded_to_the_newest_format(folder):
    with closing(Store.in_folder(folder)) as store, store.read() as connection:
        assert store.format >= 3
        tables = ("detectors", "streams", "readings", "scores", "snapshots", "events")
        kept = [connection.execute(select(schema.metadata.tables[name]).limit(1)).first() for name in tables]
        assert None not in kept
        added = ("set_aside", "positions", "deliveries")
        assert not any(connection.execute(select(schema.metadata.tables[name])).all() for name in added)


def test_upgraded_data_has_the_same_tables_as_new_data(folder):
    Store.in_folder(folder).close()
    Store.in_folder(folder / "new").close()
    assert tables_in(folder) == tables_in(folder / "new")


def tables_in(folder):
    with closing(sqlite3.connect(folder / FILE)) as database:
        found = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return sorted((kind, name, " ".join((sql or "").split())) for kind, name, sql in found)


def test_a_stream_of_format_1_goes_on_as_if_nothing_had_happened(folder):
    new = plant(50, seed=3)
    with closing(Service(Settings(data_dir=folder))) as service:
        service.tokens.revoke("gateway")
        service.start()
        until(lambda: service.ready)
        stream = service.stream("pump-1")
        session = stream.detector.stream(alerts=stream.scoring.session._stream._alerts)
        with listening(service) as client:
            events = client.get("/v1/events?state=closed").json()["events"]
            called = [event for event in events if event["verdict"] == "normal"]
            assert len(called) == 1
            assert {(event["level"], event["new_level"]) for event in events if event["stop"] <= ROWS} == {
                ("alert", False)
            }
            session.update_many(faulty(ROWS))
            session.verdict(called[0]["number"], "normal")
            post(client, "pump-1", as_readings(new, first=ROWS))
            scores = settled(client, "pump-1", ROWS + len(new))["scores"]
            assert client.get(f"/v1/events/{called[0]['id']}").json()["explanation"]["sentence"]
    wanted = session.update_many(new).alert_scores
    np.testing.assert_allclose(scores[ROWS:], wanted, rtol=1e-4)  # equal bits only on the machine that wrote the data


def test_a_stream_with_an_earlier_budget_of_alerts_starts_anew(folder):
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        budget = '{"detector": "pump", "budget": {"rate": null, "alerts_per_day": 3.0}, "period": "60s"}'
        (events,) = database.execute("SELECT COUNT(*) FROM events").fetchone()
        database.execute("UPDATE streams SET settings = ?", (budget,))
        database.execute("UPDATE events SET closed_at = NULL WHERE number = (SELECT MAX(number) FROM events)")
    with closing(Service(Settings(data_dir=folder))) as service:
        service.tokens.revoke("gateway")
        service.start()
        until(lambda: service.ready)
        with listening(service) as client:
            assert client.get("/v1/streams/pump-1").json()["state"] != "paused"
            assert client.get("/v1/events?state=open").json()["events"] == []
            assert len(client.get("/v1/events?limit=1000").json()["events"]) == events
            post(client, "pump-1", as_readings(plant(50, seed=3), first=ROWS))
            assert len(settled(client, "pump-1", ROWS + 50)["scores"]) == ROWS + 50
