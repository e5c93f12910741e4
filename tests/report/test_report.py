"""The report: its contents, and the page as text. test_browser.py checks how it looks."""

import dataclasses
import re
from datetime import timedelta
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jinja2 import UndefinedError

import naive_report
from cometad import BASELINES, Budget, Comet, NetworkComet, Quantile
from cometad.alerting.alerts import Alerts
from cometad.alerting.severity import meaning
from cometad.cli import main
from cometad.data import ForwardFill
from cometad.report.axes import AsinhAxis, LinearAxis, TimeAxis, duration, format_number, score_axis
from cometad.report.contents import LEVELS, Line, Mark, drift, thin, usage
from cometad.report.gather import FAINT, gather, trimmed_sentence
from cometad.report.html import render
from cometad.report.page import Plot, bands, curve, page, save_report
from cometad.views.trim import Stretch
from fitted import fitted
from report_case import BEGIN, FAULTS, NAMES, ROWS, SMALL, faulty, network, readings, timed

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
ALERTS = Alerts(merge_gap=20)


@pytest.fixture(scope="module")
def detector():
    return network()


@pytest.fixture(scope="module")
def report(detector):
    return gather(detector, timed(faulty()), alerts=ALERTS)


@pytest.fixture(scope="module")
def mixed():
    """A report with alerts and notices."""
    detector = fitted(Comet(), timed(readings())).with_threshold(Quantile(0.002))
    return gather(detector, timed(faulty()), alerts=Alerts(merge_gap=20, alert_from=0.45))


# -- thinning ---------------------------------------------------------------------------------------------------------


@given(arrays(np.float64, st.integers(1, 400), elements=numbers), st.integers(1, 40))
def test_thinning_keeps_the_extremes_of_every_bucket(values, buckets):
    chosen = thin(values, buckets)
    kept, wanted = set(chosen.tolist()), naive_report.thin(values.tolist(), buckets)
    assert sorted(kept) == chosen.tolist()
    assert values[chosen].tolist() == values[wanted].tolist()
    assert {0, len(values) - 1} <= kept
    assert values[chosen].min() == values.min()
    assert values[chosen].max() == values.max()
    assert len(chosen) <= max(2 * buckets, 2) + 2


@given(arrays(np.float64, st.integers(1, 400), elements=numbers | st.just(np.nan)), st.integers(1, 40))
def test_thinning_keeps_extremes_and_some_missing_values(values, buckets):
    chosen = thin(values, buckets)
    measured = values[~np.isnan(values)]
    if len(measured):
        assert np.nanmin(values[chosen]) == measured.min()
        assert np.nanmax(values[chosen]) == measured.max()
    assert np.isnan(values[chosen]).any() == np.isnan(values).any()


def test_thinning_a_million_values_keeps_a_single_spike():
    values = np.random.default_rng(0).normal(size=1_000_000)
    values[654_321] = 50.0
    assert 654_321 in thin(values)
    assert len(thin(values)) < 1100


# -- drift and usage --------------------------------------------------------------------------------------------------


@given(
    arrays(np.float64, st.integers(1, 200), elements=numbers), arrays(np.float64, st.integers(1, 99), elements=numbers)
)
def test_drift_matches_the_naive_version(scores, training):
    found = drift(scores, training, bins=7)
    pieces = naive_report.parts(scores.tolist(), min(7, len(scores)))
    wanted = [[naive_report.quantile(piece, level) for piece in pieces] for level in LEVELS]
    np.testing.assert_allclose(found.quantiles, wanted, rtol=1e-9, atol=1e-9)
    assert found.before.tolist() == naive_report.shares(training.tolist(), found.edges.tolist())
    assert found.after.tolist() == naive_report.shares(scores.tolist(), found.edges.tolist())
    assert found.above == np.mean([score > found.training[-1] for score in scores.tolist()])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_usage_matches_the_naive_version(counts):
    training, here = zip(*counts, strict=True)
    found = usage(4, training, here)
    pairs, unseen = naive_report.usage(training, here)
    assert [*zip(found.training.tolist(), found.here.tolist(), strict=True)] == pairs
    assert found.unseen == pytest.approx(unseen)


