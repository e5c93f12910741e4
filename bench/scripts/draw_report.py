"""Draw the picture of docs/report.md: a report on a desktop in light colors and on a phone in dark colors.

    cometad demo && python bench/scripts/draw_report.py demo/report.html

Needs Chromium and the `dev` extra.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

TARGET = Path(__file__).parents[2] / "docs" / "images" / "report.png"
HEIGHT, MARGIN = 1500, 24
LOOKS = ((1280, "light", "body"), (390, "dark", "details[open]"))  # width, color scheme, and the element to start from
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    address = parser.parse_args().report.resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        shots = [shot(browser, address, *look) for look in LOOKS]
        browser.close()
    picture = Image.new("RGB", (sum(part.width for part in shots) + MARGIN, HEIGHT), "white")
    picture.paste(shots[0], (0, 0))
    picture.paste(shots[1], (shots[0].width + MARGIN, 0))
    picture.quantize(256, dither=Image.Dither.NONE).save(TARGET, optimize=True)
    print(f"Wrote {TARGET}: {TARGET.stat().st_size / 1000:.0f} kB.")


def shot(browser: Browser, address: str, width: int, scheme: str, start: str) -> Image.Image:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    page.goto(address)
    page.locator(start).first.evaluate("element => window.scrollTo({top: element.offsetTop - 24, behavior: 'instant'})")
    picture = Image.open(io.BytesIO(page.screenshot()))
    page.close()
    return picture.convert("RGB")


if __name__ == "__main__":
    main()
