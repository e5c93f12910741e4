"""The service over HTTP: scores, repeated and late readings, verdicts, failures, settings, retention and bounds."""

import hashlib
import io
import json
import tempfile
import threading
import time
from collections import defaultdict

import httpx
import numpy as np
import polars as pl
import pytest
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.event import listens_for, remove
from structlog.testing import capture_logs

from cometad import BASELINES, Budget, Comet
from cometad.data.resample import Resampling
from cometad.live.session import Grid, Session
from cometad.serve import history_queries, recorder, scorer, stored_detectors, upkeep
from cometad.serve.api import live
from cometad.serve.live_stream import Arrivals, LiveStream, Scoring, threshold_of
from cometad.serve.models import EventSummary, StreamSettings
from cometad.serve.storage import history, schema
from cometad.serve.storage.store import StorageError
from cometad.serve.upkeep import DAY
from contract import is_a_sentence
from serve_case import (
    NAMES,
    START,
    WAIT,
    as_readings,
    database_watched,
    expected,
    faulty,
    fed,
    frame,
    in_process,
    is_refusal,
    plant,
    post,
    put,
    settled,
    until,
    upload,
)

VALUES = faulty()


def scores_of(found):
    return found["scores"], found["thresholds"], found["flags"]


def events_of(client, stream):
    return client.get(f"/v1/streams/{stream}/events").json()["events"]


def count(service, table, stream=None):
    query = select(func.count()).select_from(table)
    with service.store.read() as connection:
        return connection.execute(query if stream is None else query.where(table.c.stream_id == stream)).scalar_one()


# -- scores ---------------------------------------------------------------------------------------------------------


def test_scores_equal_those_of_a_stream_of_the_detector_to_the_bit(running, pump):
    _, client = running
    put(client, "exact")
    readings = as_readings(VALUES)
    sizes, at = [1, 1, 7, 60, 1, 30, 200], 0
    for size in sizes:
        part = readings[at : at + size]
        assert post(client, "exact", part if size > 1 else part[0])["accepted"] == len(part)
        at += size
    found = settled(client, "exact", len(VALUES))
    assert scores_of(found) == expected(pump[0], VALUES)
    assert found["steps"] == list(range(len(VALUES)))
    assert found["times"] == [START + i for i in range(len(VALUES))]
    state = client.get("/v1/streams/exact").json()
    assert (state["readings"], state["state"], state["events"]) == (300, "normal", 3)
    assert state["score"] == found["scores"][-1]
    assert state["variables"] == NAMES
    assert state["last_time"] == START + 299
    assert state["lag"] < 60


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_every_format_gives_the_same_scores(running, pump, form):
    _, client = running
    put(client, form)
    readings = as_readings(VALUES[:100])
    if form == "csv":
        rows = [",".join(map(repr, reading.values())) for reading in readings]
        body, kind = "\n".join([",".join(readings[0]), *rows]), "text/csv; charset=utf-8"
    else:
        body, kind = "\n".join(map(json.dumps, readings)), "application/x-ndjson"
    answer = client.post(f"/v1/streams/{form}/readings", content=body, headers={"content-type": kind})
    assert answer.json() == {"accepted": 100, "repeated": 0, "dropped": 0, "refused": []}
    assert scores_of(settled(client, form, 100)) == expected(pump[0], VALUES[:100])


def test_a_batch_of_many_streams_is_taken_line_by_line(running, pump):
    _, client = running
    for name in ("many-a", "many-b"):
        put(client, name)
    rows = [{"stream": name, **row} for row in as_readings(VALUES[:50]) for name in ("many-a", "many-b", "many-c")]
    rows[4]["flow"] = "high"
    answer = client.post("/v1/readings", json=rows)
    assert answer.status_code == 200
    taken = answer.json()
    assert (taken["accepted"], len(taken["refused"])) == (99, 51)
    assert [one["line"] for one in taken["refused"]] == sorted(one["line"] for one in taken["refused"])
    assert scores_of(settled(client, "many-a", 50)) == expected(pump[0], VALUES[:50])
    without = np.delete(VALUES[:50], 1, axis=0)
    assert scores_of(settled(client, "many-b", 49)) == expected(pump[0], without)


def test_thinned_scores_keep_the_highest_and_a_stretch_can_be_chosen(running):
    _, client = running
    whole = fed(client, "thin", VALUES)
    thin = client.get("/v1/streams/thin/scores?points=20").json()
    assert thin["total"] == 300
    assert len(thin["scores"]) <= 22
    assert max(thin["scores"]) == max(whole["scores"])
    part = client.get(f"/v1/streams/thin/scores?from={START + 10}&to=2026-03-01T12:00:20Z").json()
    assert part["times"] == [START + i for i in range(10, 21)]
    assert part["scores"] == whole["scores"][10:21]
    recent = client.get("/v1/streams?recent=5").json()["streams"]
    assert next(one for one in recent if one["name"] == "thin")["recent"]["scores"] == pytest.approx(
        whole["scores"][-5:], abs=1e-4
    )


def test_the_variables_of_a_stretch_show_what_they_read(running):
    _, client = running
    fed(client, "variables", VALUES)
    found = client.get(f"/v1/streams/variables/variables?from={START + 55}&to={START + 70}&top=2").json()
    assert found["times"] == [START + i for i in range(55, 71)]
    assert len(found["variables"]) == 2
    for one in found["variables"]:
        assert one["observed"] == VALUES[55:71, NAMES.index(one["name"])].tolist()
        assert len(one["expected"]) == 16
    assert client.get("/v1/streams/variables/variables?from=1&to=2").json()["variables"] == []


def test_a_resampled_stream_scores_its_bins(running, gappy):
    _, client = running
    put(client, "bins", detector="gappy", resample="2s:mean")
    half = as_readings(VALUES, step=0.5)
    del half[100:110]  # an empty bin
    for at in range(0, len(half), 37):
        post(client, "bins", half[at : at + 37])
    session = Session(gappy[0], Grid(Resampling("2s", "mean"), NAMES))
    rows = np.array([[row[name] for name in NAMES] for row in half])
    timed = session.take_many(rows, [row["time"] for row in half])
    wanted = [one.scored.alert_scores.tolist() for one in timed]
    found = settled(client, "bins", len(wanted[0]))
    assert found["scores"] == [score for part in wanted for score in part]
    assert found["times"] == [START + 2 * i for i in range(len(wanted[0]))]
    variables = client.get("/v1/streams/bins/variables?top=1").json()
    assert variables["variables"]
    assert variables["times"] == found["times"]


