"""The report in a browser: on a desktop and a phone, light and dark."""

import io
from typing import NamedTuple

import matplotlib.image
import numpy as np
import pytest
from playwright.sync_api import expect

from cometad.alerting.alerts import Alerts
from cometad.report.contents import Report
from cometad.report.gather import gather
from cometad.report.page import save_report
from report_case import FAULTS, ROWS, faulty, network, timed

WIDTHS = {"desktop": 1280, "phone": 390}
LOOKS = [(width, scheme) for width in WIDTHS.values() for scheme in ("light", "dark")]
NEAR = 60  # color distance, at most 441, up to which a pixel counts as that color: edges are blended


class Shown(NamedTuple):
    """A page in a browser, with its requests and console messages."""

    page: object
    width: int
    scheme: str
    requests: list
    messages: list

    def pixels(self, selector: str) -> np.ndarray:
        """The pixels of an element (row, column, channel), 0 to 255."""
        return decoded(self.page.locator(selector).first.screenshot())

    def color(self, name: str) -> np.ndarray:
        """A color of the stylesheet by name."""
        text = self.page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        return np.array([int(text[k : k + 2], 16) for k in (1, 3, 5)])


def decoded(png: bytes) -> np.ndarray:
    return 255 * matplotlib.image.imread(io.BytesIO(png))[:, :, :3]


def matches(pixels: np.ndarray, color: np.ndarray) -> np.ndarray:
    """Which pixels (row, column) have a color."""
    return np.linalg.norm(pixels - color, axis=2) < NEAR


@pytest.fixture(scope="module")
def report() -> Report:
    return gather(network(), timed(faulty()), alerts=Alerts(merge_gap=20, alert_from=0.28))