# -- times and axes ---------------------------------------------------------------------------------------------------


@given(st.integers(2, 3000), st.sampled_from(["us", "ms", "s", "m", "h", "D", "W"]), st.integers(1, 90))
def test_ticks_are_few_and_in_order(count, unit, step):
    times = np.datetime64("2026-02-27T11:07:03", "us") + (step * np.arange(count)).astype(f"timedelta64[{unit}]")
    for axis in (TimeAxis(count, times), TimeAxis(count)):
        ticks = axis.ticks(0, count)
        places = [tick.place for tick in ticks]
        assert places == sorted(set(places))
        assert all(0 <= place <= 1 for place in places)
        assert len(ticks) <= 8
        assert count < 20 or len(ticks) >= 2


def test_a_tick_lies_at_its_time_despite_missing_readings():
    minutes = np.concatenate([np.arange(0, 60), np.arange(600, 660)])
    axis = TimeAxis(120, np.datetime64("2026-03-01T00:00", "us") + minutes.astype("timedelta64[m]"))
    places = {tick.label: tick.place for tick in axis.ticks(0, 120)}
    assert places["Mar 1"] == 0
    assert places["10:00"] == pytest.approx(60 / 119)


@pytest.mark.parametrize(
    ("micros", "words"),
    [
        (0, "0 µs"),
        (86_400_000_000, "1 day"),
        (90_000_000, "1 min 30 s"),
        (7 * 86_400_000_000, "7 days"),
        (7_000, "7 ms"),
    ],
)
def test_durations_in_words(micros, words):
    assert duration(micros) == words


def test_times_are_as_precise_as_the_data():
    exact = np.array(["2026-03-01T00:00:00.250", "2026-03-01T00:00:00.500"], "datetime64[ms]")
    assert TimeAxis(2, exact).label(0) == "2026-03-01 00:00:00.250000 UTC"
    assert TimeAxis(2, exact.astype("datetime64[m]") + np.arange(2)).short_label(1, 0) == "00:01 UTC"
    across = np.array(["2026-03-01T23:59", "2026-03-02T00:00"], "datetime64[us]")
    assert TimeAxis(2, across).short_label(1, 0) == "2026-03-02 00:00 UTC"
    assert (TimeAxis(1200).short_label(1000, 0), TimeAxis(1200).duration(0, 1200)) == ("step 1,000", "1,200 readings")


@given(arrays(np.float64, st.integers(1, 30), elements=numbers), numbers, st.floats(-10, 1e5))
@example(np.array([1.0]), 0.0, 1.0)  # every score equals the threshold
@example(np.array([2e9, 2e9 + 1e5]), 0.0, 2e9)  # labels would repeat
def test_all_scores_fit_on_the_axis_in_order(values, center, unit):
    axis = score_axis([values], center, center + unit)
    places = axis.place(np.sort(values))
    assert np.isfinite(places).all()
    assert (places >= 0).all()
    assert (places <= 1).all()
    assert (np.diff(places) >= -1e-12).all()
    ticks = axis.ticks()
    assert len({tick.label for tick in ticks}) == len(ticks)
    assert all(-1e-9 <= tick.place <= 1 + 1e-9 for tick in ticks)


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(allow_nan=False, allow_infinity=False)),
    st.floats(-1e308, 1e308),
    st.floats(-10, 1e308),
)
@example(np.array([-1.7e308, 1.7e308]), 0.0, -1.0)
@example(np.array([1.79e308]), 0.0, -1.0)
@example(np.array([0.0, 5e-324]), 0.0, -1.0)
@example(np.array([1e-320]), 0.0, -1.0)
@example(np.array([1e308, 1.1e308]), 0.0, 1e-300)
@example(np.array([-1.7e308, 1.7e308]), -1e308, 1.0)
def test_numbers_near_the_largest_float_fit_on_the_axis(values, center, unit):
    for axis in (LinearAxis.over(values), score_axis([values], center, min(center + unit, 1.7e308))):
        places = axis.place(np.sort(values))
        assert np.isfinite(places).all()
        assert (places >= -1e-12).all()
        assert (places <= 1 + 1e-12).all()
        assert (np.diff(places) >= -1e-12).all()
        assert all(-1e-9 <= tick.place <= 1 + 1e-9 for tick in axis.ticks())


