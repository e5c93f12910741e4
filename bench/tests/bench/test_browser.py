"""The report page of an experiment in a browser, on a phone and on a laptop."""

import pytest

from cometad.metrics import METRICS
from cometad_bench.drift.report import COLUMNS
from cometad_bench.report import _forms
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

WIDTH = 390
WIDE = ResultTable(
    "A title so long that it takes more than one line on a phone",
    tuple(ResultColumn(f"metric {number}", scale=100) for number in range(15)),
    (Group("MSL", (ResultRow("comet-paper w/o TTA", (Cell(0.7, 0.01),) * 15, "2 of 3 seeds"),)),),
    ("A note so long that it takes more than one line on a phone.",),
)
BOXES = """() => Object.fromEntries(
    [['table', 'table'], ['title', 'h2'], ['note', 'li'], ['row', 'th[scope=row]'],
     ['group', 'th[scope=rowgroup] span'], ['figure', 'td']].map(([name, selector]) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        return [name, [box.left, box.right]];
    }))"""


def written(table, folder):
    path = folder / "main.html"
    _forms("main", [table], folder)[path](path)
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return written(WIDE, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module", params=["light", "dark"])
def phone(request, browser, address):
    page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=request.param)
    page.goto(address)
    yield page
    page.close()


def test_the_figures_scroll_beneath_the_names_and_nothing_else_moves(phone):
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
    assert before["row"][1] < WIDTH / 2  # most of the screen is left for figures


def test_figures_that_scroll_beneath_a_name_do_not_show_through(phone):
    ground, paper = (
        phone.evaluate(f"getComputedStyle(document.querySelector('{selector}')).backgroundColor")
        for selector in ("th[scope=row]", "section")
    )
    assert ground == paper != "rgba(0, 0, 0, 0)"


def test_the_scrolling_region_responds_to_keys(phone):
    phone.evaluate("document.querySelector('.scroll').scrollLeft = 0")
    phone.focus(".scroll")
    phone.keyboard.press("ArrowRight")
    # Not wait_for_function: if it has to wait, it evaluates a string, which the page's content security policy forbids.
    for _ in range(50):
        if phone.evaluate("document.querySelector('.scroll').scrollLeft") > 0:
            return
        phone.wait_for_timeout(100)
    pytest.fail("The region did not scroll.")


def table_of(name, cell, columns):
    """Return a table whose figures are all as wide as the widest in practice."""
    return ResultTable("Wide", columns, (Group("SMAP", (ResultRow(name, (cell,) * len(columns)),)),), ())


TABLES = {
    "metrics": table_of(
        "anomaly-transformer (1 of 3 seeds)",
        Cell(0.885, 0.1043, mark="best", at_floor=True),
        (
            *(ResultColumn(metric.title, "*", scale=100) for metric in METRICS.values()),
            ResultColumn("rank by AUC-PR", digits=2),
        ),
    ),
    "drift": table_of("replacement, 30 % faults", Cell(0.885, 0.1043), COLUMNS),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_on_a_laptop_without_scrolling(name, browser, tmp_path):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(written(TABLES[name], tmp_path))
    hidden = page.evaluate("(e => e.scrollWidth - e.clientWidth)(document.querySelector('.scroll'))")
    page.close()
    assert hidden == 0
