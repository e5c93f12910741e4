"""A fleet behind the service: an entity becomes a stream with its first reading, and stays one."""

import pytest

from cometad import Fleet
from cometad.cli import main
from cometad.serve.fleet_streams import stream_name
from cometad.serve.models import is_name
from serve_case import as_readings, expected, frame, in_process, plant, settled

ENTITIES = ("pump-1", "hall 2/pump", "zürich")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a fleet, some of whose names the API does not allow."""
    folder = tmp_path_factory.mktemp("fleet") / "fleet"
    Fleet.fit({name: frame(plant(400, seed)) for seed, name in enumerate(ENTITIES)}, folder=folder, engine="serial")
    return folder


def test_a_stream_is_opened_with_its_first_reading_and_scored_like_its_detector(folder, tmp_path):
    values = plant(60, seed=9)
    fleet = Fleet.load(folder)
    with in_process(tmp_path, fleet=folder) as (_, client):
        assert client.get("/v1/streams").json()["streams"] == []
        assert client.post("/v1/streams/pump-1/readings", json=as_readings(values)).json()["accepted"] == 60
        assert [stream["name"] for stream in client.get("/v1/streams").json()["streams"]] == ["pump-1"]
        lines = [{"stream": stream_name(name), **row} for name in ENTITIES[1:] for row in as_readings(values)]
        assert client.post("/v1/readings", json=lines).json()["accepted"] == 120
        for name in ENTITIES:
            found = settled(client, stream_name(name), 60)
            assert found["scores"] == expected(fleet[name], frame(values))[0]
    with in_process(tmp_path) as (_, client):  # later, also without the fleet
        assert len(client.get("/v1/streams").json()["streams"]) == 3
        assert client.post("/v1/streams/pump-1/readings", json=as_readings(values[:5], 60)).json()["accepted"] == 5


def test_an_entity_that_the_fleet_lacks_is_an_unknown_stream(folder, tmp_path):
    with in_process(tmp_path, fleet=folder) as (_, client):
        assert client.post("/v1/streams/pump-9/readings", json=as_readings(plant(1))).status_code == 404
        assert client.get("/v1/streams/pump-1").status_code == 404  # to look at it opens nothing
        assert client.get("/v1/streams").json()["streams"] == []


def test_a_stream_that_cannot_be_opened_is_refused_with_the_reason(folder, tmp_path):
    with in_process(tmp_path, fleet=folder, max_streams=1) as (_, client):
        assert client.post("/v1/streams/pump-1/readings", json=as_readings(plant(1))).status_code == 200
        name = stream_name("zürich")
        answer = client.post(f"/v1/streams/{name}/readings", json=as_readings(plant(1)))
        assert answer.status_code == 404
        assert "The fleet cannot open it: " in answer.text
        mixed = client.post("/v1/readings", json=[{"stream": name, **as_readings(plant(1))[0]}])
        assert "The fleet cannot open it: " in mixed.text


@pytest.mark.parametrize("name", ["a/b", "a b", "", "é", "..", "-x", "x" * 200, "a\nb", "漢字"])
def test_a_name_that_the_api_does_not_allow_becomes_one_that_it_does(name):
    assert is_name(stream_name(name))
    assert stream_name(stream_name(name)) == stream_name(name) != stream_name(name + "!")


def test_check_says_what_a_fleet_would_do_and_refuses_another_folder(folder, tmp_path, capsys):
    assert main(["serve", "--check", "--data-dir", str(tmp_path / "data"), "--fleet", str(folder)]) == 0
    assert "It would open streams of 3 entities" in capsys.readouterr().out
    assert main(["serve", "--check", "--data-dir", str(tmp_path / "data"), "--fleet", str(tmp_path)]) == 2
    assert "is not the folder of a fleet" in capsys.readouterr().err
