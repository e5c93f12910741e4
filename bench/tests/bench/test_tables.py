import itertools
import math
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare

import trials
from cometad.errors import InputError
from cometad.report.html import render
from cometad_bench.figures import (
    Point,
    plot_critical_difference,
    plot_efficiency,
)
from cometad_bench.forms import anchor, as_latex, as_markdown, shown
from cometad_bench.frame import DEVIATION, frame_of, mean_over_seeds, ranked, twins
from cometad_bench.notes import coverage, simple_sentence
from cometad_bench.statistics import cliques, critical_difference, friedman, mean_ranks
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable, metric_table, threshold_table
from trials import AT_THRESHOLD


def trial(arm, aff_f1=0.7, *where, **others):
    """One result with a single metric."""
    return trials.trial(arm, 0.0, *where, **{"metrics": {"aff_f1": aff_f1}, "device": None, **others})


def means(records, arm="pca", dataset="MSL"):
    """The means of one arm on one dataset."""
    return mean_over_seeds(frame_of(records)).row(
        by_predicate=(pl.col("arm") == arm) & (pl.col("dataset") == dataset), named=True
    )


def spread(one, name="aff_f1"):
    return one[name], one[name + DEVIATION]


def row(table, arm, dataset="MSL"):
    rows = next(group.rows for group in table.groups if group.name == dataset)
    return next(row for row in rows if row.arm == arm)


def note_with(table, words):
    return [note for note in table.footnotes if words in note]


# Statistics


def naive_mean_ranks(values):
    totals = [0.0] * len(values[0])
    for dataset in values:
        for arm, value in enumerate(dataset):
            better = sum(other > value for other in dataset)
            equal = sum(other == value for other in dataset)
            totals[arm] += better + (equal + 1) / 2
    return [total / len(values) for total in totals]


few_values = st.integers(2, 6).flatmap(  # few distinct values, so that there are ties
    lambda arms: st.lists(st.lists(st.integers(0, 4), min_size=arms, max_size=arms), min_size=2, max_size=8)
)


@given(few_values)
def test_mean_ranks_equal_the_loop_version(values):
    assert mean_ranks(values).tolist() == pytest.approx(naive_mean_ranks(values))


@given(few_values)
def test_the_friedman_test_equals_scipy_wherever_scipy_has_an_answer(values):
    table = np.array(values, dtype=float)
    if table.shape[1] < 3 or all(len(set(dataset)) == 1 for dataset in values):
        return
    assert friedman(table) == pytest.approx(friedmanchisquare(*table.T).pvalue)


def test_the_friedman_test_of_arms_that_always_tie_has_a_p_value_of_1():
    assert friedman(np.ones((4, 3))) == 1.0


@pytest.mark.parametrize(("arms", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_follows_from_demsars_published_quantiles(arms, quantile):
    expected = quantile * math.sqrt(arms * (arms + 1) / (6 * 14))
    assert critical_difference(arms, datasets=14) == pytest.approx(expected, rel=5e-4)


@given(st.lists(st.integers(4, 40), min_size=1, max_size=7), st.integers(1, 30))
def test_cliques_are_the_maximal_sets_of_pairwise_close_arms(quarters, difference):
    ranks = {f"arm {number}": quarter / 4 for number, quarter in enumerate(quarters)}
    close = [
        frozenset(arms)
        for size in range(2, len(ranks) + 1)
        for arms in itertools.combinations(ranks, size)
        if all(abs(ranks[one] - ranks[other]) < difference / 4 for one, other in itertools.combinations(arms, 2))
    ]
    maximal = {group for group in close if not any(group < other for other in close)}
    found = cliques(ranks, difference / 4)
    assert {frozenset(group) for group in found} == maximal
    assert len(found) == len(maximal)


# Summaries


def naive_summary(values):
    """Return mean and deviation of values by (seed, entity); every seed has every entity."""
    by_seed = []
    for seed in sorted({seed for seed, _ in values}):
        here = [value for (other, _), value in values.items() if other == seed]
        by_seed.append(sum(here) / len(here))
    mean = sum(by_seed) / len(by_seed)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in by_seed) / (len(by_seed) - 1))


