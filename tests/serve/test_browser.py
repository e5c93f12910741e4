"""The page in a browser, served by the real service: on a desktop and a phone, by mouse and by keyboard."""

import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import expect

from cometad import Comet
from serve_case import Server, until

NAMES = ("flow", "pressure", "speed")
PHONE = 390
STREAMS = ("pump-1", "pump-2", "pump-3", "pump-4")
PERIOD = 60.0  # seconds between readings: streams are silent after ten times that
ROWS, FAULTS = 1200, ((500, 540), (900, 940))  # readings, and where pump-1 has faults; that of pump-2 has not ended


class Shown(NamedTuple):
    """A page in a browser, with its requests to other sites and its console messages."""

    page: object
    address: str
    elsewhere: list
    messages: list

    def go(self, route: str) -> None:
        self.page.goto("about:blank")  # else only the route would change
        self.page.goto(f"{self.address}/#/{route}")
        expect(self.page.locator("#connection")).to_have_text("Live")


def readings(rows: int, faults=(), seed: int = 0) -> np.ndarray:
    """A plant of three variables (time, variable); in a fault the flow stays where it was."""
    rng = np.random.default_rng(seed)
    flow = 4 + np.sin(np.arange(rows) / 7)
    values = np.stack([flow, 0.5 * flow + 1, 10 - flow], axis=1) + rng.normal(0, 0.05, (rows, 3))
    for start, stop in faults:
        values[start:stop, 0] = values[start, 0] + 3
    return values


def table(values: np.ndarray, end: float) -> bytes:
    """The readings as CSV, of which the last is at `end`."""
    times = end - PERIOD * np.arange(len(values))[::-1]
    return pl.DataFrame({"time": times, **dict(zip(NAMES, values.T, strict=True))}).write_csv().encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "pump.comet"
    Comet().fit(pl.DataFrame(readings(1500, seed=1), schema=list(NAMES))).save(path)
    return path


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    """A service with a few streams: past events, an open event, a paused one, one without readings."""
    with Server(tmp_path_factory.mktemp("data")) as server:
        client = server.client
        client.put("/v1/detectors/pump", content=model.read_bytes()).raise_for_status()
        for name in STREAMS:
            settings = {"detector": "pump", "budget": {"rate": 0.01}, "merge_gap": 20, "min_length": 3, "late": "drop"}
            client.put(f"/v1/streams/{name}", json=settings).raise_for_status()
        send(client, "pump-1", readings(ROWS, FAULTS))
        send(client, "pump-2", readings(ROWS, [(ROWS - 40, ROWS)], seed=2))
        send(client, "pump-3", readings(300, seed=3))
        client.post("/v1/streams/pump-3/pause").raise_for_status()
        until(lambda: client.get("/v1/streams/pump-1").json()["events"] >= 2)
        until(lambda: client.get("/v1/streams/pump-2").json()["open_event"])
        yield client


def send(client, name: str, values: np.ndarray) -> None:
    kind = {"content-type": "text/csv"}
    client.post(f"/v1/streams/{name}/readings", content=table(values, time.time()), headers=kind).raise_for_status()


@contextmanager
def opened(browser, address, width=1280, scheme="light"):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    elsewhere, messages = [], []
    page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith(address) else None)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    yield Shown(page, address, elsewhere, messages)
    page.close()
    assert elsewhere == []
    assert messages == []


@pytest.fixture
def shown(browser, client):
    with opened(browser, str(client.base_url).rstrip("/")) as shown:
        yield shown


@pytest.fixture(params=["light", "dark"])
def phone(request, browser, client):
    with opened(browser, str(client.base_url).rstrip("/"), PHONE, request.param) as shown:
        yield shown


def rows(page):
    return page.locator(".fleet tbody tr")


def latest_event(client, stream: str) -> dict:
    return client.get(f"/v1/streams/{stream}/events").json()["events"][0]


def test_the_fleet_shows_open_events_first(shown):
    shown.go("")
    expect(shown.page.get_by_role("heading", level=1)).to_contain_text("1 of 4 streams has an open event")
    expect(rows(shown.page)).to_have_count(len(STREAMS))
    expect(rows(shown.page).first).to_contain_text("pump-2")
    expect(rows(shown.page).first).to_contain_text("Event")
    assert rows(shown.page).first.locator(".spark .score").get_attribute("d").count("L") > 10


def test_the_fleet_is_sorted_by_the_column_that_is_clicked(shown):
    shown.go("")
    head = shown.page.get_by_role("columnheader", name="Stream")
    for order, first in (("ascending", "pump-1"), ("descending", "pump-4")):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", order)
        expect(rows(shown.page).first).to_contain_text(first)


def test_the_fleet_is_filtered_by_text_and_by_state(shown):
    shown.go("")
    shown.page.get_by_label("Filter by text").fill("PUMP-3")
    expect(rows(shown.page)).to_have_count(1)
    shown.page.get_by_label("Filter by text").fill("")
    shown.page.get_by_role("button", name="Paused").click()
    expect(rows(shown.page)).to_have_count(1)
    expect(rows(shown.page)).to_contain_text("pump-3")
    shown.page.get_by_label("Filter by text").fill("nothing has this name")
    expect(shown.page.get_by_text("No stream matches the filter.")).to_be_visible()