def test_readings_with_gaps_are_taken_by_a_detector_with_a_gap_rule(running, gappy):
    _, client = running
    put(client, "gaps", detector="gappy")
    rows = as_readings(VALUES[:40])
    rows[20]["flow"], rows[21]["flow"] = None, "NaN"
    del rows[22]["level"]
    post(client, "gaps", rows)
    values = VALUES[:40].copy()
    values[[20, 21], 0] = values[22, 1] = np.nan
    assert scores_of(settled(client, "gaps", 40)) == expected(gappy[0], values)


# -- repeated and late ----------------------------------------------------------------------------------------------


def test_repeated_readings_are_acknowledged_and_ignored(running, pump):
    _, client = running
    put(client, "again")
    rows = as_readings(VALUES[:60])
    post(client, "again", rows[:40])
    assert post(client, "again", rows[20:60])["repeated"] == 20
    assert post(client, "again", rows[7])["repeated"] == 1
    assert post(client, "again", rows)["repeated"] == 60
    assert scores_of(settled(client, "again", 60)) == expected(pump[0], VALUES[:60])
    state = client.get("/v1/streams/again").json()
    assert (state["readings"], state["repeated"]) == (60, 81)


def test_sequence_numbers_tell_repeated_readings_without_times(running):
    _, client = running
    put(client, "numbered")
    rows = [{"sequence": i, "values": row} for i, row in enumerate(VALUES[:20].tolist())]
    assert post(client, "numbered", rows)["accepted"] == 20
    assert post(client, "numbered", rows[10:])["repeated"] == 10
    settled(client, "numbered", 20)


@pytest.mark.parametrize("late", ["refuse", "drop"])
def test_late_readings_are_refused_or_dropped(running, late):
    _, client = running
    put(client, f"late-{late}", late=late)
    post(client, f"late-{late}", as_readings(VALUES[:10]))
    old = as_readings(VALUES[:1], start=START + 2.5)
    answer = client.post(f"/v1/streams/{late}/readings", json=old)
    answer = client.post(f"/v1/streams/late-{late}/readings", json=old)
    if late == "drop":
        assert answer.json() == {"accepted": 0, "repeated": 0, "dropped": 1, "refused": []}
    else:
        assert is_refusal(answer, 422)
        assert answer.json()["refused"][0]["line"] == 1
    state = client.get(f"/v1/streams/late-{late}").json()
    assert (state["late"], state["readings"]) == (1, 10)
    assert post(client, f"late-{late}", as_readings(VALUES[:1], first=11))["accepted"] == 1


def test_a_bad_reading_refuses_its_whole_body(running):
    _, client = running
    put(client, "whole")
    rows = as_readings(VALUES[:5])
    rows[3]["heat"] = "hot"
    answer = client.post("/v1/streams/whole/readings", json=rows)
    assert is_refusal(answer, 422)
    assert client.get("/v1/streams/whole").json()["readings"] == 0


# -- events and verdicts --------------------------------------------------------------------------------------------


def test_events_tell_what_when_and_why_and_which_looked_alike(running, pump):
    _, client = running
    fed(client, "events", VALUES)
    until(lambda: len(client.get("/v1/streams/events/events?state=closed").json()["events"]) == 3)
    events = events_of(client, "events")
    assert [event["number"] for event in events] == [3, 2, 1]
    first = events[-1]
    assert 58 <= first["start"] <= 61
    assert first["start_time"] == START + first["start"]
    assert first["stop_time"] == START + first["stop"] - 1
    assert first["peak_time"] == START + first["peak"]
    assert 0 <= first["severity"] <= 1
    scores = settled(client, "events", 300)
    assert first["peak_score"] == scores["scores"][first["peak"]]
    assert first["threshold"] == scores["thresholds"][first["peak"]]
    details = client.get(f"/v1/events/{events[0]['id']}").json()
    assert {name: details[name] for name in first} == events[0]
    assert details["explanation"]["sentence"]
    assert details["explanation"]["variables"][0]["name"] in NAMES
    assert len(details["explanation"]["times"]) == len(details["explanation"]["variables"][0]["observed"])
    alike = [one["similarity"] for one in details["similar"]]
    assert 2 <= len(alike) <= 5
    assert [round(one, 2) for one in alike] == sorted((round(one, 2) for one in alike), reverse=True)
    assert 0.5 < alike[0] <= 1.001
    assert events[0]["id"] not in [one["id"] for one in details["similar"]]
    assert client.get(f"/v1/events/{events[0]['id']}").json() == details
    chosen = client.get(f"/v1/streams/events/events?from={START + 150}&to={START + 200}&state=closed").json()["events"]
    assert [event["number"] for event in chosen] == [2]
    assert client.get("/v1/streams/events/events?limit=1").json()["events"] == events[:1]
    assert first in client.get("/v1/events?limit=1000").json()["events"]


def test_an_event_has_a_level_and_a_meaning(running):
    _, client = running
    fed(client, "levels", VALUES, period="1min")
    (event, *_) = until(lambda: events_of(client, "levels"))
    assert (event["level"], event["severity"], event["rarity"]) == ("alert", 1.0, 10**9)
    assert event["meaning"] == "Normal operation reaches this less than once in 1,000 years."


def test_a_detector_fitted_without_times_learns_from_the_settings_how_many_readings_a_day_has():
    normal = np.random.default_rng(0).normal(size=(300, 2))
    fitted = BASELINES["squared-norm"](threshold=Budget()).fit(normal)
    hourly = StreamSettings(detector="pump", period="1h")
    assert threshold_of(hourly, fitted) == Budget(period=3600.0)
    assert threshold_of(StreamSettings(detector="pump"), fitted) is None
    assert threshold_of(hourly, BASELINES["squared-norm"](threshold=Budget(rate=0.1)).fit(normal)) is None
    events = fitted.with_threshold(threshold_of(hourly, fitted)).judge().push(np.full(30, 1e3)).changes
    assert [event.stop - event.start for kind, event, _ in events if kind == "closed"] == [8]


def test_a_budget_of_alerts_is_shown_with_how_much_of_it_is_used(running):
    _, client = running
    both = {"alerts": 2, "per": 500, "alerts_per_day": 1e4}
    state = put(client, "budgets", budget=both, period="1s")
    assert (state["budget"], state["budget_reduced"], state["budget_used"]) == (both, None, None)
    post(client, "budgets", as_readings(VALUES))
    settled(client, "budgets", 300)
    state = until(lambda: [one for one in [client.get("/v1/streams/budgets").json()] if one["events"] == 3])[0]
    assert state["budget_used"] == pytest.approx(3 / (0.004 * 86_400))
    state = put(client, "budgets", budget={"alerts_per_day": 24}, period="10min")
    assert state["budget_used"] is None or state["budget_used"] == 0
    assert state["budget_reduced"].startswith("The budget of 24 alerts a day is one in 6 readings")