@given(st.integers(2, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_summary_equals_the_loop_version(seeds, entities, random):
    values = {(seed, f"e{entity}"): random.random() for seed in range(seeds) for entity in range(entities)}
    records = [trial("pca", value, seed=seed, entity=entity) for (seed, entity), value in values.items()]
    random.shuffle(records)
    found = means(records)
    assert spread(found) == pytest.approx(naive_summary(values))
    assert (found["seeds"], found["entities"], coverage(found)) == (seeds, entities, "")


def test_only_the_last_successful_result_of_a_cell_counts():
    records = [trial("pca", 0.1), trial("pca", 0.7), trial("pca", error="MemoryError", metrics=None)]
    assert means(records)["aff_f1"] == 0.7


def test_an_arm_that_lacks_entities_notes_it_and_is_neither_marked_nor_averaged():
    records = [trial("knn", 0.7, dataset, entity) for dataset in ("SMD", "PSM") for entity in "abc"]
    records += [trial("pca", 0.6, dataset, entity) for dataset in ("SMD", "PSM") for entity in "abc"]
    records += [trial("easy", 0.9, "SMD", entity) for entity in "ab"] + [trial("easy", 0.9, "PSM", e) for e in "abc"]
    table = metric_table(frame_of(records), "Main", ranked_by="aff_f1")
    easy = row(table, "easy", "SMD")
    assert (easy.note, easy.cells[0].mark) == ("2 of 3 entities", "")
    assert easy.cells[-1].value is None  # no rank
    assert row(table, "knn", "SMD").cells[0].mark == "best"
    assert [it.arm for it in table.groups[-1].rows] == ["knn", "pca"]
    assert "easy (2 of 3 entities)" in as_markdown(table)
    assert note_with(table, "lack entities")


def test_a_seed_that_lacks_an_entity_is_left_out_of_the_mean():
    records = [trial("pca", 0.6, seed=0, entity=entity) for entity in "ab"] + [trial("pca", 0.9, seed=1, entity="a")]
    found = means(records)
    assert spread(found) == (0.6, None)
    assert coverage(found) == "one seed"


def test_all_positive_needs_no_second_seed():
    records = [trial("pca", seed=seed) for seed in range(3)] + [trial("all-positive"), trial("random")]
    table = metric_table(frame_of(records), "Main")
    assert [row(table, arm).note for arm in ("all-positive", "random")] == ["", "one seed"]
    assert note_with(table, "Fewer than 3 seeds") == ["Fewer than 3 seeds: random (1)."]


def test_different_experiments_and_settings_are_not_mixed():
    with pytest.raises(InputError, match="mix experiments, here main and ablation"):
        mean_over_seeds(frame_of([trial("pca"), trial("pca", experiment="ablation")]))
    with pytest.raises(InputError, match="settings"):
        mean_over_seeds(frame_of([trial("pca"), trial("pca", setting={"noise": 0.1})]))


# Tables


def test_datasets_with_different_series_are_named():
    same = [trial("pca"), trial("knn")]
    assert not note_with(metric_table(frame_of(same), ""), "fingerprints")
    assert note_with(metric_table(frame_of([*same, trial("hbos", fingerprint="x")]), ""), "fingerprints differ): MSL.")


def test_best_and_second_are_detectors_and_equal_figures_share_a_mark():
    figures = {"random": 0.99, "all-positive": 0.98, "pca": 0.9, "knn": 0.90004, "hbos": 0.8, "usad": 0.7}
    table = metric_table(frame_of([trial(arm, value) for arm, value in figures.items()]), "Main")
    marks = {it.arm: it.cells[0].mark for it in table.groups[0].rows}
    assert marks == {"pca": "best", "knn": "best", "hbos": "second", "usad": "", "random": "", "all-positive": ""}
    assert list(marks)[-2:] == ["random", "all-positive"]


def test_a_figure_is_at_the_floor_unless_it_is_above_the_better_reference():
    figures = {"pca": 0.7, "knn": 0.68, "hbos": 0.6, "random": 0.65, "all-positive": 0.68}
    table = metric_table(frame_of([trial(arm, value) for arm, value in figures.items()]), "Main")
    at_floor = {it.arm: it.cells[0].at_floor for it in table.groups[0].rows}
    assert at_floor == {"pca": False, "knn": True, "hbos": True, "random": False, "all-positive": False}
    assert "<u>68.0</u>°" in as_markdown(table)


def test_arms_that_are_identical_everywhere_are_one_in_the_critical_difference():
    records = [
        trial(arm, value + place / 100, dataset)
        for place, dataset in enumerate(("MSL", "PSM", "SMAP"))
        for arm, value in (("full", 0.5), ("part", 0.5), ("pca", 0.6), ("random", 0.5))
    ]
    assert twins(frame_of(records)) == {"part": "full"}
    assert twins(frame_of(records), first="part") == {"full": "part"}
    assert ranked(frame_of(records), "aff_f1", "dataset").ranks == {"full": 2.0, "pca": 1.0}
    assert twins(frame_of([*records, trial("part", 0.5, seed=1)])) == {}  # a trial that its twin has not


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            {"vtt": 0.4, "comet": 0.3, "pca": 0.45, "fair pca": 0.6},
            "A fair simple baseline wins: by mean AUC-PR, fair pca has 60.0 and the best other detector, vtt, 40.0. "
            "The best simple baseline, pca, has 45.0.",
        ),
        ({"comet": 0.5, "vtt": 0.4}, "No simple baseline was run here."),
        (
            {"pca": 0.5, "knn": 0.4},
            "The best simple baseline, pca, has a mean AUC-PR of 50.0; all other detectors lack trials.",
        ),
    ],
)
def test_the_best_simple_baseline_is_named_beside_the_best_detector(figures, sentence):
    records = [
        trial(arm, detector=arm.split()[0], dataset=dataset, metrics={"auc_pr": value + shift})
        for arm, value in figures.items()
        for dataset, shift in (("MSL", 0.05), ("PSM", -0.05))
    ]
    assert simple_sentence(frame_of(records)) == sentence
    lacking = [record for record in records if record["dataset"] == "MSL" or record["detector"] == "vtt"]
    if "vtt" in sentence:
        assert simple_sentence(frame_of(lacking)) == "Every simple baseline lacks trials."


