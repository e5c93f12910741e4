"""The page of an experiment's report as a browser draws it on a phone."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from cometad.bench import report
from cometad.bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
WIDTH = 390
WIDE = ResultTable(
    "A title that is so long that it needs more than one line of a phone",
    tuple(ResultColumn(f"metric {number}", scale=100) for number in range(15)),
    (Group("MSL", (ResultRow("comet-paper w/o TTA", (Cell(0.7, 0.01),) * 15, "2 of 3 seeds"),)),),
    ("A note that is so long that it needs more than one line of a phone to be read.",),
)
BOXES = """() => Object.fromEntries(
    [['table', 'table'], ['title', 'h2'], ['note', 'li'], ['row', 'th[scope=row]'],
     ['group', 'th[scope=rowgroup] span'], ['figure', 'td']].map(([name, selector]) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        return [name, [box.left, box.right]];
    }))"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "main.html"
    path.write_text(report._page("main", report.Content([WIDE]), path.parent), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module", params=["light", "dark"])
def phone(request, address):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=request.param)
        page.goto(address)
        yield page
        browser.close()


def test_the_figures_scroll_under_the_names_and_nothing_else_moves(phone):
    before = phone.evaluate(BOXES)
    phone.evaluate("document.querySelector('.scroll').scrollLeft = 200")
    after = phone.evaluate(BOXES)
    assert before["table"][1] > WIDTH
    assert phone.evaluate("document.documentElement.scrollWidth") == WIDTH
    for name in ("title", "note", "row", "group"):
        assert before[name] == after[name]
        assert after[name][0] >= 0
        assert after[name][1] <= WIDTH
    assert after["figure"][0] == before["figure"][0] - 200
    assert before["row"][1] < WIDTH / 2  # most of the screen is for figures


def test_what_scrolls_below_a_name_does_not_show_through(phone):
    ground, paper = (
        phone.evaluate(f"getComputedStyle(document.querySelector('{selector}')).backgroundColor")
        for selector in ("th[scope=row]", "section")
    )
    assert ground == paper != "rgba(0, 0, 0, 0)"


def test_the_part_that_scrolls_is_moved_by_keys(phone):
    phone.evaluate("document.querySelector('.scroll').scrollLeft = 0")
    phone.focus(".scroll")
    phone.keyboard.press("ArrowRight")
    phone.wait_for_function("document.querySelector('.scroll').scrollLeft > 0", timeout=5000)