def test_an_event_is_open_while_it_lasts(running):
    _, client = running
    fed(client, "opened", VALUES[:66])
    state = client.get("/v1/streams/opened").json()
    assert state["state"] == "event"
    assert state["open_event"]["number"] == 1
    (event,) = client.get("/v1/streams/opened/events?state=open").json()["events"]
    details = client.get(f"/v1/events/{event['id']}").json()
    assert details["explanation"] is not None
    post(client, "opened", as_readings(VALUES[66:110], first=66))
    settled(client, "opened", 110)
    until(lambda: client.get("/v1/streams/opened/events?state=open").json()["events"] == [])
    assert client.get("/v1/streams/opened").json()["open_event"] is None


def test_verdicts_are_kept_and_normal_teaches_until_it_is_withdrawn(running, pump):
    _, client = running
    names = ("taught", "plain", "withdrawn")
    for name in names:
        fed(client, name, VALUES[:100])
    ids = {name: until(lambda name=name: events_of(client, name))[0]["id"] for name in names}
    for name in ("taught", "withdrawn"):
        said = client.post(f"/v1/events/{ids[name]}/verdict", json={"verdict": "normal"}).json()
        assert (said["verdict"], said["taught"], said["note"]) == ("normal", True, None)
        assert said["verdict_at"] > 0
        assert client.post(f"/v1/events/{ids[name]}/verdict", json={"verdict": "normal"}).json() == said
    fault = client.post(f"/v1/events/{ids['plain']}/verdict", json={"verdict": "fault"}).json()
    assert (fault["verdict"], fault["taught"]) == ("fault", False)
    gone = client.post(f"/v1/events/{ids['withdrawn']}/verdict", json={"verdict": None}).json()
    assert (gone["verdict"], gone["verdict_at"], gone["taught"]) == (None, None, None)
    for name in names:
        post(client, name, as_readings(VALUES[100:], first=100))
    found = {name: settled(client, name, 300) for name in names}
    assert scores_of(found["plain"]) == scores_of(found["withdrawn"]) == expected(pump[0], VALUES)
    assert sum(found["taught"]["flags"][100:]) < sum(found["plain"]["flags"][100:])
    assert events_of(client, "taught")[-1]["verdict"] == "normal"


def test_each_part_of_a_stream_has_one_thread_that_writes_it(running, monkeypatch):
    _, client = running
    put(client, "one-writer")
    writers = defaultdict(set)

    def watch(kind):
        write = kind.__setattr__

        def noted(part, name, value):
            if name in vars(part):  # else it is being made
                writers[name if kind is LiveStream else kind.__name__].add(threading.current_thread().name)
            write(part, name, value)

        monkeypatch.setattr(kind, "__setattr__", noted)

    for kind in (LiveStream, Arrivals, Scoring):
        watch(kind)
    post(client, "one-writer", as_readings(VALUES[:66]))
    event = until(lambda: events_of(client, "one-writer"))[0]
    said = client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"}).json()
    shown = client.get("/v1/streams/one-writer").json()["open_event"]
    assert (shown["number"], shown["verdict"], shown["verdict_at"]) == (1, "normal", said["verdict_at"])
    post(client, "one-writer", as_readings(VALUES[66:110], first=66))
    until(lambda: client.get("/v1/streams/one-writer").json()["open_event"] is None)
    recorder, scorer = {"cometad-recorder"}, {"cometad-scorer"}
    assert writers == {"Arrivals": recorder, "arrivals": recorder, "Scoring": scorer, "shown": scorer}


def test_an_event_takes_nothing_over_from_the_one_before(running):
    service, client = running
    put(client, "put-back")
    post(client, "put-back", as_readings(VALUES[:110]))
    event = until(lambda: client.get("/v1/streams/put-back/events?state=closed").json()["events"])[0]
    stale = EventSummary(**event | {"state": "open", "verdict": "normal", "verdict_at": START})
    service.scorer.do(lambda: setattr(service.stream("put-back").scoring, "open_event", stale)).result()
    post(client, "put-back", as_readings(VALUES[110:200], first=110))
    found = until(lambda: [one for one in events_of(client, "put-back") if one["number"] == 2])[0]
    assert found["start_time"] == START + found["start"]
    assert found["opened_at"] > event["closed_at"]
    assert (found["verdict"], found["verdict_at"]) == (None, None)


def test_a_verdict_that_comes_while_the_database_is_away_does_not_pause_its_stream(running, monkeypatch):
    service, client = running
    put(client, "ruled-late")
    post(client, "ruled-late", as_readings(VALUES[:100]))
    event = until(lambda: events_of(client, "ruled-late"))[0]
    stream, opened = service.stream("ruled-late"), service.scorer.open
    service.scorer.do(lambda: setattr(stream.scoring, "session", None)).result()

    def fail_once(stream):
        monkeypatch.setattr(service.scorer, "open", opened)
        raise StorageError("The database is away.")

    monkeypatch.setattr(service.scorer, "open", fail_once)
    assert client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"}).status_code == 503
    until(lambda: stream.scoring.known_verdict > 0)
    assert stream.scoring.session is not None
    assert not stream.row.paused
    assert events_of(client, "ruled-late")[0]["verdict"] == "normal"


def test_a_verdict_is_learned_and_shown_or_neither(running):
    service, client = running
    put(client, "both")
    post(client, "both", as_readings(VALUES[:100]))
    event = until(lambda: events_of(client, "both"))[0]
    stream, path = service.stream("both"), f"/v1/events/{event['id']}/verdict"

    @listens_for(service.store.engine, "before_cursor_execute")
    def full(connection, cursor, statement, *_):
        if statement.startswith("UPDATE events SET verdict"):
            raise StorageError("The disk is full.")

    try:
        assert client.post(path, json={"verdict": "normal"}).status_code == 503
    finally:
        remove(service.store.engine, "before_cursor_execute", full)
    assert (events_of(client, "both")[0]["verdict"], count(service, schema.verdicts, stream.id)) == (None, 0)
    said = client.post(path, json={"verdict": "normal"}).json()
    assert (said["verdict"], said["taught"], count(service, schema.verdicts, stream.id)) == ("normal", True, 1)


def test_a_verdict_on_an_event_of_a_paused_stream_takes_effect_later(running):
    _, client = running
    put(client, "while-paused")
    post(client, "while-paused", as_readings(VALUES[:100]))
    event = until(lambda: events_of(client, "while-paused"))[0]
    client.post("/v1/streams/while-paused/pause")
    said = client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"}).json()
    assert (said["verdict"], said["taught"]) == ("normal", False)
    assert said["note"] == "The stream is paused; the verdict takes effect once it is resumed."


def test_a_verdict_does_not_keep_other_requests_waiting_for_the_database(running):
    service, client = running
    put(client, "aside")
    post(client, "aside", as_readings(VALUES[:100]))
    event = until(lambda: events_of(client, "aside"))[0]
    with database_watched(service) as waiting:
        assert client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"}).status_code == 200
        assert client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "normal"}).status_code == 200
    assert waiting == []