def test_a_detector_that_never_alarms_has_no_precision():
    table = threshold_table(
        frame_of([trial("pca", seed=seed, at_threshold=AT_THRESHOLD | {"precision": None}) for seed in (0, 1)]), ""
    )
    assert row(table, "pca").cells[0] == Cell()
    assert row(table, "pca").cells[1].value == pytest.approx(0.4)


# Forms

ODD = ResultTable(
    "50 % of a_b & #1 <x>",
    (ResultColumn("A_1|", "*", scale=100), ResultColumn("B")),
    (
        Group(
            "M&M",
            (ResultRow("a|b_c", (Cell(0.5, 0.01, mark="best"), Cell(1, mark="second", at_floor=True)), "1 of 2"),),
        ),
    ),
    ("* note", "° other"),
)


def test_every_markdown_row_has_the_same_number_of_cells():
    lines = [line for line in as_markdown(ODD).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [5, 5, 5]
    assert lines[-1] == r"| M&M | a\|b\_c (1 of 2) | **50.0 ± 1.0** | <u>1.0</u>° |"


def latex_rows(text):
    """Yield the number of columns that each longtable declares, and its rows split into cells."""
    for columns, body in re.findall(r"\\begin\{longtable\}\{(l?r*)\}\n(.*?)\\end\{longtable\}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if re.search(r"(?<!\\)&", line)]
        yield len(columns), [re.split(r"(?<!\\)&", row.removesuffix(r" \\")) for row in rows]


def wide(columns, groups=2):
    cells = tuple(Cell(number / 100) for number in range(columns))
    headers = tuple(ResultColumn(f"metric_{number}, fixed", "*", scale=100) for number in range(columns))
    return ResultTable(
        "Wide",
        headers,
        tuple(Group(f"G{n}", (ResultRow("a", cells), ResultRow("[b]", cells))) for n in range(groups)),
        ("Note.",),
    )


def test_latex_escapes_special_characters_and_marks_figures():
    text = as_latex(ODD)
    assert r"\caption{50 \% of a\_b \& \#1 $<$x$>$} \\" in text
    assert r"a|b\_c (1 of 2) & \textbf{50.0 $\pm$ 1.0} & \underline{1.0}$^{\circ}$ \\" in text
    assert r"\noindent {*} note\par" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("columns", [1, 6, 7, 10, 11, 18, 21])
def test_every_latex_row_has_as_many_cells_as_its_table_declares(columns):
    text = as_latex(wide(columns))
    tables = list(latex_rows(text))
    assert sum(declared - 1 for declared, _ in tables) == columns
    for declared, rows in tables:
        assert [len(cells) for cells in rows] == [declared] * 6  # the head twice, then two groups of two rows
        assert text.count(rf"\multicolumn{{{declared}}}{{l}}{{\textit{{G1}}}} \\*") >= 1
    figures = [cell.strip() for _, rows in tables for cell in rows[2][1:]]
    assert figures == [f"{number}.0" for number in range(columns)]


def test_latex_uses_landscape_for_many_columns_and_splits_what_does_not_fit():
    upright, turned, parted = (as_latex(wide(columns)) for columns in (6, 7, 11))
    assert upright.startswith("% Needs \\usepackage{booktabs,longtable}\n\\begingroup\n")
    assert upright.endswith("\\noindent Note.\\par\n\\endgroup")
    assert turned.startswith("% Needs \\usepackage{booktabs,longtable,pdflscape}\n\\begin{landscape}\n")
    assert turned.endswith("\\noindent Note.\\par\n\\end{landscape}")
    assert re.findall(r"\\caption\{(.*?)\}", turned) == ["Wide"]
    assert re.findall(r"\\caption\{(.*?)\}", parted) == ["Wide (part 1 of 2)", "Wide (part 2 of 2)"]
    assert parted.count("Note.") == 1


class Outline(HTMLParser):
    """Checks that elements are closed in order, and records what screen readers use."""

    def __init__(self):
        super().__init__()
        self.open, self.scopes, self.words, self.names, self.inside = [], [], [], {}, {}

    def handle_starttag(self, tag, attrs):
        self.inside[tag] = tuple(self.open)
        self.open.append(tag)
        self.scopes += [value for name, value in attrs if name == "scope"]
        self.names |= {(tag, name): value for name, value in attrs if name in ("id", "aria-labelledby")}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append((self.open[-1] if self.open else "", data))


def test_html_is_well_formed_escaped_and_has_scopes():
    outline = Outline()
    outline.feed(render("bench_table.html", table=ODD, shown=shown, anchor=anchor))
    outline.close()
    assert outline.open == []
    assert outline.scopes == ["col", "col", "col", "rowgroup", "row"]
    for word in (("h2", ODD.title), ("li", "* note"), ("strong", "50.0 ± 1.0"), ("u", "1.0"), ("th", "a|b_c (1 of 2)")):
        assert word in outline.words
    # Only the figures scroll, and the title labels them.
    assert outline.inside["table"] == ("section", "div")
    assert outline.inside["h2"] == outline.inside["ul"] == ("section",)
    assert outline.names["table", "aria-labelledby"] == outline.names["h2", "id"] == "50-of-a_b-1-x-title"


# Figures


def test_every_arm_of_a_diagram_has_a_label_and_every_group_a_bar():
    ranks = {f"detector {number}": 1 + number * 0.9 for number in range(20)}
    groups = cliques(ranks, 4.0)
    axes = Figure().subplots()
    plot_critical_difference(axes, ranks, 4.0, groups)
    texts = [text.get_text() for text in axes.texts]
    assert all(f"{arm}  {rank:.2f}" in texts for arm, rank in ranks.items())
    bars = [line for line in axes.lines if line.get_linewidth() == 4]
    spans = {(bar.get_ydata()[0], *bar.get_xdata()) for bar in bars}
    assert len(spans) == len(groups) > 1
    for (height, _, right), (other, left, _) in itertools.combinations(sorted(spans), 2):
        assert height != other or right < left  # no two bars touch


def test_a_diagram_of_equal_arms_can_be_drawn():
    axes = Figure().subplots()
    plot_critical_difference(axes, {"pca": 2.0, "knn": 2.0, "hbos": 2.0}, 1.0, [("pca", "knn", "hbos")])
    assert axes.get_xlim()[0] < 2.0 < axes.get_xlim()[1]


def test_the_area_of_a_circle_grows_with_the_parameters_and_a_square_means_none():
    axes = Figure().subplots()
    points = [Point("small", 1.0, 0.7, 1e4), Point("large", 9.0, 0.8, 1e6), Point("pca", 0.0, 0.6, None)]
    plot_efficiency(axes, points, floor=0.68)
    small, large, square = (points.get_sizes()[0] for points in axes.collections[:3])
    assert large > 10 * small
    assert square < large / 10
    assert axes.get_xscale() == "log"
    assert {"small", "large", "pca", "no skill "} == {text.get_text() for text in axes.texts}


def test_labels_of_efficiency_do_not_cover_each_other():
    figure = Figure(figsize=(8, 5))
    axes = figure.subplots()
    plot_efficiency(axes, [Point(f"detector {n}", 10 + 0.1 * n, 0.7 + 0.001 * n, 1e5) for n in range(4)], floor=0.68)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text().startswith("detector")]
    assert len(boxes) == 4
    # Text boxes include some space, so a small overlap is not visible.
    for one, other in itertools.combinations(boxes, 2):
        shared = max(min(one.x1, other.x1) - max(one.x0, other.x0), 0) * max(
            min(one.y1, other.y1) - max(one.y0, other.y0), 0
        )
        assert shared < 0.2 * one.width * one.height