@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_a_report_of_readings_near_the_largest_float_can_be_made(value):
    rng = np.random.default_rng(0)
    series = rng.normal(size=(600, 2))
    detector = Comet().fit(rng.normal(size=(600, 2)))
    series[300:310, 0], series[310:320, 0] = value, -value
    assert "1e+308" in page(gather(detector, series))


def test_one_high_peak_does_not_flatten_the_rest():
    axis = score_axis([np.array([0.0, 1.0, 1e6])], center=0.0, threshold=1.0)
    assert isinstance(axis, AsinhAxis)
    assert axis.place(1.0) - axis.place(0.0) > 0.04
    assert isinstance(score_axis([np.array([0.0, 3.0])], 0.0, 1.0), LinearAxis)


@given(numbers)
def test_a_formatted_number_is_close_to_the_number(value):
    assert float(format_number(value).replace(",", "")) == pytest.approx(value, rel=0.006, abs=1e-300)


# -- contents ---------------------------------------------------------------------------------------------------------


def test_the_headline_counts_alerts_and_notices_and_gives_the_time_and_variable_of_the_worst(mixed):
    chief, counts = mixed.panels[0], mixed.counts
    assert mixed.headline == (
        f"{counts['alert']} alerts and {counts['notice']} notices in 2 days 18 h; worst at {chief.start}, "
        f"mostly {chief.top[0][0]}"
    )
    assert chief.severity == max(panel.severity for panel in mixed.panels)


def test_alerts_come_before_notices_and_the_worst_first(mixed):
    assert {panel.level for panel in mixed.panels} == {"alert", "notice"}
    found = [(panel.severity, panel.score) for panel in mixed.panels]
    assert found == sorted(found, reverse=True)
    content = page(mixed)
    linked = [int(number) for number in re.findall(r'<td data-name="\w+"><a href="#event-(\d+)"', content)]
    assert linked == [panel.number for panel in mixed.panels]
    alerts, notices, chart, panels = (
        content.index(f'id="{name}"') for name in ("alert-table", "notice-table", "overview", "events")
    )
    assert alerts < notices < chart < panels


def test_notices_are_folded(mixed):
    content = page(mixed)
    fold = content[content.index(f"<h3>{mixed.counts['notice']} notices</h3>") : content.index('id="overview"')]
    assert '<details class="event-panel">\n<summary>' + fold[:4] in content
    for panel in mixed.panels:
        assert (f'id="event-{panel.number}"' in fold) == (panel.level == "notice")
    assert " open>" not in fold


def test_marks_are_as_strong_as_the_severity_and_notices_are_faint(mixed):
    strengths = {mark.number: mark.strength for mark in mixed.strip.marks}
    assert strengths == {panel.number: panel.severity if panel.level == "alert" else FAINT for panel in mixed.panels}
    faint, strong = (
        re.findall(r'opacity="(.*?)"', str(bands(marks)))
        for marks in ([mark for mark in mixed.strip.marks if mark.strength == FAINT], mixed.strip.marks)
    )
    assert faint == ["0.1"]
    assert strong == sorted(strong)
    assert float(strong[-1]) == pytest.approx(mixed.panels[0].severity, abs=0.05)


def test_a_severity_has_a_meaning(mixed):
    content = page(mixed)
    for panel in mixed.panels:
        assert panel.meaning == meaning(panel.severity, period=60.0)
        assert f'{panel.severity:.2f}</span> <span class="aside">{panel.meaning}</span>' in content
    without_times = gather(fitted(BASELINES["squared-norm"](), readings()), faulty())
    assert all(panel.meaning.endswith(" readings") for panel in without_times.panels)


def test_a_state_that_lasts_asks_for_a_verdict():
    values = readings(seed=1)
    values[2000:, 0] += 9.0
    report = gather(fitted(Comet(), timed(readings())), timed(values), alerts=Alerts(longest=30))
    lasting = min((panel for panel in report.panels if panel.new_level), key=lambda panel: panel.number)
    assert lasting.duration == "30 min"
    assert lasting.start == f"{BEGIN + timedelta(minutes=2000):%Y-%m-%d %H:%M} UTC"
    content = re.sub(r'<span class="unbroken">(.*?)</span>', r"\1", page(report))
    sentence = f"New level since {lasting.start}: give a verdict if this is normal from now on (docs/alerts.md)."
    assert content.count(sentence) == 2  # in the table and above its readings