def test_new_readings_appear_without_a_reload(shown, client):
    shown.go("streams/pump-4")
    expect(shown.page.get_by_text("There are no scores yet.")).to_be_visible()
    send(client, "pump-4", readings(200, seed=5))
    expect(shown.page.locator(".state")).to_have_text("Normal")
    expect(shown.page.get_by_role("img", name=re.compile("^Scores from"))).to_be_visible()
    expect(shown.page.locator("#score .readout")).to_contain_text("threshold")


def test_a_stream_shows_its_score_variables_and_events(shown):
    shown.go("streams/pump-1")
    expect(shown.page.get_by_role("img", name=re.compile(r"^Scores from .* events?\."))).to_be_visible()
    for name in NAMES:
        expect(shown.page.get_by_role("img", name=re.compile(f"^{name}: observed and expected"))).to_be_visible()
    events = shown.page.get_by_role("region", name="Events", exact=True).get_by_role("table")
    expect(events.get_by_role("link", name="Event 1 of pump-1")).to_be_visible()
    shown.page.get_by_role("button", name="All").click()
    expect(shown.page.locator(".badges a")).not_to_have_count(0)


def test_a_drag_zooms_into_history_and_live_returns(shown):
    shown.go("streams/pump-1")
    shown.page.get_by_role("button", name="All").click()
    expect(shown.page.locator(".badges a", has_text="1")).to_be_visible()  # it is older than what Live shows
    chart = shown.page.locator("#score .u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    shown.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
    shown.page.mouse.up()
    shown.page.wait_for_url(re.compile(r"from=[\d.]+&to=[\d.]+"))
    start, stop = map(float, re.search(r"from=([\d.]+)&to=([\d.]+)", shown.page.url).groups())
    assert stop - start == pytest.approx(0.3 * ROWS * PERIOD, rel=0.1)
    shown.page.get_by_role("button", name="Live", exact=True).click()
    expect(shown.page).to_have_url(f"{shown.address}/#/streams/pump-1")


def test_a_stream_is_paused_and_resumed_by_keyboard(shown):
    shown.go("streams/pump-1")
    for verb, state in (("Pause", "Paused"), ("Resume", "Normal")):
        shown.page.get_by_role("button", name=verb).focus()
        shown.page.keyboard.press("Enter")
        expect(shown.page.locator(".state")).to_have_text(state)
    expect(shown.page.get_by_role("button", name="Pause")).to_be_focused()


def test_an_event_is_explained(shown, client):
    shown.go(f"events/{latest_event(client, 'pump-1')['id']}")
    expect(shown.page.get_by_role("heading", level=1)).to_contain_text("pump-1: unusual flow")
    expect(shown.page.get_by_role("img", name=re.compile("^flow: observed and expected"))).to_be_visible()
    expect(shown.page.get_by_role("region", name="What was expected")).to_contain_text("it read")
    expect(shown.page.get_by_role("region", name="Similar events", exact=True)).to_contain_text("pump-1")


def test_a_verdict_is_given_and_withdrawn_by_keyboard(shown, client):
    event = latest_event(client, "pump-1")["id"]
    shown.go(f"events/{event}")
    for name, said, verdict in (
        ("It was normal", "Verdict saved: normal.", "normal"),
        ("It was a fault", "Verdict saved: fault.", "fault"),
        ("Withdraw the verdict", "Verdict withdrawn.", None),
    ):
        shown.page.get_by_role("button", name=name).focus()
        shown.page.keyboard.press("Enter")
        expect(shown.page.get_by_text(said)).to_be_visible()
        assert client.get(f"/v1/events/{event}").json()["verdict"] == verdict
    expect(shown.page.get_by_role("button", name="Withdraw the verdict")).to_have_count(0)


def test_the_keyboard_alone_leads_from_the_fleet_to_a_stream(shown):
    shown.go("")
    expect(rows(shown.page).first).to_be_visible()
    shown.page.keyboard.press("Tab")
    expect(shown.page.get_by_text("Skip to the content")).to_be_focused()
    shown.page.keyboard.press("Enter")
    expect(shown.page.get_by_role("heading", level=1)).to_be_focused()
    for _ in range(40):
        shown.page.keyboard.press("Tab")
        if shown.page.evaluate("document.activeElement.matches('.fleet td.name a')"):
            break
    shown.page.keyboard.press("Enter")
    expect(shown.page).to_have_url(re.compile("#/streams/pump-2"))
    expect(shown.page.get_by_role("heading", level=1, name="pump-2")).to_be_focused()


def test_opened_events_are_announced(shown, client):
    shown.go("")
    name = "pump-5"
    client.put(f"/v1/streams/{name}", json={"detector": "pump", "min_length": 3}).raise_for_status()
    send(client, name, readings(400, [(360, 400)], seed=6))
    expect(shown.page.locator("#announcer")).to_contain_text("Alert on pump-5", timeout=20_000)
    client.delete(f"/v1/streams/{name}").raise_for_status()
    expect(rows(shown.page)).to_have_count(len(STREAMS))


def test_a_detector_is_uploaded_and_gets_a_stream(shown, client, model):
    shown.go("detectors")
    upload = shown.page.get_by_role("region", name="Upload a detector")
    upload.get_by_label("Name").fill("valve")
    upload.get_by_label("File").set_input_files(model)
    upload.get_by_role("button", name="Upload").click()
    expect(upload.get_by_text("Uploaded valve.")).to_be_visible()
    create = shown.page.get_by_role("region", name="Create a stream")
    create.get_by_label("Name").fill("valve-1")
    create.get_by_label("Detector").select_option("valve")
    create.get_by_label("Budget").select_option("Alerts a day")
    create.get_by_label("Amount").fill("3")
    create.get_by_label("Period").fill("60s")
    create.get_by_role("button", name="Create the stream").click()
    expect(shown.page.get_by_role("heading", level=1, name="valve-1")).to_be_visible()
    assert client.get("/v1/streams/valve-1").json()["budget"] == {"alerts_per_day": 3.0}
    shown.page.get_by_role("button", name="Delete").click()
    shown.page.get_by_role("button", name="Delete the stream").click()
    expect(rows(shown.page)).to_have_count(len(STREAMS))


def test_a_detector_is_fitted_from_a_file(shown):
    shown.go("detectors")
    fit = shown.page.get_by_role("region", name="Fit a detector")
    fit.get_by_label("Name", exact=True).fill("fitted")
    content = table(readings(600, seed=7), 1.7e9)
    fit.get_by_label("File").set_input_files({"name": "normal.csv", "mimeType": "text/csv", "buffer": content})
    fit.get_by_role("button", name="Fit").click()
    row = shown.page.get_by_role("row", name=re.compile("fitted"))
    expect(row).to_contain_text("Ready", timeout=60_000)


def test_nothing_is_wider_than_a_phone(phone, client):
    routes = ("", "events", "detectors", "streams/pump-1", f"events/{latest_event(client, 'pump-1')['id']}")
    for route in routes:
        phone.go(route)
        expect(phone.page.get_by_role("heading", level=1)).to_be_visible()
        phone.page.wait_for_timeout(700)  # live charts never rest, so there is no event to wait for
        assert phone.page.evaluate("document.documentElement.scrollWidth") == PHONE, route
        overflow = phone.page.evaluate(
            "[...document.querySelectorAll('.scroll')].map(region => region.scrollWidth - region.clientWidth)"
        )
        assert not any(overflow), route


def test_colors_follow_the_color_scheme(browser, client):
    grounds = {}
    for scheme in ("light", "dark"):
        with opened(browser, str(client.base_url).rstrip("/"), scheme=scheme) as shown:
            shown.go("streams/pump-1")
            expect(shown.page.locator("#score canvas")).to_be_visible()
            grounds[scheme] = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]