@pytest.fixture(scope="module")
def address(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    save_report(path, report)
    return path.as_uri()


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def shown(request, browser, address):
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(address)
    yield Shown(page, width, scheme, requests, messages)
    page.close()


def test_the_page_loads_nothing_else_and_logs_nothing(shown, address):
    assert shown.requests == [address]
    assert shown.messages == []


def test_the_background_follows_the_color_scheme_and_the_headline_stands_out(shown):
    background = decoded(shown.page.screenshot())[5, 5]
    assert (background > 230).all() if shown.scheme == "light" else (background < 40).all()
    headline = shown.pixels("h1")
    assert np.ptp(headline.mean(axis=2)) > 180


def test_all_text_is_readable(shown):
    texts = shown.page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(element =>
            !element.closest('svg') && element.checkVisibility() &&
            [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
        ).map(element => {
            let under = element;
            while (getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;
            const style = getComputedStyle(element);
            return [element.textContent, style.color, getComputedStyle(under).backgroundColor, style.fontSize];
        })"""
    )
    assert len(texts) > 50
    for text, color, background, size in texts:
        assert contrast(channels(color), channels(background)) >= 4.5, text
        assert float(size.removesuffix("px")) >= 12, text


def channels(color: str) -> list[float]:
    return [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]


def contrast(one: list[float], other: list[float]) -> float:
    """The contrast ratio of the Web Content Accessibility Guidelines 2.1."""
    linear = [[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color] for color in (one, other)]
    light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (light[1] + 0.05) / (light[0] + 0.05)


def test_everything_fits_the_width_of_the_window(shown):
    assert shown.page.evaluate("document.documentElement.scrollWidth") == shown.width
    outside = shown.page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(element => {
            if (!element.checkVisibility() || element.parentElement.closest('svg')) return false;
            const box = element.getBoundingClientRect();
            return box.left < -0.5 || box.right > innerWidth + 0.5;
        }).map(element => element.outerHTML.slice(0, 99))"""
    )
    assert outside == []


def test_tables_fit_without_scrolling(shown):
    overflow = shown.page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(region => region.scrollWidth - region.clientWidth)"
    )
    assert set(overflow) == {0}


def test_labels_do_not_overlap(shown):
    groups = shown.page.evaluate(
        """() => [...document.querySelectorAll('.across, .up, .badges')].map(axis => [...axis.children]
            .map(label => label.getBoundingClientRect()).filter(box => box.width)
            .map(box => [box.left, box.right, box.top, box.bottom, axis.innerHTML]))"""
    )
    assert sum(map(len, groups)) > 20
    for boxes in groups:
        for k, (left, right, top, bottom, words) in enumerate(boxes):
            for other in boxes[:k]:
                assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top, words


def test_the_score_curve_spans_the_plot(shown):
    inked = matches(shown.pixels("#overview svg[role=img]"), shown.color("score")).any(axis=0)
    assert inked.mean() > 0.9
    assert inked[:10].any()
    assert inked[-10:].any()


def test_events_are_marked_in_their_place_and_nowhere_else(shown, report):
    shown.page.evaluate("document.querySelectorAll('.event').forEach(marks => marks.setAttribute('opacity', '1'))")
    marked = matches(shown.pixels("#overview svg[role=img]"), shown.color("event")).sum(axis=0)
    height = shown.pixels("#overview svg[role=img]").shape[0]
    columns = np.flatnonzero(marked > 0.4 * height) / len(marked)
    places = [place for mark in report.strip.marks for place in (mark.start, mark.stop)]
    for start, _ in FAULTS.values():
        assert np.abs(columns - start / ROWS).min() < 0.01
    assert all(min(abs(column - place) for place in places) < 0.01 for column in columns)


def test_notices_are_folded_until_they_are_clicked(shown, report):
    notices = [panel for panel in report.panels if panel.level == "notice"]
    assert notices
    row = shown.page.locator(f'td a[href="#event-{notices[0].number}"]')
    fold = shown.page.locator("#alerts summary", has_text="notice").first
    expect(row).not_to_be_visible()
    fold.click()
    expect(row).to_be_visible()
    fold.click()


def test_the_score_is_higher_during_a_fault(shown):
    inked = matches(shown.pixels("#overview svg[role=img]"), shown.color("score"))
    tops = np.where(inked.any(axis=0), inked.argmax(axis=0), len(inked)) / len(inked)  # 0 is the upper edge
    for start, stop in FAULTS.values():
        inside = slice(int(start / ROWS * len(tops)) - 1, int(stop / ROWS * len(tops)) + 2)
        assert tops[inside].min() < 0.35
    assert np.median(tops) > 0.5


def test_a_panel_shows_readings_apart_from_their_normal_pattern(shown, report):
    worst = max(report.panels, key=lambda panel: (panel.severity, panel.score))
    pixels = shown.pixels(f"#event-{worst.number} .trace svg")
    observed, normal = (matches(pixels, shown.color(name)) for name in ("score", "normal"))
    assert observed.any(axis=0).mean() > 0.6
    assert normal.any(axis=0).mean() > 0.3
    # The fault raises the readings, so they are drawn above the normal pattern.
    mark = worst.strip.marks[0]
    inside = slice(int((mark.start + 0.02) * pixels.shape[1]), int((mark.stop - 0.02) * pixels.shape[1]))
    assert first_row(observed[:, inside]) < first_row(normal[:, inside]) - 0.2 * len(pixels)


def first_row(inked: np.ndarray) -> int:
    return int(inked.any(axis=1).argmax())


def test_both_halves_of_the_codebook_and_both_distributions_are_drawn(shown):
    for scale in range(3):
        drawn = shown.page.locator("#codebook svg[role=img]").nth(scale)
        colored = matches(decoded(drawn.screenshot()), shown.color("score"))
        half = len(colored) // 2
        assert colored[half + 2 :].sum() > 20 * (1 + colored[: half - 2].sum())  # this data's bars point down
    histogram = decoded(shown.page.locator("#drift svg[role=img]").nth(1).screenshot())
    assert matches(histogram, shown.color("score")).any(axis=0).mean() > 0.9


def test_plots_are_stacked_on_a_phone_and_side_by_side_on_a_desktop(shown):
    boxes = [shown.page.locator("#codebook .side > div").nth(k).bounding_box() for k in (0, 1)]
    beside = boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    assert beside == (shown.width == WIDTHS["desktop"])


def test_a_link_leads_to_its_panel(shown, report):
    number = [panel for panel in report.panels if panel.level == "alert"][-1].number
    shown.page.locator(f'td a[href="#event-{number}"]').click()
    panel = shown.page.locator(f"#event-{number}")
    expect(panel).to_be_visible()
    expect(panel).to_be_in_viewport()