def test_a_verdict_needs_an_event_and_a_known_word(running):
    _, client = running
    for event in ("99-1", "1-999999"):
        answer = client.post(f"/v1/events/{event}/verdict", json={"verdict": "fault"})
        assert is_refusal(answer, 404)
    for body in ({"verdict": "maybe"}, {}, [], {"verdict": "fault", "more": 1}):
        answer = client.post("/v1/events/1-1/verdict", json=body)
        assert is_refusal(answer, 422)


# -- pausing, changing, deleting ------------------------------------------------------------------------------------


def test_a_paused_stream_keeps_readings_and_scores_them_once_resumed(running, pump):
    service, client = running
    put(client, "paused")
    post(client, "paused", as_readings(VALUES[:100]))
    for _ in range(3):  # at once, while scores are on their way to the disk
        assert client.post("/v1/streams/paused/pause").json()["state"] == "paused"
        assert client.post("/v1/streams/paused/resume").json()["state"] != "paused"
    assert client.post("/v1/streams/paused/pause").json()["reason"] == "Paused by a person."
    post(client, "paused", as_readings(VALUES[100:], first=100))
    until(lambda: service.scorer.unscored == 0)
    assert settled(client, "paused", 100)["total"] == 100
    client.post("/v1/streams/paused/resume")
    assert scores_of(settled(client, "paused", 300)) == expected(pump[0], VALUES)
    assert [event["number"] for event in until(lambda: events_of(client, "paused"))] == [3, 2, 1]
    assert client.get("/readyz").status_code == 200


def test_other_settings_start_a_stream_anew_and_keep_its_history(running, pump, gappy):
    _, client = running
    put(client, "changed")
    post(client, "changed", as_readings(VALUES))
    assert put(client, "changed")["readings"] == 300
    state = put(client, "changed", budget={"rate": 0.02})
    assert state["budget"] == {"rate": 0.02}
    post(client, "changed", as_readings(VALUES, first=300))
    found = settled(client, "changed", 600)
    assert found["scores"] == expected(pump[0], VALUES)[0] * 2
    assert found["steps"] == list(range(600))
    events = until(lambda: [one for one in events_of(client, "changed") if one["number"] > 5])
    events = events_of(client, "changed")
    assert [event["number"] for event in events] == list(range(len(events), 0, -1))
    assert events[-1]["start_time"] == START + events[-1]["start"]
    assert events[0]["start"] > 500
    old = client.post(f"/v1/events/{events[-1]['id']}/verdict", json={"verdict": "normal"}).json()
    assert (old["verdict"], old["taught"]) == ("normal", False)
    assert old["note"]
    assert old["explanation"] is None
    new = client.get(f"/v1/events/{events[0]['id']}").json()
    assert new["explanation"] is not None


def test_a_stream_may_get_a_detector_with_other_variables(running, tmp_path):
    _, client = running
    file = tmp_path / "two.comet"
    Comet().fit(frame(plant(400)).select("heat", "flow")).save(file)
    upload(client, "two", file.read_bytes())
    put(client, "other")
    post(client, "other", as_readings(VALUES[:50]))
    settled(client, "other", 50)  # a detector with other variables cannot score them
    put(client, "other", detector="two")
    post(client, "other", as_readings(VALUES[50:80], first=50))
    settled(client, "other", 80)
    table = pl.read_parquet(io.BytesIO(client.get("/v1/streams/other/export?what=readings").content))
    assert table.columns == ["time", "heat", "flow"]
    assert table["flow"].to_list() == VALUES[50:80, 0].tolist()
    assert client.get("/v1/streams/other/variables").json()["variables"]
    assert client.delete("/v1/detectors/two").status_code == 409
    assert client.delete("/v1/streams/other").status_code == 204
    assert client.delete("/v1/detectors/two").status_code == 204
    assert client.get("/v1/detectors/two").status_code == 404


def test_a_deleted_stream_leaves_nothing(running):
    service, client = running
    put(client, "gone")
    stream = service.stream("gone").id
    post(client, "gone", as_readings(VALUES))
    assert client.delete("/v1/streams/gone").status_code == 204
    for path in ("", "/scores", "/events", "/variables", "/export"):
        answer = client.get(f"/v1/streams/gone{path}")
        assert is_refusal(answer, 404)
    assert client.post("/v1/streams/gone/readings", json=as_readings(VALUES[:1])).status_code == 404
    service.recorder.flush()
    for table in (schema.readings, schema.scores, schema.events, schema.snapshots, schema.verdicts):
        assert count(service, table, stream) == 0
    put(client, "gone")
    assert service.stream("gone").id != stream
    assert client.get("/v1/streams/gone").json()["readings"] == 0


def test_an_export_can_be_read_back(running):
    _, client = running
    put(client, "exported")
    empty = client.get("/v1/streams/exported/export")
    assert pl.read_parquet(io.BytesIO(empty.content)).height == 0
    post(client, "exported", as_readings(VALUES))
    found = settled(client, "exported", 300)
    answer = client.get("/v1/streams/exported/export?what=scores")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    scores = pl.read_parquet(io.BytesIO(answer.content))
    assert scores.columns == ["time", "alert_score", "threshold", "anomaly"]
    assert scores["alert_score"].to_list() == found["scores"]
    assert scores["anomaly"].to_list() == found["flags"]
    assert scores["time"].dtype == pl.Datetime("us", "UTC")
    assert scores["time"].dt.epoch("s").to_list() == found["times"]
    part = client.get(f"/v1/streams/exported/export?what=readings&from={START + 5}&to={START + 9}")
    readings = pl.read_parquet(io.BytesIO(part.content))
    assert readings.select(NAMES).to_numpy().tolist() == VALUES[5:10].tolist()


def test_a_stream_that_the_database_did_not_give_is_opened_soon(running, pump, monkeypatch):
    service, client = running
    monkeypatch.setattr(scorer, "RETRY", 0.05)
    tries, opened = [], service.scorer.open

    def fail_twice(stream):
        tries.append(stream.name)
        if len(tries) < 3:
            raise StorageError("The database is away.")
        opened(stream)

    monkeypatch.setattr(service.scorer, "open", fail_twice)
    put(client, "opened-late")
    until(lambda: service.stream("opened-late").scoring.session is not None)
    assert len(tries) == 3
    assert client.get("/v1/streams/opened-late").json()["state"] == "waiting"
    monkeypatch.undo()
    post(client, "opened-late", as_readings(VALUES[:120]))
    assert settled(client, "opened-late", 120)["scores"] == expected(pump[0], VALUES[:120])[0]


