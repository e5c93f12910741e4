"""Draw the pictures of docs/live.md: each view of the dashboard on a desktop and on a phone, of a real service.

    python bench/scripts/draw_dashboard.py

It starts `cometad serve` in a temporary folder and feeds nine streams of the synthetic plant. Needs Chromium and the
`dev` extra.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import polars as pl
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from cometad import Comet
from cometad.datasets.synthetic import synthetic_plant

TARGET = Path(__file__).parents[2] / "docs" / "images"
WIDTHS, HEIGHT = (1280, 390), 1400  # pixels; the height at most
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
STREAMS = [f"line-{number}" for number in range(1, 10)]
ROWS, PERIOD = 2000, 1.0  # readings of each stream, and seconds between them
SETTINGS = {"detector": "line", "period": "60s"}
QUIET = 1.0  # seconds for a page to draw


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cometad", "serve", "--port=0", f"--data-dir={folder}/data"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                said = next(line for line in process.stderr if "Open http" in line)
                url = said.split("Open ")[1].split()[0]
                with httpx.Client(base_url=url, timeout=60) as client:
                    views = prepare(client, Path(folder))
                draw(url, views)
            finally:
                process.terminate()


def prepare(client: httpx.Client, folder: Path) -> dict[str, str]:
    """Fill the service; returns the address of each view."""
    plant = synthetic_plant(seed=1)
    Comet().fit(plant.frames()[0]).save(folder / "line.comet")
    client.put("/v1/detectors/line", content=(folder / "line.comet").read_bytes()).raise_for_status()
    first = plant.faults[0].start
    now = time.time()
    for number, name in enumerate(STREAMS):
        client.put(f"/v1/streams/{name}", json=SETTINGS).raise_for_status()
        # Each line is at another place of the series; the last one ends in the middle of the first fault.
        stop = first + 40 if name == STREAMS[-1] else ROWS + 350 * number
        rows = plant.test[max(stop - ROWS, 0) : stop]
        times = now - PERIOD * np.arange(len(rows) - 1, -1, -1)
        frame = pl.DataFrame(rows, plant.names).with_columns(pl.Series("time", times))
        for part in frame.iter_slices(500):
            client.post(f"/v1/streams/{name}/readings", json=part.rows(named=True)).raise_for_status()
    events = client.get("/v1/events?limit=100").json()["events"]
    while not events:
        time.sleep(0.2)
        events = client.get("/v1/events?limit=100").json()["events"]
    worst = max(events, key=lambda event: event["severity"] * (event["state"] == "closed"))
    client.post(f"/v1/events/{worst['id']}/verdict", json={"verdict": "fault"}).raise_for_status()
    return {
        "fleet": "#/",
        "stream": f"#/streams/{worst['stream']}",
        "event": f"#/events/{worst['id']}",
        "detectors": "#/detectors",
    }


def draw(url: str, views: dict[str, str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, address in views.items():
            for width in WIDTHS:
                file = TARGET / f"serve-{name}-{width}.png"
                picture = shot(browser, f"{url}/{address}", width)
                picture.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
                print(f"Wrote {file.name}: {file.stat().st_size / 1000:.0f} kB.")
        browser.close()


def shot(browser: Browser, address: str, width: int) -> Image.Image:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector("h1")
    page.wait_for_timeout(1000 * QUIET)
    used = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return picture.crop((0, 0, width, min(HEIGHT, round(used))))


if __name__ == "__main__":
    main()