def test_every_time_has_its_zone(mixed):
    content = re.sub(r"<[^>]*>", "", page(mixed))
    assert re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?! UTC)", content) == []
    assert all(time.endswith(" UTC") for panel in mixed.panels for time in (panel.start, panel.end, panel.peak))
    assert "Times are in UTC." in content


def test_both_faults_are_events_with_their_variable_and_time(report):
    for name, (start, stop) in FAULTS.items():
        # A patch of 16 readings contains a fault that starts with its last one.
        first, last = (str(BEGIN + timedelta(minutes=step))[:16] for step in (start - 16, stop - 1))
        inside = [panel for panel in report.panels if first <= panel.start <= last]
        outside = [panel.severity for panel in report.panels if panel.top[0][1] < 0.5]
        assert inside, name
        worst = max(inside, key=lambda panel: panel.severity)
        assert worst.top[0][0] == name
        assert worst.severity > 1.5 * max(outside)  # those mostly due to no variable are no faults
        assert worst.traces[0].observed.values.max() > worst.traces[0].normal.values.max() + 4


def test_only_the_worst_events_get_a_panel_and_the_page_notes_it(detector, report):
    few = gather(detector, timed(faulty()), alerts=ALERTS, most_events=1)
    assert few.counts == report.counts
    assert few.panels[0].number == report.panels[0].number
    assert len(few.panels) == 1
    assert f"Showing the worst of {few.counts['alert']} alerts." in page(few)
    none = page(gather(detector, timed(faulty()), alerts=ALERTS, most_events=0))
    assert f"None of the {few.counts['alert']} alerts is shown." in none
    assert len(few.strip.marks) == len(report.strip.marks)


def test_imputed_readings_are_neither_judged_nor_drawn_and_the_page_notes_it():
    values = faulty()
    values[1195:1400] = np.nan  # no readings during the fault
    detector = network(gaps=ForwardFill(limit=5))
    report = gather(detector, timed(values), alerts=ALERTS)
    first, last = (str(BEGIN + timedelta(minutes=step))[:16] for step in (1230, 1380))
    assert not [panel for panel in report.panels if first <= panel.start <= last]
    assert np.isnan(report.strip.alerts.values).any()
    assert dict(report.summary)["imputed, not judged"].endswith(" %")
    assert "gaps" in dict(report.findings)
    assert "<b>gaps</b>" in page(report)


def test_a_page_without_alerts_notes_it():
    normal = readings()
    quiet = gather(fitted(BASELINES["squared-norm"](), normal).with_threshold(Quantile(rate=1e-9)), normal[:500])
    assert quiet.headline == "No alerts in 500 readings"
    assert quiet.panels == ()
    assert "No alerts." in page(quiet)
    assert "notice-table" not in page(quiet)


def test_the_page_of_a_baseline_notes_missing_explanations_and_has_no_codebook():
    report = gather(fitted(BASELINES["squared-norm"](), readings()), faulty(), alerts=ALERTS)
    content = page(report)
    assert "cannot tell which variables are behind an event" in content
    assert 'id="codebook"' not in content
    assert "ranking score" not in content
    assert "top variables" not in content
    assert report.panels
    assert not any(panel.traces for panel in report.panels)


def test_both_scores_of_comet_are_drawn_and_its_flags_are_those_of_the_alert_score():
    detector = fitted(Comet(), readings()).with_threshold(Quantile(0.001))
    scored = detector.step_scores(faulty())
    report = gather(detector, faulty(), alerts=dataclasses.replace(ALERTS, longest=ROWS))
    assert np.nanmax(report.strip.alerts.values) == scored.alerts.max()
    assert report.strip.ranking.values.max() == scored.scores.max()
    assert all(panel.score == scored.alerts.max() for panel in [max(report.panels, key=lambda panel: panel.score)])
    assert report.drift.training.tolist() == np.quantile(detector.alert_scores_[~detector.imputed_], LEVELS).tolist()
    content = page(report)
    for words in ("alert score", "ranking score", 'class="curve ranking"'):
        assert words in content