def test_a_stretch_that_is_too_large_for_one_export_is_refused(running, monkeypatch):
    _, client = running
    put(client, "large")
    post(client, "large", as_readings(VALUES[:100]))
    post(client, "large", as_readings(VALUES[100:110], first=100))
    settled(client, "large", 110)
    monkeypatch.setattr(history_queries, "MOST_BYTES", 10 * len(NAMES) * 8)  # ten readings
    assert is_refusal(client.get("/v1/streams/large/export?what=readings"))
    part = client.get(f"/v1/streams/large/export?what=readings&from={START + 100}")
    assert pl.read_parquet(io.BytesIO(part.content)).height == 10


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_stream_that_fails_is_paused_with_its_reason_and_the_others_go_on(tmp_path, pump):
    with in_process(tmp_path) as (service, client):
        upload(client, "pump", pump[1])
        for name in ("bad", "good"):
            fed(client, name, VALUES[:100])
        broken = service.stream("bad").id
    with in_process(tmp_path) as (service, client):  # closing has written snapshots
        client.post("/v1/streams/bad/pause")
        own = schema.snapshots.c.stream_id == broken
        with service.store.write() as connection:
            intact = connection.execute(select(schema.snapshots.c.content).where(own)).scalar_one()
            connection.execute(update(schema.snapshots).where(own).values(content=intact[:-40]))
        state = client.post("/v1/streams/bad/resume").json()
        assert state["state"] == "paused"
        assert state["reason"].startswith("Its state cannot be restored: ")
        for name in ("bad", "good"):
            assert post(client, name, as_readings(VALUES[100:200], first=100))["accepted"] == 100
        assert scores_of(settled(client, "good", 200)) == expected(pump[0], VALUES[:200])
        assert settled(client, "bad", 100)["total"] == 100
    with in_process(tmp_path) as (service, client):
        assert client.get("/v1/streams/bad").json()["state"] == "paused"
        with service.store.write() as connection:
            connection.execute(update(schema.snapshots).where(own).values(content=intact))
        assert client.post("/v1/streams/bad/resume").json()["state"] != "paused"
        assert scores_of(settled(client, "bad", 200)) == expected(pump[0], VALUES[:200])
        with service.store.write() as connection:
            connection.execute(update(schema.snapshots).where(own).values(content=b"damaged"))
        client.post("/v1/streams/bad/pause")
    with in_process(tmp_path) as (service, client):
        state = put(client, "bad", min_length=3)  # a way out: start anew
        assert state["state"] != "paused"
        post(client, "bad", as_readings(VALUES[:100], first=200))
        found = settled(client, "bad", 300)
        assert found["scores"][200:] == expected(pump[0], VALUES[:100])[0]
        assert [event["number"] for event in until(lambda: events_of(client, "bad"))] == [3, 2, 1]


def test_a_stream_that_cannot_be_saved_at_the_end_does_not_keep_the_others_from_it(tmp_path, pump):
    def fail():
        raise MemoryError("There is no room for a snapshot.")

    with capture_logs() as logs, in_process(tmp_path) as (service, client):
        upload(client, "pump", pump[1])
        for name in ("bad", "good"):
            fed(client, name, VALUES[:100])
        service.stream("bad").scoring.session.snapshot = fail
        good = service.stream("good").id
    assert [one["stream"] for one in logs if one["event"] == "snapshot not saved"] == ["bad"]
    with in_process(tmp_path) as (service, client):
        with service.store.read() as connection:
            rows = connection.execute(select(schema.snapshots.c.stream_id, schema.snapshots.c.seq)).all()
        assert rows == [(good, 100)]
        post(client, "bad", as_readings(VALUES[100:200], first=100))
        assert scores_of(settled(client, "bad", 200)) == expected(pump[0], VALUES[:200])


def test_a_stream_whose_detector_is_damaged_is_shown_with_its_reason(tmp_path, pump):
    with in_process(tmp_path) as (service, client):
        for name in ("pump", "copy"):
            upload(client, name, pump[1])
        put(client, "bad", detector="copy")
        put(client, "good")
        post(client, "bad", as_readings(VALUES[:50]))
        settled(client, "bad", 50)
        own = schema.detectors.c.name == "copy"
        with service.store.write() as connection:
            connection.execute(update(schema.detectors).where(own).values(content=pump[1][:-50]))
    with in_process(tmp_path) as (service, client):
        state = client.get("/v1/streams/bad").json()
        assert state["state"] == "paused"
        assert state["reason"].startswith("Its detector cannot be used: ")
        assert post(client, "bad", as_readings(VALUES[50:60], first=50))["accepted"] == 10
        refused = client.post("/v1/streams/bad/resume")
        assert is_refusal(refused, 422)
        assert post(client, "good", as_readings(VALUES[:50]))["accepted"] == 50
        settled(client, "good", 50)
        with service.store.write() as connection:
            connection.execute(update(schema.detectors).where(own).values(content=pump[1]))
        client.post("/v1/streams/bad/resume")
        assert scores_of(settled(client, "bad", 60)) == expected(pump[0], VALUES[:60])


def test_unexpected_trouble_in_a_transaction_is_told_and_the_next_one_goes_on(running):
    service, client = running
    put(client, "trouble")
    stream = service.stream("trouble")
    dates, stream.arrivals.dates = stream.arrivals.dates, None  # anything that nobody thought of
    last = {"connection": "close"}  # the server closes it after a bug
    answer = client.post("/v1/streams/trouble/readings", json=as_readings(VALUES[:1]), headers=last)
    assert answer.status_code == 500
    stream.arrivals.dates = dates
    assert post(client, "trouble", as_readings(VALUES[:5]))["accepted"] == 5
    settled(client, "trouble", 5)


def test_readings_that_were_not_stored_do_not_decide_how_times_are_written(running):
    service, client = running
    put(client, "retried")

    @listens_for(service.store.engine, "commit")
    def full(_):
        if threading.current_thread().name == "cometad-recorder":
            raise StorageError("The disk is full.")

    first = [one | {"time": f"2026-03-01T12:00:0{i}Z"} for i, one in enumerate(as_readings(VALUES[:5]))]
    try:
        assert client.post("/v1/streams/retried/readings", json=first).status_code == 503
        assert client.get("/v1/streams/retried").json()["last_received"] is None
    finally:
        remove(service.store.engine, "commit", full)
    assert post(client, "retried", as_readings(VALUES[:5]))["accepted"] == 5
    settled(client, "retried", 5)


def test_how_times_are_written_survives_a_restart(tmp_path, pump):
    def rows(*times):
        return [{"time": time, **dict(zip(NAMES, VALUES[i].tolist(), strict=True))} for i, time in enumerate(times)]

    with in_process(tmp_path) as (_, client):
        upload(client, "pump", pump[1])
        put(client, "dates")
        post(client, "dates", rows("05/05/2026"))  # day or month first, nobody knows
        post(client, "dates", rows("31/05/2026"))
    with in_process(tmp_path) as (_, client):
        assert post(client, "dates", rows("01/06/2026"))["accepted"] == 1
        assert settled(client, "dates", 3)["times"][-1] == 1_780_272_000.0