def test_a_lost_connection_is_shown_and_found_again(browser, tmp_path):
    with Server(tmp_path) as server:
        page = browser.new_page()
        page.goto(server.url)
        expect(page.locator("#connection")).to_have_text("Live")
    expect(page.get_by_text("Connection lost, retrying")).to_be_visible()
    with Server(tmp_path, f"--port={server.url.rsplit(':', 1)[1]}"):
        expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)
        expect(page.get_by_text("Connection lost")).to_have_count(0)
    page.close()


def test_a_new_service_says_what_to_do_and_shows_the_demo(browser, tmp_path):
    with Server(tmp_path) as server, opened(browser, server.url) as shown:
        shown.go("")
        expect(shown.page.get_by_role("heading", level=1, name="No streams yet")).to_be_visible()
        expect(shown.page.get_by_text(f"{server.url}/v1/streams/pump-7/readings")).to_be_visible()
        shown.page.get_by_role("button", name="Try it").click()
        expect(shown.page.get_by_role("heading", level=1, name="demo")).to_be_visible(timeout=60_000)
        expect(shown.page.locator(".state")).to_have_text(re.compile("Normal|Event"), timeout=30_000)
        first = shown.page.locator("#score .readout").text_content()
        expect(shown.page.locator("#score .readout")).not_to_have_text(first)


def test_a_token_is_asked_for_and_forgotten_on_leaving(browser, tmp_path):
    create = [sys.executable, "-m", "cometad", "token", "create", "viewer", "--scope", "read", "--data-dir", "data"]
    said = subprocess.run(create, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=120).stdout
    token = max(said.split(), key=len)
    with Server(tmp_path) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator(".said.failed")).to_be_visible()
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="No streams yet")).to_be_visible()
        expect(page.get_by_role("button", name="Try it")).to_be_disabled()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.close()