def test_trends_are_among_the_findings():
    counted = np.column_stack([readings(), np.arange(ROWS)])
    report = gather(fitted(Comet(), counted), counted[-500:])
    sentence = f"'v{len(NAMES)}' only grows or only falls: its increments are scored instead of its readings."
    assert report.findings[0] == ("trend", sentence)


def test_a_broken_promise_is_among_the_findings():
    detector = fitted(Comet(), readings()).with_threshold(Quantile(0.01))
    moved = readings()
    moved[:, 1:] += 5.0
    kinds = dict(gather(detector, moved).findings)
    assert "times the promised 1 %" in kinds["promise"]
    assert "promise" not in dict(gather(detector, readings()).findings)


def test_a_reduced_budget_is_among_the_findings():
    detector = fitted(Comet(), readings()).with_threshold(Budget(alerts=1, per=20))
    kinds = dict(gather(detector, readings()).findings)
    assert "It is reduced to one in 100." in kinds["budget"]
    assert "promise" not in kinds


def test_the_settings_have_all_that_makes_an_alert(mixed):
    assert mixed.settings["alerts"] == dataclasses.asdict(Alerts(merge_gap=20, alert_from=0.45))
    assert {"longest", "longest_hours", "alert_from"} <= set(mixed.settings["alerts"])


def test_a_left_out_stretch_is_given_by_its_times_and_variables():
    times = (np.datetime64("2026-03-01T00:00", "us"), np.datetime64("2026-03-01T02:00", "us"))
    stretch = Stretch(0, 3, ("a", "b", "c", "d"), "does not fit the rest")
    assert trimmed_sentence(stretch, times) == (
        "Left out of training: 2026-03-01 00:00 UTC to 02:00 UTC (a, b, c and 1 more): does not fit the rest."
    )
    assert (
        trimmed_sentence(Stretch(0, 1, (), "stuck"), times[:1] * 2)
        == "Left out of training: 2026-03-01 00:00 UTC: stuck."
    )


def test_left_out_stretches_keep_their_times_in_a_saved_detector(tmp_path):
    detector = Comet(trim=False, season="none").fit(timed(readings()), exclude=[(200, 260), (300, 301)])
    detector.save(tmp_path / "plant.comet")
    loaded = Comet.load(tmp_path / "plant.comet")
    assert loaded.trimmed_times_ == detector.trimmed_times_
    for known in (detector, loaded):
        assert gather(known, readings()).findings[:2] == (
            ("left out", "Left out of training: 2026-03-01 15:30 UTC to 16:29 UTC: excluded by the user."),
            ("left out", "Left out of training: 2026-03-01 17:10 UTC: excluded by the user."),
        )
    assert "<b>left out</b>: Left out of training: 2026-03-01 15:30 UTC" in page(gather(loaded, readings()))


def test_a_detector_without_names_uses_those_of_the_data():
    unnamed = fitted(NetworkComet(**SMALL), readings())
    report = gather(unnamed, timed(faulty()), alerts=ALERTS)
    assert {panel.top[0][0] for panel in report.panels} <= set(NAMES)
    assert not re.search(r"\bv\d\b", page(report))