# -- retention ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks stay as they were stored, even if the machine is slow."""
    monkeypatch.setattr(upkeep, "JOIN_AFTER", 10**9)


def aged(service, client, name):
    """A stream with old and new readings, a chunk for each."""
    put(client, name)
    now = time.time()
    for days in range(40, 0, -1):
        post(client, name, as_readings(VALUES[:30], start=now - days * DAY))
        service.scorer.do(service.recorder.flush).result()
    settled(client, name, 1200)
    return service.stream(name).id, now


@pytest.mark.usefixtures("small_chunks")
def test_readings_and_scores_are_deleted_by_age_but_not_what_scoring_needs(tmp_path, pump):
    with in_process(tmp_path, keep_readings_days=10.5, keep_scores_days=20.5) as (service, client):
        upload(client, "pump", pump[1])
        stream, now = aged(service, client, "old")
        until(lambda: count(service, schema.snapshots, stream))
        service.upkeep.clean()
        with service.store.read() as connection:
            scores = history.by_number(connection, schema.scores, stream, 0, 10**6)
            readings = history.by_number(connection, schema.readings, stream, 0, 10**6)
            seq = connection.execute(select(schema.snapshots.c.seq)).scalar_one()
        assert scores.first == 19 * 30  # age counts back from the newest reading, which is a day old
        assert readings.first == min(29 * 30, seq // 30 * 30)
        assert readings.stop == scores.stop == 1200
    with in_process(tmp_path) as (service, client):  # and it goes on from there
        post(client, "old", as_readings(VALUES[:30], start=now))
        wanted = expected(pump[0], np.concatenate([VALUES[:30]] * 41))[0]
        assert settled(client, "old", 630 + 30)["scores"] == wanted[570:]
        assert client.get("/v1/streams/old").json()["readings"] == 1230


@pytest.mark.usefixtures("small_chunks")
def test_the_oldest_is_deleted_if_there_is_too_much(tmp_path, pump):
    with in_process(tmp_path, keep_readings_days=1000) as (service, client):
        upload(client, "pump", pump[1])
        stream, _ = aged(service, client, "large")
        until(lambda: count(service, schema.snapshots, stream))
        before = service.upkeep.size()
        service.upkeep.clean()
        assert service.upkeep.size() == before
        service.settings.keep_gigabytes = (before - 20_000) / 1e9
        service.upkeep.clean()
        assert service.upkeep.size() <= before - 20_000
        with service.store.read() as connection:
            scores = history.by_number(connection, schema.scores, stream, 0, 10**6)
        assert 0 < scores.first < scores.stop == 1200


@pytest.mark.usefixtures("small_chunks")
def test_on_postgresql_deleting_stops_once_little_is_left(tmp_path, pump, postgres):
    # No age limit: how much it deletes depends on when the snapshot was taken.
    with in_process(tmp_path, database=postgres(), keep_readings_days=1000) as (service, client):
        upload(client, "pump", pump[1])
        stream, _ = aged(service, client, "large")
        until(lambda: count(service, schema.snapshots, stream))
        service.settings.keep_gigabytes = 60_000 / 1e9  # of 77 kB
        service.upkeep.clean()
        with service.store.read() as connection:
            scores = history.by_number(connection, schema.scores, stream, 0, 10**6)
        assert 0 < scores.first < 600
        service.upkeep.clean()
        with service.store.read() as connection:
            assert history.by_number(connection, schema.scores, stream, 0, 10**6).first == scores.first


def test_small_chunks_are_joined_and_nothing_else_changes(running):
    service, client = running
    put(client, "joined")
    for row in as_readings(VALUES[:80]):
        post(client, "joined", row)
    found = settled(client, "joined", 80)
    stream = service.stream("joined").id
    service.upkeep.join()
    assert count(service, schema.scores, stream) < 10
    assert settled(client, "joined", 80) == found


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_too_much_waiting_is_answered_with_429(running, monkeypatch):
    service, client = running
    put(client, "busy")
    monkeypatch.setattr(recorder, "MOST_WAITING", 100)
    held = threading.Event()
    service.scorer.do(lambda: held.wait(20))
    try:
        rows = as_readings(VALUES)
        assert post(client, "busy", rows[:60])["accepted"] == 60
        until(lambda: service.scorer.unscored == 60)
        answer = client.post("/v1/streams/busy/readings", json=rows[60:120])
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert is_refusal(answer)
        state = client.get("/v1/streams/busy").json()
        assert 0 < state["lag"] < 60
        assert state["readings"] == 60
    finally:
        held.set()
    settled(client, "busy", 60)
    until(lambda: service.scorer.unscored == 0)
    assert post(client, "busy", rows[60:120])["accepted"] == 60
    never = client.post("/v1/streams/busy/readings", json=rows[120:280])
    assert never.status_code == 422  # sending it again would not help
    assert is_refusal(never)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, pump):
    """A service with small bounds."""
    bounds = {"max_body_mib": 0.01, "max_upload_mib": 1, "max_streams": 2, "max_detectors": 2}
    with in_process(tmp_path_factory.mktemp("narrow"), **bounds) as (service, client):
        upload(client, "pump", pump[1])
        put(client, "one")
        yield service, client


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "kind", "size"),
    [
        ("POST", "/v1/streams/one/readings", "application/json", 20_000),
        ("POST", "/v1/readings", "application/x-ndjson", 20_000),
        ("PUT", "/v1/streams/two", "application/json", 20_000),
        ("POST", "/v1/events/1-1/verdict", "application/json", 20_000),
        ("PUT", "/v1/detectors/new", "application/octet-stream", 2_000_000),
        ("POST", "/v1/detectors/new/fit", "text/csv", 2_000_000),
    ],
)
def test_a_body_that_is_too_large_is_refused(narrow, method, path, kind, size, chunked):
    _, client = narrow
    content = (b" " * 1000 for _ in range(size // 1000)) if chunked else b" " * size
    answer = client.request(method, path, content=content, headers={"content-type": kind})
    assert is_refusal(answer, 413)


def test_there_are_only_so_many_streams_and_detectors(narrow, pump):
    _, client = narrow
    put(client, "two")
    for answer in (
        client.put("/v1/streams/three", json={"detector": "pump"}),
        [upload(client, "second", pump[1]), client.put("/v1/detectors/third", content=pump[1])][1],
    ):
        assert is_refusal(answer, 409)
    put(client, "two", min_length=4)
    upload(client, "second", pump[1])


def test_a_client_that_asks_too_often_is_told_to_wait(tmp_path):
    with in_process(tmp_path, max_requests_per_second=2) as (_, client):
        answers = [client.get("/healthz") for _ in range(8)]
    assert [answer.status_code for answer in answers][:4] == [200] * 4
    refused = next(answer for answer in answers if answer.status_code == 429)  # a slow machine earns some more
    assert int(refused.headers["retry-after"]) >= 1
    assert is_refusal(refused)


NAME_PROBLEMS = ["-x", ".x", "a" * 101, "a b", "ü", "a%00b", "a%0a"]


@pytest.mark.parametrize("name", NAME_PROBLEMS)
def test_names_are_bounded(narrow, name):
    _, client = narrow
    for answer in (
        client.put(f"/v1/streams/{name}", json={"detector": "pump"}),
        client.put(f"/v1/detectors/{name}", content=b"x"),
        client.get(f"/v1/streams/{name}"),
    ):
        assert is_refusal(answer, 422)


@pytest.mark.parametrize("settings", [{"detector": "pump", "longest": 0}, {"detector": "../pump"}, 7])
def test_bad_settings_change_nothing(narrow, settings):
    _, client = narrow
    assert is_refusal(client.put("/v1/streams/one", json=settings), 422)
    assert client.get("/v1/streams/one").json()["settings"]["detector"] == "pump"


@pytest.mark.parametrize(
    "budget",
    [
        *({"alerts": 0}, {"alerts": 2000}, {"alerts": 11, "per": 10}, {"alerts": 1, "per": -1}, {"per": 1000}),
        *({"alerts_per_day": -3}, {"rate": 1}, {}, "spot"),
    ],
)
def test_a_bad_budget_is_refused_with_what_to_write_instead(narrow, budget):
    _, client = narrow
    answer = client.put("/v1/streams/one", json={"detector": "pump", "budget": budget})
    assert answer.status_code == 422
    wanted = 'Write "1/1000", "3/day", {"alerts": 1, "per": 1000}, {"alerts_per_day": 3} or {"rate": 0.01}.'
    assert wanted in answer.json()["error"]


def test_a_budget_can_be_said_as_on_the_command_line(running):
    _, client = running
    put(client, "words", budget="2/500,3/day", period="60s")
    assert client.get("/v1/streams/words").json()["settings"]["budget"] == {
        "rate": None,
        "alerts": 2.0,
        "per": 500.0,
        "alerts_per_day": 3.0,
    }
    answer = client.put("/v1/streams/words", json={"detector": "pump", "budget": "0/day"})
    assert answer.status_code == 422
    assert "The budget '0/day' is not above 0" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/v1/streams/none", "/v1/events/9-9", "/v1/detectors/none", "/page/../app.py", "/v1/events/x"),
        *("/v1/streams/one/scores?from=noon", "/v1/streams/one/scores?points=1", "/v1/streams/one/scores?to=nan"),
        *("/v1/streams?recent=1000", "/v1/live?streams=a,,b", "/v1/streams/one/export?what=all", "/v1/events?limit=0"),
    ],
)
def test_every_refusal_is_a_sentence(narrow, path):
    _, client = narrow
    answer = client.get(path)
    assert is_refusal(answer, 404, 422)
    assert is_refusal(client.request("PATCH", path))


