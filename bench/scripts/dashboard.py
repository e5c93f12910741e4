"""Measure the dashboard in a real browser: first paint, and whether it keeps up with live scores of many streams.

    python bench/scripts/dashboard.py [--streams 500] [--seconds 20] [--width 390]

Needs Chromium and the `dev` extra.
"""

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from serve import Gateway, create_streams, row, table, warm_up
from serving import HOST, Service, fitted, served

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
PER_SECOND = 10  # batches, and so messages of the service
# Notes when the first row is there, how late each live message is read, and the time between frames.
WATCH = """
  window.seen = {rows: null, lags: [], gaps: []};
  const parse = JSON.parse;
  JSON.parse = text => {
    const found = parse(text);
    if (found && found.at && found.streams) seen.lags.push(Date.now() - 1000 * found.at);
    return found;
  };
  let last = 0;
  const frame = now => {
    if (last) seen.gaps.push(now - last);
    last = now;
    if (seen.rows === null && document.querySelector("table tbody tr")) seen.rows = performance.now();
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--width", type=int, default=1280)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as service:
        create_streams(service, fitted(), options.streams)
        gateway, done = Gateway(options.streams, 1), threading.Event()
        warm_up(service, gateway)
        sender = threading.Thread(target=send, args=(service, gateway, done))
        sender.start()
        try:
            seen, problems = watch(f"http://{HOST}:{service.port}", options.width, options.seconds)
        finally:
            done.set()
            sender.join()
    report(options, seen, problems)


def send(service: Service, gateway: Gateway, done: threading.Event) -> None:
    """One reading a second of each stream, in ten batches, until the end."""
    begun = time.monotonic()
    for i, body in enumerate(gateway.batches(PER_SECOND, seconds=600)):
        if done.wait(max(begun + i / PER_SECOND - time.monotonic(), 0.0)):
            return
        service.ask("POST", "/v1/readings", body)


def watch(url: str, width: int, seconds: int) -> tuple[dict[str, Any], list[str]]:
    """What was seen on the page, and what its console said."""
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.add_init_script(WATCH)
        page.goto(url)
        page.wait_for_selector("table tbody tr")
        page.wait_for_timeout(3000)
        page.evaluate("seen.lags = []; seen.gaps = []")
        page.wait_for_timeout(1000 * seconds)
        seen = {**page.evaluate("seen"), "paint": page.evaluate(PAINT)}
        seen["overflow"] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        browser.close()
    return seen, problems


def report(options: argparse.Namespace, seen: dict[str, Any], problems: list[str]) -> None:
    lags, gaps = sorted(seen["lags"]), sorted(seen["gaps"])
    table(f"The page with {options.streams} streams, {options.width} px wide, {options.seconds} s")
    row("first paint", f"{seen['paint']:,.0f} ms")
    row("first row of the table", f"{seen['rows']:,.0f} ms")
    row("live messages a second", f"{len(lags) / options.seconds:.1f}")
    row("from being sent to being read, median and longest", f"{lags[len(lags) // 2]:,.0f}, {lags[-1]:,.0f} ms")
    row("frames a second", f"{len(gaps) / options.seconds:.0f}")
    row("time between frames, 99 % and longest", f"{gaps[int(0.99 * len(gaps))]:,.0f}, {gaps[-1]:,.0f} ms")
    row("errors on the console", f"{len(problems)}")
    row("wider than the window by", f"{seen['overflow']} px")


if __name__ == "__main__":
    main()
