"""Controlled drift: only what should change changes, and the figures equal those of plain loops."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cometad import Comet, NetworkComet
from cometad.datasets.synthetic import Fault
from cometad.errors import InputError, ParameterError
from cometad.network import NoAdaptation, OneCycle, OnlineAdaptation
from cometad.views.adaptation import FollowLevel, KeepFitted
from cometad_bench.datasets.drift import DRIFTS, FAULTS, controlled_series, planted, split_normal
from cometad_bench.drift.experiment import CONTAMINATIONS, compare, measure, settings_of
from cometad_bench.drift.figures import ARMS, plot_contamination, plot_drift, save_drift
from cometad_bench.drift.report import has_own_rule, own_rule_table
from cometad_bench.frame import frame_of
from cometad_bench.trial import common_threshold
from contract import is_a_sentence, saved, waves
from trials import trial

ROWS = 500  # per phase
VARIABLES = 12
REAL = [drift for drift in DRIFTS if drift != "none"]


def normal_parts():
    """Return a reference and a base in different units; variable 3 is constant, variable 7 in the reference only."""
    series = waves(4 * ROWS, VARIABLES) * np.geomspace(0.01, 100, VARIABLES) + np.arange(VARIABLES)
    series[:, 3] = 5.0
    series[: 2 * ROWS, 7] = -1.0
    return series[: 2 * ROWS], series[2 * ROWS :]


REFERENCE, BASE = normal_parts()


def controlled(**options):
    return controlled_series(REFERENCE, BASE, **options)


def unplanted(series):
    """Return where there is no fault (time, variable)."""
    sound = np.ones(series.values.shape, bool)
    for fault in series.faults:
        sound[fault.start : fault.stop, list(fault.variables)] = False
    return sound


# --- series -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.sampled_from(list(DRIFTS)),
    st.sampled_from([*CONTAMINATIONS, 0.4]),
    st.sampled_from([0.01, 0.3, 1.0]),
    st.sampled_from([1, 50, 70, 400]),
    st.integers(0, 40),
)
def test_a_controlled_series_keeps_its_rules(drift, contamination, share, align, seed):
    options = {"contamination": contamination, "align": align, "seed": seed}
    series = controlled(drift=drift, share=share, **options)
    rows = ROWS // align * align
    expected = np.concatenate([BASE[: 2 * rows], BASE[:rows]])
    sound = unplanted(series)
    # Three phases of equal length, a multiple of `align`, cover the series.
    assert list(series.phases.values()) == [(0, rows), (rows, 2 * rows), (2 * rows, 3 * rows)]
    assert len(series.values) == len(series.labels) == 3 * rows
    # Before the drift, the series is its base, and variables that are constant in the reference are never touched.
    np.testing.assert_array_equal(series.values[:rows][sound[:rows]], expected[:rows][sound[:rows]])
    np.testing.assert_array_equal(series.values[:, [3, 7]], expected[:, [3, 7]])
    # The stated share of the faults is exact; they do not touch or leave their phase, and the labels are their union.
    inside = [fault for fault in series.faults if rows < fault.start < 2 * rows]
    assert series.labels[rows : 2 * rows].sum() == round(contamination * rows)
    assert all(fault.stop <= 2 * rows for fault in inside)
    assert len(inside) == len(series.faults) - 2 * len(FAULTS)
    assert all(one.stop < other.start for one, other in itertools.pairwise(series.faults))
    faulty = {row for fault in series.faults for row in range(fault.start, fault.stop)}
    assert set(np.flatnonzero(series.labels)) == faulty
    # There is one probe of each kind, and it occurs twice.
    assert sorted(before.kind for before, _ in series.probes) == sorted(FAULTS)
    for before, after in series.probes:
        assert dataclasses.replace(before, start=before.start + 2 * rows, stop=before.stop + 2 * rows) == after
    # Neither drift nor contamination changes the other one, or the probes.
    steady, clean = controlled(**options), controlled(drift=drift, share=share, align=align, seed=seed)
    assert steady.faults == series.faults
    assert clean.probes == series.probes
    outside = np.r_[0:rows, 2 * rows : 3 * rows]
    np.testing.assert_array_equal(clean.values[outside], series.values[outside])
    # Without drift, `after` is `before` again, and what is not faulty is the base.
    np.testing.assert_array_equal(steady.values[:rows], steady.values[2 * rows :])
    np.testing.assert_array_equal(steady.values[sound], expected[sound])
    # A drift changes exactly its variables.
    changed = series.values != steady.values
    assert not changed[:rows].any()
    assert tuple(np.flatnonzero(changed.any(axis=0))) == series.drifting
    assert len(series.drifting) == (0 if drift == "none" else max(1, round(10 * share)))


def test_faults_change_what_they_replace():
    series = controlled(contamination=0.1)
    expected = np.concatenate([BASE, BASE[:ROWS]])
    assert (series.values != expected)[~unplanted(series)].mean() > 0.95


@pytest.mark.parametrize("drift", REAL)
def test_a_drift_ramps_in_or_starts_at_once_and_stays(drift):
    drifting = controlled(drift=drift, share=1.0)
    change = np.abs(drifting.values - controlled().values) / REFERENCE.std(axis=0).clip(1e-9)
    early, late = change[ROWS : ROWS + 50].mean(), change[2 * ROWS - 50 : 2 * ROWS].mean()
    after = [change[at : at + 100].mean() for at in range(2 * ROWS, 3 * ROWS, 100)]
    assert (change[ROWS:, list(drifting.drifting)] > 0).mean() > 0.95
    assert (early > 0.3 * late) == DRIFTS[drift].at_once
    assert min(after) > 0.3 * late  # a regime's driver comes and goes
    np.testing.assert_array_equal(controlled(drift=drift, strength=0.0).values, controlled().values)


def after_in_spreads(drift, strength):
    """Return the fault-free readings of `after`, with and without drift, in spreads from the mean of the reference."""
    drifting, steady = controlled(drift=drift, strength=strength, share=1.0), controlled()
    rows, columns = 2 * ROWS + np.flatnonzero(~steady.labels[2 * ROWS :]), list(drifting.drifting)
    mean, spread = REFERENCE[:, columns].mean(axis=0), REFERENCE[:, columns].std(axis=0)
    return [(series.values[rows][:, columns] - mean) / spread for series in (drifting, steady)]


def test_an_offset_moves_levels_by_its_strength_up_or_down():
    drifted, steady = after_in_spreads("offset", 2.0)
    np.testing.assert_allclose(np.abs(drifted - steady), 2.0)
    assert len(np.unique(np.sign((drifted - steady)[0]))) == 2


def test_a_gain_scales_deviations_from_the_mean():
    drifted, steady = after_in_spreads("gain", 1.0)
    ratio = np.median(drifted / steady, axis=0)
    assert set(np.round(ratio, 6)) == {0.5, 2.0}
    np.testing.assert_allclose(drifted, steady * ratio)


def test_a_variance_drift_adds_noise_of_its_strength():
    drifted, steady = after_in_spreads("variance", 2.0)
    noise = drifted - steady
    np.testing.assert_allclose(noise.std(axis=0), 2.0, rtol=0.15)
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 0.15


def test_a_regime_changes_how_variables_move_together_but_hardly_how_far():
    drifted, steady = after_in_spreads("regime", 1.0)
    together = [np.abs(np.corrcoef(part.T)[np.triu_indices(part.shape[1], 1)]).mean() for part in (drifted, steady)]
    assert together[0] > together[1] + 0.2
    np.testing.assert_allclose(drifted.std(axis=0), steady.std(axis=0), rtol=0.35)


def test_a_replaced_sensor_has_a_different_level_gain_and_noise():
    drifted, steady = after_in_spreads("replacement", 1.0)
    for new, old in zip(drifted.T, steady.T, strict=True):
        gain, level = np.polyfit(old, new, 1)
        assert min(abs(gain - 2.0), abs(gain - 0.5)) < 0.2
        assert abs(abs(level) - 1.0) < 0.2
        assert abs((new - gain * old - level).std() - 1.0) < 0.2


def test_a_probe_has_the_same_shape_on_drifted_readings():
    moved = (controlled(drift="offset", share=1.0).values - controlled().values)[2 * ROWS :]
    away = np.where(np.ptp(REFERENCE, axis=0) > 0, REFERENCE.std(axis=0), 0.0)
    np.testing.assert_allclose(np.abs(moved), np.tile(away, (ROWS, 1)), rtol=1e-6)  # faulty or not, only the offset


def test_a_stuck_sensor_repeats_its_last_good_reading():
    series = controlled(drift="variance", share=1.0)
    for fault in (fault for fault in series.faults if fault.kind == "stuck"):
        readings = series.values[fault.start - 1 : fault.stop, list(fault.variables)]
        np.testing.assert_array_equal(readings, np.tile(readings[0], (len(readings), 1)))


@pytest.mark.parametrize(("kind", "away"), [("spike", 6.0), ("level", 3.0)])
def test_spikes_and_levels_have_the_right_height_in_spreads(kind, away):
    spread = np.array([1.0, 10.0])
    ramp = np.tile(np.arange(50.0)[:, None], 2)
    before = ramp.copy()
    added = planted(ramp, [Fault(kind, 10, 12, (0, 1))], spread, seed=3) - ramp
    np.testing.assert_array_equal(ramp, before)
    np.testing.assert_array_equal(np.abs(added[10:12]), [away * spread] * 2)
    assert not added[:10].any()
    assert not added[12:].any()


def test_bursts_of_noise_have_two_spreads():
    values = planted(np.zeros((2000, 1)), [Fault("noise", 0, 2000, (0,))], np.array([10.0]))
    assert 19 < values.std() < 21


def test_a_normal_series_is_split_into_two_disjoint_parts():
    reference, base = split_normal(np.arange(10.0)[:, None], most=3)
    np.testing.assert_array_equal(reference[:, 0], range(5))
    np.testing.assert_array_equal(base[:, 0], [5, 6, 7])


@pytest.mark.parametrize(
    ("parts", "options", "error", "words"),
    [
        (
            (REFERENCE, BASE[:799]),
            {},
            InputError,
            "at least 400 readings, but 799 normal readings give phases of 399. Pass a longer",
        ),
        ((REFERENCE, BASE), {"align": 300}, InputError, "1000 normal readings give phases of 300"),
        ((REFERENCE, BASE), {"align": 0}, ParameterError, "must be at least 1. Got 0"),
        ((REFERENCE[:, :3], BASE), {}, InputError, "parts of the same series"),
        ((np.ones_like(REFERENCE), BASE), {}, InputError, "Pass another series"),
        ((REFERENCE, BASE), {"drift": "rust"}, ParameterError, "Unknown drift 'rust'. Available: none, offset"),
        ((REFERENCE, BASE), {"strength": math.nan}, ParameterError, "finite and not negative"),
        ((REFERENCE, BASE), {"contamination": 0.5}, ParameterError, "from 0 to 0.4. Got 0.5"),
        ((REFERENCE, BASE), {"contamination": -0.1}, ParameterError, "from 0 to 0.4. Got -0.1"),
        ((REFERENCE, BASE), {"share": 0.0}, ParameterError, "above 0 and at most 1"),
    ],
)
def test_an_impossible_series_is_refused_with_advice(parts, options, error, words):
    with pytest.raises(error, match=words) as refused:
        controlled_series(*parts, **options)
    assert is_a_sentence(str(refused.value))


# --- figures ----------------------------------------------------------------------------------------------------------


# Without the variable that first moves in the base: it alone would set off every alarm.
QUIET = [np.delete(part, 7, axis=1) for part in (REFERENCE, BASE)]


@pytest.fixture(scope="module")
def detector():
    adaptation = OnlineAdaptation(learning_rate=1e-3)
    return NetworkComet(schedule=OneCycle(20), codebook_size=32, test_batch=1, adaptation=adaptation).fit(QUIET[0])


@pytest.fixture(scope="module")
def series():
    return controlled_series(*QUIET, drift="offset", contamination=0.1)


@pytest.fixture(scope="module")
def adapting(detector, series):
    return measure(detector, series)


@pytest.fixture(scope="module")
def fixed(detector, series):
    return measure(detector, series, NoAdaptation())


def naive_phase(scores, labels, threshold, start, stop):
    normal = sorted(scores[t] for t in range(start, stop) if not labels[t])
    faulty = [scores[t] for t in range(start, stop) if labels[t]]
    wins = sum((fault > other) + (fault == other) / 2 for fault in faulty for other in normal)
    precisions = []
    for fault in faulty:
        hits, alarms = sum(one >= fault for one in faulty), sum(one >= fault for one in normal)
        precisions.append(hits / (hits + alarms))
    middle = (normal[(len(normal) - 1) // 2] + normal[len(normal) // 2]) / 2
    return {
        "auc_roc": wins / len(faulty) / len(normal),
        "auc_pr": sum(precisions) / len(faulty),
        "normal_score": middle / threshold,
        "false_alarms": sum(score > threshold for score in normal) / len(normal),
        "found": sum(score > threshold for score in faulty) / len(faulty),
    }


def naive_place(scores, labels, threshold, fault, start, stop):
    total = 0.0
    for t in range(fault.start, fault.stop):
        total += scores[t]
    score = total / (fault.stop - fault.start)
    normal = [scores[t] for t in range(start, stop) if not labels[t]]
    return {"score": score / threshold, "rank": sum(other < score for other in normal) / len(normal)}


def test_the_figures_equal_those_of_plain_loops(detector, series, adapting):
    scores, threshold = detector.decision_function(series.values).tolist(), common_threshold(detector.decision_scores_)
    for name, (start, stop) in series.phases.items():
        expected = naive_phase(scores, series.labels, threshold, start, stop)
        assert adapting["phases"][name] == pytest.approx(expected)
    for pair in series.probes:
        for name, fault in zip(("before", "after"), pair, strict=True):
            expected = naive_place(scores, series.labels, threshold, fault, *series.phases[name])
            assert adapting["probes"][fault.kind][name] == pytest.approx(expected)


def test_only_the_adapting_run_takes_steps_and_both_start_from_the_fitted_state(adapting, fixed):
    assert (adapting["steps"], fixed["steps"]) == (3 * ROWS // 128, 0)
    assert adapting["rolled_back"] == fixed["rolled_back"] == 0
    assert adapting["phases"]["after"] != fixed["phases"]["after"]


def test_equal_readings_aligned_to_windows_get_equal_figures(detector):
    series = controlled_series(QUIET[0], np.tile(QUIET[1], (2, 1)), align=detector.window)
    figures = measure(detector, series, NoAdaptation())
    assert figures["phases"]["before"] == figures["phases"]["after"]
    assert all(probe["before"] == probe["after"] for probe in figures["probes"].values())


def test_measuring_does_not_change_the_detector(detector, series):
    before = saved(detector)
    measure(detector, series)
    assert saved(detector) == before


def test_a_phase_without_faults_has_no_area_which_is_null_in_json(detector):
    figures = measure(detector, controlled_series(*QUIET, drift="gain"), NoAdaptation())
    during = figures["phases"]["during"]
    assert [during[name] for name in ("auc_roc", "auc_pr", "found")] == [None, None, None]
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_the_published_method_can_be_measured(series):
    small = Comet.paper(codebook_size=16, dim=8, core_dim=4, schedule=OneCycle(10), test_batch=4).fit(QUIET[0])
    figures = measure(small, series)
    assert figures["steps"] == 3 * ROWS // 400
    json.dumps(figures, allow_nan=False)


def test_compare_returns_what_adaptation_changed(adapting, fixed):
    moved = compare(adapting, fixed)
    for name in ("before", "during", "after"):
        for figure, value in moved["phases"][name].items():
            assert value == adapting["phases"][name][figure] - fixed["phases"][name][figure]
    ours, theirs = (figures["probes"]["spike"]["after"]["score"] for figures in (adapting, fixed))
    assert moved["probes"]["spike"]["log_ratio"] == pytest.approx(math.log(ours) - math.log(theirs))
    assert moved["probes"]["spike"]["difference"] == ours - theirs
    assert moved["normal"]["difference"] == moved["phases"]["after"]["normal_score"]


def test_a_score_below_the_training_median_has_no_logarithm(adapting, fixed):
    below = json.loads(json.dumps(fixed))
    below["probes"]["stuck"]["after"]["score"] = -0.5
    moved = compare(adapting, below)["probes"]["stuck"]
    assert moved["log_ratio"] is None
    assert moved["difference"] == adapting["probes"]["stuck"]["after"]["score"] + 0.5


def test_without_a_positive_threshold_scores_are_null_and_ranks_are_kept(detector, series, fixed):
    class Lenient:
        decision_scores_ = np.full(3, -1.0)
        stream = detector.stream

    figures = measure(Lenient(), series, NoAdaptation())
    assert figures["probes"]["level"]["after"] == {"score": None, "rank": fixed["probes"]["level"]["after"]["rank"]}
    assert figures["phases"]["before"]["normal_score"] is None
    assert compare(figures, figures)["normal"] == {"log_ratio": None, "difference": None}


def test_settings_are_distinct_and_cover_every_drift_and_contamination():
    short, long = settings_of("short"), settings_of("long")
    shares = {drift: [one["contamination"] for one in short if one["drift"] == drift] for drift in DRIFTS}
    assert shares.pop("none") == shares.pop("offset") == [0, 0.01, 0.05, 0.1, 0.3]
    assert all(own == [0, 0.05] for own in shares.values())
    assert len(long) == 4
    for setting in short + long:
        controlled(**setting)


def naive_rule(flags, series, start, stop):
    normal = [flags[t] for t in range(start, stop) if not series.labels[t]]
    faults = [fault for fault in series.faults if start <= fault.start < stop]
    touched = [any(flags[t] for t in range(fault.start, fault.stop)) for fault in faults]
    return sum(normal) / len(normal), sum(touched) / len(touched)


@pytest.mark.parametrize("adaptation", [KeepFitted(), FollowLevel(every=64)])
def test_the_own_rule_of_a_detector_is_measured_beside_a_threshold_that_does_not_move(series, adaptation):
    budget = Comet(adaptation=adaptation).fit(QUIET[0])
    own = measure(budget, series)["own"]
    stream = budget.stream()
    parts = [stream.update_many(series.values), stream.finish()]
    flags = [bool(flag) for part in parts for flag in part.flags]
    start_at = parts[0].thresholds[0]
    unmoved = [bool(score > start_at) for part in parts for score in part.alert_scores]
    assert start_at == budget.threshold_
    assert flags != unmoved
    for name, place in series.phases.items():
        rates = (*naive_rule(flags, series, *place), *naive_rule(unmoved, series, *place))
        names = ("false_alarms", "touched", "false_alarms_unmoved", "touched_unmoved")
        assert own[name] == pytest.approx(dict(zip(names, rates, strict=True)))


def test_the_table_of_the_own_rule_leaves_out_results_that_do_not_have_it(adapting, fixed):
    new = results(adapting, fixed, ["gain"], [0.0])
    before = [{name: value for name, value in figures.items() if name != "own"} for figures in (adapting, fixed)]
    old = results(*before, ["gain"], [0.0], entity="old")
    assert [has_own_rule(frame_of(records)) for records in (new, old)] == [True, False]
    table = own_rule_table(frame_of(new + old), "Own rule")
    assert [row.arm for group in table.groups for row in group.rows] == ["gain, 0 % faults"]
    found = dict(zip([column.header for column in table.columns], table.groups[0].rows[0].cells, strict=True))
    own = fixed["own"]["after"]
    assert found["false alarms after, own rule"].value == own["false_alarms"]
    assert found["false alarms after, threshold unmoved"].value == own["false_alarms_unmoved"]
    assert found["faults touched after, own rule, adapting"].value == adapting["own"]["after"]["touched"]


# --- plots ------------------------------------------------------------------------------------------------------------


def results(adapting, fixed, drifts=("none", "offset"), contaminations=(0.05, 0.3), seed=0, entity="short"):
    """Results of a plant under several drifts, one for each."""
    both = {"adapting": adapting, "fixed": fixed, "moved": compare(adapting, fixed)}
    settings = [{"drift": drift, "contamination": share} for drift in drifts for share in contaminations]
    return [trial("comet", 0, "plant", entity, seed, setting=one, **both) for one in settings]


def after(figures, name):
    return figures["phases"]["after"][name]


def by_color(axes, arm):
    """Return the points (x, y) of one arm in drawing order."""
    lines = [line for line in axes.get_lines() if line.get_marker() == "o" and line.get_color() == ARMS[arm]["color"]]
    return np.concatenate([line.get_xydata() for line in lines])


def test_the_drift_plot_shows_means_over_series_and_deviations_over_seeds(adapting, fixed):
    axes = Figure().subplots()
    first, second, third = (
        results(figures, fixed, ["gain"], [0.0], seed, entity)
        for figures, seed, entity in ((adapting, 0, "short"), (fixed, 0, "other"), (fixed, 1, "short"))
    )
    plot_drift(axes, frame_of(first + second + third), "auc_roc")
    one, other = np.mean([after(adapting, "auc_roc"), after(fixed, "auc_roc")]), after(fixed, "auc_roc")
    assert by_color(axes, "adapting")[0, 0] == pytest.approx((one + other) / 2)
    (bar,) = axes.containers[1].lines[2]
    ends = (one + other) / 2 + np.array([-1, 1]) * abs(one - other) / np.sqrt(2)  # the deviation of a sample of two
    np.testing.assert_allclose(sorted(bar.get_segments()[0][:, 0]), ends)


def test_the_contamination_plot_has_contamination_on_the_x_axis(adapting, fixed):
    axes = Figure().subplots()
    plot_contamination(axes, frame_of(results(adapting, fixed)), "auc_pr")
    ticks = dict(zip(axes.get_xticks(), (label.get_text() for label in axes.get_xticklabels()), strict=True))
    points = by_color(axes, "adapting")
    assert [ticks[round(place)] for place in points[:, 0]] == ["5 %", "30 %"] * 2
    np.testing.assert_allclose(points[:, 1], [after(adapting, "auc_pr")] * 4)


def figures_drawn(monkeypatch):
    """The figures that are saved from now on."""
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *args, **more: drawn.append(figure) or save(figure, *args, **more)
    )
    return drawn


def test_the_whole_figure_has_a_row_per_dataset_and_one_for_the_long_stream(monkeypatch, adapting, fixed, tmp_path):
    drawn = figures_drawn(monkeypatch)
    places = [("SMD", "a"), ("SMD", "b"), ("plant", "short"), ("plant", "long")]
    everything = results(adapting, fixed, contaminations=[0.0, 0.3])
    records = [one | {"dataset": dataset, "entity": entity} for dataset, entity in places for one in everything]
    save_drift(tmp_path / "drift.png", frame_of(records))
    (figure,) = drawn
    assert [panel.get_ylabel() for panel in figure.axes[::4]] == ["SMD\n2 entities", "plant", "plant\na long stream"]
    for panel in figure.axes:
        assert len(by_color(panel, "adapting")) == (2 if panel in figure.axes[0::4] + figure.axes[1::4] else 4)


@pytest.mark.parametrize("seeds", [1, 3])
def test_texts_of_the_whole_figure_do_not_overlap(monkeypatch, adapting, fixed, tmp_path, seeds):
    drawn = figures_drawn(monkeypatch)
    records = [
        one
        for seed in range(seeds)
        for entity, drifts in (("short", DRIFTS), ("long", ("none", "offset")))
        for one in results(adapting, fixed, drifts, [0.0, 0.3], seed, entity)
    ]
    save_drift(tmp_path / "drift.png", frame_of(records))
    figure = drawn[0]
    figure.draw_without_rendering()
    texts = [text for panel in figure.axes for text in (panel.title, panel.yaxis.label, *panel.get_yticklabels())]
    texts += figure.legends[0].get_texts()
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert len(boxes) > 20
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]


# --- table ------------------------------------------------------------------------------------------------------------