@pytest.mark.parametrize("content", [b"", b"not a detector", b"PK\x03\x04"])
def test_a_file_that_is_no_detector_is_refused(narrow, pump, content):
    _, client = narrow
    for bad in (content, pump[1][:-30], pump[1][:500] + b"\0\1\2" + pump[1][503:]):
        answer = client.put("/v1/detectors/pump2", content=bad)
        assert is_refusal(answer, 409, 422)


def test_a_detector_is_taken_without_a_temporary_file(running, pump, monkeypatch, tmp_path):
    _, client = running
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    upload(client, "no-file", pump[1])
    put(client, "no-file", detector="no-file")
    damaged = client.put("/v1/detectors/no-file-2", content=pump[1][:-30])
    assert damaged.json() == {"error": "The file is not a complete saved Comet. Pass a file written by save."}


def test_a_detector_may_be_replaced_while_a_stream_asks_for_it(running, pump, gappy, monkeypatch):
    service, client = running
    upload(client, "swapped", pump[1])
    settings = StreamSettings(detector="swapped", budget={"rate": 0.02})
    swap = threading.Thread(target=service.detectors.add, args=("swapped", gappy[1]))

    with_threshold = Comet.with_threshold

    def swapped_meanwhile(detector, threshold):  # between two looks at what is open
        swap.start()
        swap.join(1)  # it may have to wait until the stream has its detector
        return with_threshold(detector, threshold)

    monkeypatch.setattr(Comet, "with_threshold", swapped_meanwhile)
    assert service.detectors.for_stream(settings)[0].gaps == pump[0].gaps
    swap.join()
    monkeypatch.undo()
    assert service.detectors.for_stream(settings)[0].gaps == gappy[0].gaps


def test_a_detector_that_is_used_is_neither_replaced_nor_deleted(narrow, pump):
    _, client = narrow
    for answer in (client.put("/v1/detectors/pump", content=pump[1]), client.delete("/v1/detectors/pump")):
        assert is_refusal(answer, 409)
    state = client.get("/v1/detectors/pump").json()
    assert (state["state"], state["kind"], state["variables"]) == ("ready", "Comet", NAMES)
    assert state["bytes"] == len(pump[1])


# -- fitting --------------------------------------------------------------------------------------------------------


def fitted(client, name):
    def ended():
        state = client.get(f"/v1/detectors/{name}").json()
        return state if state["state"] != "fitting" else None

    return until(ended, 90)


def test_a_fit_that_fails_leaves_the_detector_that_was_there(running, pump):
    _, client = running
    upload(client, "kept", pump[1])
    sent = client.post("/v1/detectors/kept/fit", content="flow\nhigh\n", headers={"content-type": "text/csv"})
    assert sent.status_code == 202
    state = fitted(client, "kept")
    assert state["state"] == "ready"
    assert is_a_sentence(state["error"])
    assert state["sha256"] == hashlib.sha256(pump[1]).hexdigest()
    put(client, "of-kept", detector="kept")