def test_code_counts_include_every_patch(detector):
    counts = detector.code_counts(timed(readings()))
    again = detector.code_counts(timed(readings()))
    whole = len(readings()) // 64 * 64
    for k, (size, stride) in enumerate(zip(detector.patch_sizes, detector.patch_strides, strict=True)):
        patches = (64 - size) // stride + 1
        assert counts[k].sum() in (whole // 64 * patches * 4, (whole // 64 + 1) * patches * 4)
        assert np.array_equal(counts[k], again[k])


def test_the_same_report_gives_the_same_bytes(detector, report, tmp_path):
    for name in ("one.html", "two.html"):
        save_report(tmp_path / name, gather(detector, timed(faulty()), alerts=ALERTS))
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_report_does_not_grow_with_the_data():
    detector = fitted(BASELINES["squared-norm"](), readings())
    short, long = (len(page(gather(detector, faulty(rows)))) for rows in (20_000, 400_000))
    assert long < 1.3 * short


# -- the page as text -------------------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    """All opening tags; fails if a tag is closed out of order. `open` holds the ones that are never closed."""

    VOID = ("meta", "br", "hr", "img", "input", "link")

    def __init__(self, content):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_without_script_or_network(report):
    content = page(report)
    tags = _Tags(content)
    assert tags.open == []
    assert not re.search(r"https?:|//[a-z]|url\(|@import", content)
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe", "object", "embed"}
    assert all(
        value.startswith("#") for _, attributes in tags.seen for name, value in attributes.items() if name == "href"
    )


def test_every_link_has_a_target_and_every_id_is_unique(report):
    tags = _Tags(page(report)).seen
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    targets = {attributes["href"][1:] for _, attributes in tags if "href" in attributes}
    assert targets
    assert targets <= set(names)


def test_names_from_the_data_are_escaped():
    hostile = "<script>alert(1)</script>&\"'"
    values = {hostile: readings()[:, 0], "b": readings()[:, 1]}
    frame = pl.DataFrame(values)
    detector = fitted(NetworkComet(**SMALL), frame)
    values[hostile] = values[hostile] + 40.0 * (np.arange(len(readings())) // 100 == 20)
    content = page(gather(detector, pl.DataFrame(values)))
    assert "<script" not in content
    assert "&lt;script&gt;" in content
    assert _Tags(content).open == []


def test_every_plot_has_a_name_and_a_description(report):
    content = page(report)
    assert content.count('role="img"') == content.count("<desc>") > 5
    assert len(re.findall(r'role="img"><title>[^<]+</title><desc>[^<]+</desc>', content)) == content.count("<desc>")


def test_the_page_lists_findings_or_says_that_there_are_none(report):
    found = dataclasses.replace(report, findings=(("dead", "Variable 'flow_1' is stuck at <0.25>."),))
    assert "<b>dead</b>: Variable &#39;flow_1&#39; is stuck at &lt;0.25&gt;." in page(found)
    assert "No findings." in page(dataclasses.replace(report, findings=()))


def test_a_template_with_a_missing_name_is_refused():
    with pytest.raises(UndefinedError, match="title"):
        render("base.html")


def test_badges_that_would_overlap_are_left_out_least_important_first():
    marks = [Mark(3, 0.5, 0.6, 0.55), Mark(1, 0.5, 0.6, 0.52), Mark(2, 0.1, 0.2, 0.15)]
    assert [mark.number for mark in Plot((), "", "", marks=marks).badges] == [2, 3]


def test_missing_values_interrupt_a_curve():
    line = Line(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([0.0, 1.0, np.nan, 1.0, 0.0]))
    assert curve(line, LinearAxis(0.0, 1.0), "score") == '<path class="curve score" d="M0 100L250 0M750 0L1000 100"/>'


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_prints_its_headline(detector, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    detector.save("plant.comet")
    timed(faulty()).write_csv("today.csv")
    assert main(["report", "plant.comet", "today.csv", "-o", "seen.html", "--most-events", "2"]) == 0
    printed = capsys.readouterr().err
    content = (tmp_path / "seen.html").read_text()
    headline = re.search("<title>(.*?)</title>", content).group(1)
    assert f"{headline}. Wrote 'seen.html'." in printed
    assert "cometad report plant.comet today.csv -o seen.html --most-events 2 --min-length 1 --merge-gap 0" in content
    assert "--longest 64 --longest-hours 8.0 --alert-from 0.15" in content
    assert NAMES[1] in content


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no.comet", "today.csv"], "The detector 'no.comet' does not exist."),
        (["plant.comet", "no.csv"], "no.csv"),
        (["plant.comet", "today.csv", "-o", "report.pdf"], "does not end in .html"),
        (["plant.comet", "today.csv", "-o", "no/report.html"], "Cannot write"),
    ],
)
def test_a_mistake_prints_one_sentence_and_writes_nothing(arguments, sentence, detector, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    detector.save("plant.comet")
    timed(faulty(200)).write_csv("today.csv")
    assert main(["report", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plant.comet", "today.csv"]