def test_detectors_are_fitted_in_the_background(running):
    service, client = running
    table = frame(plant(300))
    bodies = {
        "from-lines": ("application/x-ndjson", table.write_ndjson().encode()),
        "from-nothing": ("text/csv", b"flow,level\nx,y\n"),
    }
    for name, (kind, body) in bodies.items():
        answer = client.post(
            f"/v1/detectors/{name}/fit?gaps=forward-fill", content=body, headers={"content-type": kind}
        )
        assert answer.status_code == 202, answer.text
        assert answer.json()["state"] == "fitting"
    assert client.put("/v1/streams/early", json={"detector": "from-lines"}).status_code == 409
    states = {name: fitted(client, name) for name in bodies}
    ready = states["from-lines"]
    assert (ready["state"], ready["variables"], ready["progress"]) == ("ready", NAMES, 1.0)
    assert states["from-nothing"]["state"] == "failed"
    assert states["from-nothing"]["error"].endswith(".")
    assert "/" not in states["from-nothing"]["error"]
    fed(client, "fresh", VALUES[:30], detector="from-lines")
    assert list((service.settings.data_dir / "fits").iterdir()) == []
    bad = client.post("/v1/detectors/x/fit?gaps=often", content=b"a", headers={"content-type": "text/csv"})
    assert is_refusal(bad, 422)


def test_only_so_many_fits_may_wait(running, monkeypatch):
    _, client = running
    monkeypatch.setattr(stored_detectors, "MOST_FITS", 1)

    def begin(name):
        body = b"flow,level\nx,y\n"  # cannot be fitted, which is found out quickly
        return client.post(f"/v1/detectors/{name}/fit", content=body, headers={"content-type": "text/csv"})

    assert begin("first-fit").status_code == 202
    refused = begin("second-fit")
    assert is_refusal(refused, 409)
    assert client.get("/v1/detectors/second-fit").status_code == 404
    assert fitted(client, "first-fit")["state"] == "failed"
    assert begin("second-fit").status_code == 202
    assert client.delete("/v1/detectors/second-fit").status_code == 204


# -- live -----------------------------------------------------------------------------------------------------------


def heard(lines):
    """Messages of a stream of server-sent events, one by one."""
    kind = None
    for line in lines:
        if line.startswith("event:"):
            kind = line.partition(":")[2].strip()
        elif line.startswith("data:"):
            yield kind, json.loads(line.partition(":")[2])


def test_live_tells_scores_events_and_states_as_they_come(running, pump):
    _, client = running
    put(client, "heard")
    put(client, "unheard")
    with client.stream("GET", "/v1/live?streams=heard,later") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        messages = heard(answer.iter_lines())
        for name in ("unheard", "heard"):
            post(client, name, as_readings(VALUES[:110]))
        put(client, "later")
        client.post("/v1/streams/heard/pause")
        client.post("/v1/streams/heard/resume")
        settled(client, "heard", 110)
        (event,) = until(lambda: events_of(client, "heard"))
        client.post(f"/v1/events/{event['id']}/verdict", json={"verdict": "fault"})
        client.delete("/v1/streams/later")
        seen = {"scores": [], "event": [], "stream": []}
        for kind, data in messages:
            seen[kind].append(data)
            points = [point for one in seen["scores"] for point in one["streams"]["heard"]["points"]]
            if len(points) == 110 and any("deleted" in one for one in seen["stream"]):
                break
    assert {name for one in seen["scores"] for name in one["streams"]} == {"heard"}
    alerts, thresholds, flags = expected(pump[0], VALUES[:110])
    times = [START + i for i in range(110)]
    assert points == [list(point) for point in zip(times, alerts, thresholds, flags, strict=True)]
    changes = [one["change"] for one in seen["event"]]
    assert (changes[0], changes[-2:]) == ("opened", ["closed", "verdict"])
    assert seen["event"][-1]["verdict"] == "fault"
    assert [(one["name"], one.get("state")) for one in seen["stream"]] == [
        ("later", "waiting"),
        ("heard", "paused"),
        ("heard", "normal"),
        ("later", None),
    ]


def test_listeners_are_shown_a_block_of_scores_once_it_is_complete(running):
    service, client = running
    fed(client, "blocks", VALUES[:100])
    stream, box = service.stream("blocks"), service.listeners.join(frozenset({"blocks"}))
    before = client.get("/v1/streams/blocks").json()

    def half_a_block():  # as the scorer does it; everybody else may look at any moment
        stream.scoring.last.add(np.full(2000, START), np.full((2000, 3), 99.0))
        box.add_points(stream, np.array([START]), np.full((1, 3), 99.0))

    service.scorer.do(half_a_block).result()
    shown = box.fetch()[0]["blocks"]
    service.listeners.leave(box)
    numbers = ("score", "threshold", "flagged", "top", "budget_used", "drift")
    assert json.loads(json.dumps([shown[name] for name in numbers])) == [before[name] for name in numbers]
    service.scorer.do(stream.publish).result()
    assert client.get("/v1/streams/blocks").json()["score"] == 99.0


def test_live_connections_end_when_the_service_stops(tmp_path):
    lines = []
    with in_process(tmp_path) as (service, client):

        def listen():
            own = httpx.Client(base_url=client.base_url, timeout=20, trust_env=False)
            with own, own.stream("GET", "/v1/live") as answer:
                lines.extend(answer.iter_lines())

        thread = threading.Thread(target=listen)
        thread.start()
        until(lambda: len(service.listeners) == 1)
    thread.join(10)
    assert not thread.is_alive()


def test_a_live_connection_ends_once_its_token_is_revoked(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "CHECK", 0.2)
    with in_process(tmp_path) as (service, client):
        service.tokens.create("stays", "admin")
        secret = service.tokens.create("goes", "read")

        def listen():
            own = httpx.Client(base_url=client.base_url, timeout=WAIT, trust_env=False)
            with own, own.stream("GET", "/v1/live", headers={"authorization": f"Bearer {secret}"}) as answer:
                assert answer.status_code == 200
                for _ in answer.iter_lines():
                    pass

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        until(lambda: len(service.listeners) == 1)
        time.sleep(0.5)  # longer than it takes to notice a revoked token
        assert len(service.listeners) == 1
        service.tokens.revoke("goes")
        until(lambda: len(service.listeners) == 0)
        thread.join(WAIT)
        assert not thread.is_alive()


def test_figures_are_there_for_prometheus(running):
    _, client = running
    fed(client, "measured", VALUES[:50])
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'anomaly_score{stream="measured"}' in page.text
    assert 'cometad_readings_total{result="accepted"}' in page.text


def test_a_silent_stream_says_so(running):
    service, client = running
    fed(client, "silent", VALUES[:5], period="500ms")
    service.stream("silent").arrivals.last_received -= 60
    state = client.get("/v1/streams/silent").json()
    assert state["state"] == "silent"
    assert state["reason"].startswith("No reading for 6")


def test_rows_of_other_streams_in_the_database_do_no_harm(running):
    service, client = running
    with service.store.write() as connection:
        connection.execute(delete(schema.events).where(schema.events.c.stream_id == 12345))
        row = {"stream_id": 12345, "first": 0, "count": 1, "first_at": 1.0, "last_at": 1.0}
        connection.execute(insert(schema.scores), [{**row, "ats": b"\0" * 8, "cells": b"\0" * 24}])
    assert client.get("/v1/events").status_code == 200
