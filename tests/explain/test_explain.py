"""Explanations: shares, worst patches and normal readings equal the loops, and the whole works for a user."""

import json
import re
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import naive
from cometad import BASELINES, Comet, NetworkComet, load
from cometad.alerting.alerts import Event
from cometad.cli import main
from cometad.cli.explain import bars, row
from cometad.data import ScoreMeasured
from cometad.errors import InputError
from cometad.explain.explainer import pieces
from cometad.explain.reasons import Reason, rises, shares, stretch_of, worst_patches
from cometad.network import Epochs, NoAdaptation, OneCycle
from cometad.network.network import Network
from cometad.network.patches import back_to_readings, coverage, patch_count, patch_weights, ready_steps
from cometad.scoring import PercentileSelection
from cometad.views import VIEWS
from contract import waves

SHAPE = {"window": 20, "window_stride": 10, "patch_sizes": (2, 6), "patch_strides": (1, 3), "dim": 8, "core_dim": 4}
FAULT = 130

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda size: size[1] <= size[0])


def tiny(**changes):
    parameters = {**SHAPE, "codebook_size": 16, "schedule": OneCycle(30), "batch_size": 8, "test_batch": 2}
    return NetworkComet(**{**parameters, **changes})


@pytest.fixture(scope="module")
def detector():
    return tiny().fit(waves(400))


@pytest.fixture(scope="module")
def paper():
    sizes = {"window": 20, "window_stride": 10, "dim": 8, "core_dim": 4, "codebook_size": 16, "test_batch": 2}
    return Comet.paper(**sizes, batch_size=8, schedule=Epochs(2, learning_rate=1e-3)).fit(waves(400))


@pytest.fixture(scope="module")
def faulty():
    series = waves(307, seed=1)
    series[FAULT : FAULT + 3, 1] += 6.0
    return series


def weights_of(detector):
    return [naive.Weights.of(scale) for scale in detector.network_]


def loud_score(windows):
    """A score (window, time) that depends on all variables of a step and of the previous one."""
    shifted = np.concatenate([windows[:, :1], windows[:, :-1]], axis=1)
    return np.sqrt((np.square(windows.sum(axis=2)) + np.abs(shifted).max(axis=2)).astype(np.float64))


# --- the arithmetic ---------------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-1e9, 1e9)))
def test_shares_equal_the_loops(found):
    assert shares(found) == pytest.approx(naive.shares(found.tolist()))


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-1e300, 1e300)))
def test_shares_sum_to_one_and_none_is_negative(found):
    share = shares(found)
    assert (share >= 0).all()
    assert share.sum() == pytest.approx(1.0)


@given(seeds, st.permutations(range(5)))
def test_permuting_variables_permutes_shares(seed, order):
    found = np.random.default_rng(seed).normal(size=(4, 5))
    assert shares(found[:, order]) == pytest.approx(shares(found)[list(order)])


def test_if_no_variable_raises_the_score_all_shares_are_equal():
    assert shares(np.array([[-1.0, 0.0, -2.0, -3.0]])).tolist() == [0.25] * 4


@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_rises_equal_the_loops(seed, count, length, variables):
    rng = np.random.default_rng(seed)
    windows = rng.normal(size=(count, length, variables)).astype(np.float32)
    typical = rng.normal(size=variables).astype(np.float32)
    found = rises(windows, typical, loud_score)
    for w, t, i in np.ndindex(*windows.shape):
        expected = naive.rise(windows[w], t, i, typical.tolist(), lambda one: loud_score(np.array([one]))[0])
        assert found[w, t, i] == pytest.approx(expected, abs=1e-5)


def test_a_variable_that_merely_fails_to_match_another_raises_the_score_too():
    windows, typical = np.array([[[1.0, -1.0, 0.0]]], np.float32), np.ones(3, np.float32)
    apart = rises(windows, typical, lambda some: np.abs(some[..., 0] - some[..., 1]).astype(np.float64))
    assert apart[0, 0].tolist() == [0.0, 2.0, 0.0]


@given(st.integers(6, 25), sizes, st.data())
def test_patch_weights_average_over_patches_and_then_over_steps(length, size, data):
    start = data.draw(st.integers(0, length - 1))
    stop = data.draw(st.integers(start + 1, length))
    values = np.random.default_rng(0).normal(size=patch_count(length, *size))
    cover = coverage(length, *size)
    weights = patch_weights(cover.first[start:stop], cover.last[start:stop])
    over_time = naive.back_to_time(values[:, None].tolist(), length, *size)
    first = cover.first[start]
    assert weights @ values[first : first + len(weights)] == pytest.approx(sum(row[0] for row in over_time[start:stop]))


def test_the_scale_is_chosen_by_its_mean_and_not_by_its_largest_patch():
    fine, coarse = np.array([[9.0, 0.0], [0.0, 1.0]]), np.array([[5.0, 0.4]])
    worst = worst_patches([fine, coarse], [np.array([0.5, 0.5]), np.array([1.0])])
    assert worst.scale.tolist() == [1, 0]
    assert worst.patch.tolist() == [0, 1]


# --- windows ----------------------------------------------------------------------------------------------------------


@given(st.integers(10, 60), st.data())
def test_every_time_step_is_scored_by_one_window_that_contains_it(rows, data):
    ready = data.draw(st.integers(0, rows % 10))
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start + 1, rows))
    found = pieces(rows, 10, ready, start, stop)
    assert [step for piece in found for step in range(piece.start, piece.stop)] == list(range(start, stop))
    assert all(0 <= piece.begin <= piece.start < piece.stop <= piece.begin + 10 for piece in found)


@given(st.integers(0, 12), st.lists(sizes, min_size=1, max_size=3))
def test_a_step_is_ready_once_all_patches_over_it_and_earlier_steps_are_complete(rows, scales):
    def complete(step):
        ends = [j * stride + size for size, stride in scales for j in naive.covering(step, 12, size, stride)]
        return max(*ends, step + 1) <= rows

    ready = 0
    while ready < 12 and complete(ready):
        ready += 1
    assert ready_steps(rows, 12, scales) == ready


@pytest.mark.parametrize("rows", [20, 21, 37, 59, 60])
@pytest.mark.parametrize("release", ["row", "window"])
def test_the_score_equals_that_of_the_whole_series_without_adaptation(rows, release):
    changes = {} if release == "row" else {"selection": PercentileSelection(50), "score_weight": 0.5}
    detector = tiny(adaptation=NoAdaptation(), **changes).fit(waves(400))
    series = waves(rows, seed=2)
    scores = detector.decision_function(series)
    assert [detector.explain(series, step, context=0).score for step in range(rows)] == scores.tolist()
    assert detector.explain(series, (0, rows)).peak == scores.argmax()


# --- normal readings --------------------------------------------------------------------------------------------------


@given(seeds, sizes, st.integers(6, 14))
def test_normal_codes_are_the_nearest_active_ones(seed, size, length):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    network = Network(2, (size[0],), (size[1],), dim=4, core_dim=3, codebook_size=6)
    (scale,) = network
    windows = rng.normal(size=(9, length, 2)).astype(np.float32)
    active = rng.random(6) < 0.4
    active[rng.integers(6)] = True
    codes = scale.codebook.nearest(scale.embed(torch.as_tensor(windows))).numpy().astype(np.int32)
    found = scale.normal_codes(windows, codes, active)
    weights, known = naive.Weights.of(scale), np.flatnonzero(active).tolist()
    for w, j, i in [(0, 0, 0), (8, codes.shape[1] - 1, 1)]:
        assert found[w, j, i] == naive.normal_code(windows[w], i, j, weights, known)
    assert active[found].all()
    assert np.array_equal(found[active[codes]], codes[active[codes]])


@given(seeds, st.lists(sizes, min_size=1, max_size=3), st.integers(6, 14))
def test_normal_readings_equal_the_loops(seed, scales, length):
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(5, size)) for size, _ in scales]
    codes = [rng.integers(5, size=(1, patch_count(length, *size), 1)).astype(np.int32) for size in scales]
    strides = [stride for _, stride in scales]
    found = back_to_readings(codes, tables, strides, length)[0, :, 0]
    own = [some[0, :, 0] for some in codes]
    assert found == pytest.approx([naive.normal_reading(own, t, length, tables, strides) for t in range(length)])


def test_a_decoded_code_equals_the_loops(detector):
    for scale in detector.network_:
        weights = naive.Weights.of(scale)
        assert scale.decoded()[3] == pytest.approx(naive.decoded(3, weights), abs=1e-6)


# --- an explanation ---------------------------------------------------------------------------------------------------


def test_a_planted_fault_is_explained_by_its_variable_readings_and_expected_pattern(detector, faulty):
    explanation = detector.explain(faulty, (FAULT, FAULT + 3))
    first = explanation.reasons[0]
    assert first.variable == "v1"
    assert first.share > 0.5
    assert (first.view, first.band) == ("network", None)
    assert first.sentence().startswith("Unlike its normal patterns: it read ")
    assert first.start < FAULT + 3
    assert first.stop > FAULT
    assert np.array_equal(first.observed, faulty[first.start : first.stop, 1])
    assert first.observed.max() > first.expected.max() + 2
    assert {reason.variable for reason in explanation.reasons} == {"v0", "v1", "v2"}
    assert sum(reason.share for reason in explanation.reasons) == pytest.approx(1.0)


def test_a_variable_within_its_range_at_the_wrong_time_is_found():
    def plant(seed):
        wave = np.sin(np.arange(600) / 8)
        return np.column_stack([wave, -wave, wave]) + 0.05 * np.random.default_rng(seed).normal(size=(600, 3))

    detector, series = tiny(schedule=OneCycle(100)).fit(plant(0)), plant(1)
    series[300:340, 1] *= -1
    assert np.abs(series[300:340]).max() < np.abs(plant(0)).max()
    assert detector.explain(series, (300, 340)).reasons[0].variable == "v1"


def test_shares_measure_how_much_each_variable_raises_the_score(detector, faulty):
    still = detector.with_scoring(waves(400), adaptation=NoAdaptation())
    begin, step = FAULT // 20 * 20, FAULT % 20
    window = faulty[begin : begin + 20]
    typical = detector.scaling_.back(detector.typical_.astype(np.float64)).tolist()
    raised = [
        naive.rise(window, step, i, typical, lambda one: still.decision_function(np.array(one)).tolist())
        for i in range(3)
    ]
    share = {reason.variable: reason.share for reason in detector.explain(faulty, FAULT).reasons}
    assert [share[f"v{i}"] for i in range(3)] == pytest.approx(naive.shares([raised]), rel=1e-4, abs=1e-6)


def test_worst_patches_codes_and_frequencies_equal_the_loops(detector, faulty):
    explanation = detector.explain(faulty, (FAULT, FAULT + 3))
    begin = FAULT // 20 * 20
    window = detector.scaling_(faulty[begin : begin + 20]).astype(np.float64)
    scales, steps = weights_of(detector), range(FAULT - begin, FAULT + 3 - begin)
    training = detector.scaling_(waves(400))[:360]
    starts = [*range(0, 341, 10)]
    for reason in explanation.reasons:
        i = int(reason.variable[1:])
        k, patch = naive.worst_patch(window, i, steps, scales, detector.levels_[1, :, i])
        assert (reason.scale, reason.start) == (scales[k].size, begin + patch * scales[k].stride)
        codes = [
            row[v].code
            for start in starts
            for row in naive.embeddings(training[start : start + 20].astype(np.float64), scales[k])
            for v in range(3)
        ]
        assert reason.code == naive.normal_code(window, i, patch, scales[k], sorted(set(codes)))
        assert reason.frequency == pytest.approx(codes.count(reason.code) / len(codes))
        expected = np.array(naive.decoded(reason.code, scales[k]))
        in_units = expected * detector.scaling_.unit[i] + detector.scaling_.center[i]
        assert reason.expected == pytest.approx(in_units, abs=1e-5)


def test_the_worst_patch_of_a_coarse_scale_lies_at_the_fault():
    coarse = tiny(patch_sizes=(6,), patch_strides=(3,)).fit(waves(400))
    series = waves(307, seed=1)
    for fault in (46, 133, 214):  # far from the start of their windows, so that a wrong stride shows
        series[fault, 1] += 9.0
        reason = coarse.explain(series, fault).reasons[0]
        assert reason.variable == "v1"
        assert reason.start <= fault < reason.stop
        assert (reason.start - fault // 20 * 20) % 3 == 0


def test_observed_and_normal_readings_cover_the_event_and_its_context(detector, faulty):
    explanation = detector.explain(faulty, (FAULT, FAULT + 3), context=7)
    assert (explanation.begin, len(explanation.observed)) == (FAULT - 7, 17)
    assert np.array_equal(explanation.observed, faulty[FAULT - 7 : FAULT + 10])
    assert explanation.normal.shape == explanation.observed.shape
    away = np.abs(explanation.normal - explanation.observed)
    assert away[7:10, 1].mean() > 3 * away[:4].mean()
    at_the_end = detector.explain(faulty, len(faulty) - 1, context=10_000)
    assert (at_the_end.begin, len(at_the_end.normal)) == (0, len(faulty))


def test_only_the_windows_around_the_event_are_scored(detector, faulty):
    other = faulty.copy()
    other[:40], other[240:] = 1e5, -1e5
    explained = [detector.explain(series, (FAULT, FAULT + 3)).as_json() for series in (faulty, other)]
    assert explained[0] == explained[1]


def test_a_fault_in_a_long_event_is_found(detector):
    series = np.tile(waves(20, seed=3), (40, 1))
    series[600:603, 2] += 9.0
    assert detector.explain(series, (100, 780)).reasons[0].variable == "v2"


def test_the_published_method_explains_too(paper, faulty):
    explanation = paper.explain(faulty, (FAULT, FAULT + 3))
    assert explanation.reasons[0].variable == "v1"
    assert sum(reason.share for reason in explanation.reasons) == pytest.approx(1.0)
    assert paper.explain(faulty, len(faulty) - 1, context=0).observed.shape == (1, 3)


def test_the_published_method_normalizes_by_the_batch_of_the_event(faulty):
    sizes = {"window": 20, "window_stride": 10, "dim": 8, "core_dim": 4, "codebook_size": 16, "test_batch": 20}
    still = Comet.paper(**sizes, schedule=Epochs(2, learning_rate=1e-3), adaptation=NoAdaptation()).fit(waves(400))
    scores = still.decision_function(faulty)  # the whole series is one batch
    assert [still.explain(faulty, step).score for step in (0, FAULT, 306)] == scores[[0, FAULT, 306]].tolist()
    near, far = (still.explain(faulty, FAULT, context=context) for context in (0, 100))
    assert [reason.share for reason in near.reasons] == [reason.share for reason in far.reasons]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_an_event_from_another_series_is_refused():
    event = Event(number=1, start=90, stop=120, peak=95, peak_score=3.0, severity=0.5, steps=9, open=False)
    with pytest.raises(InputError, match="Time steps 90 to 120 are outside the series, which has 100 readings"):
        stretch_of(event, 100)


# --- the command line -------------------------------------------------------------------------------------------------


def _frame(rows: int, seed: int) -> pl.DataFrame:
    times = [datetime(2024, 3, 1) + timedelta(minutes=i) for i in range(rows)]
    return pl.DataFrame({"time": times, **dict(zip(("flow", "level", "heat"), waves(rows, seed=seed).T, strict=True))})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a fitted detector and readings with a fault, with and without times."""
    folder = tmp_path_factory.mktemp("explain")
    today = _frame(100, seed=1)
    today[70, "level"] = 9.0
    today.write_csv(folder / "today.csv")
    today.drop("time").write_csv(folder / "timeless.csv")
    normal = _frame(400, seed=0)
    Comet().fit(normal).save(folder / "plant.comet")
    BASELINES["knn"]().fit(normal).save(folder / "plant.knn")
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run `cometad explain` inside the folder; its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["explain", *arguments]), *capsys.readouterr()

    return run


def test_the_table_starts_with_the_faulty_variable_its_time_why_and_what_was_expected(run):
    code, shown, _ = run("plant.comet", "today.csv", "--start", "70", "--stop", "71", "--top", "2")
    assert code == 0
    assert "Time step 70 (2024-03-01 01:10:00)" in shown
    rows = [line for line in shown.splitlines() if "level" in line or "flow" in line or "heat" in line]
    assert len(rows) == 2
    assert "level" in rows[0]
    assert "█" in rows[0]
    assert re.search(r"\b9 .* ± \d", shown)
    assert any(kind.reason[:12] in rows[0] for kind in VIEWS.values())


def test_the_table_fits_80_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, shown, _ = run("plant.comet", "today.csv", "--start", "60", "--stop", "90")
    assert code == 0
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_times_the_table_shows_time_steps(run):
    code, shown, _ = run("plant.comet", "timeless.csv", "--start", "68", "--stop", "73")
    assert code == 0
    assert "Time steps 68 to 72" in shown
    assert "2024" not in shown


def test_json_output_equals_the_python_result(run, folder):
    code, shown, _ = run("plant.comet", "today.csv", "--step", "70", "--top", "1", "--context", "3", "--json")
    output = json.loads(shown)
    series = pl.read_csv(folder / "today.csv", try_parse_dates=True)
    explanation = load(folder / "plant.comet").explain(series, 70, context=3).as_json()
    assert code == 0
    assert output.pop("variables") == ["flow", "level", "heat"]
    assert output.pop("times")[3] == "2024-03-01T01:10:00.000000"
    assert output == explanation | {"reasons": explanation["reasons"][:1]}


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["plant.comet", "today.csv"], "Pass either --step, or both --start and --stop"),
        (["plant.comet", "today.csv", "--step", "1", "--stop", "2"], "Pass either --step, or both --start and --stop"),
        (["plant.comet", "today.csv", "--start", "1"], "Pass either --step, or both --start and --stop"),
        (["plant.comet", "today.csv", "--step", "100"], "outside the series, which has 100 readings"),
        (["plant.comet", "today.csv", "--start", "9", "--stop", "9"], "Start 9 and stop 9 enclose no time step"),
        (["plant.comet", "nowhere.csv", "--step", "1"], "nowhere.csv"),
        (["nowhere.comet", "today.csv", "--step", "1"], "The detector 'nowhere.comet' does not exist"),
        (["plant.knn", "today.csv", "--step", "1"], "holds a KnnDistance, which cannot explain its scores"),
        (["plant.comet", "today.csv", "--step", "1", "--top", "0"], "--top"),
        (["plant.comet", "today.csv", "--step", "x"], "--step"),
        (["plant.comet", "today.csv", "--step", "1", "--drop", "flow"], "fitted on 'flow', which the file lacks"),
    ],
)
def test_a_mistake_gives_one_sentence_and_exit_code_2(run, arguments, sentence):
    code, shown, stderr = run(*arguments)
    last = stderr.strip().splitlines()[-1]
    assert (code, shown) == (2, "")
    assert last.startswith("cometad: ")
    assert sentence in last
    assert "Traceback" not in stderr


def test_the_verb_has_help_with_an_example(run):
    code, shown, _ = run("--help")
    assert code == 0
    assert "cometad explain" in shown.partition("Example: ")[2]


@given(hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e308, 1e308)))
def test_bars_grow_with_their_values(values):
    drawn = bars(values, values.min(), values.max())
    assert len(drawn) == len(values)
    assert [drawn[i] for i in np.argsort(values)] == sorted(drawn)


@pytest.mark.parametrize(
    ("read", "expected", "band", "shown"),
    [
        ((230.31, 230.62), (230.02, 230.04), 0.12, ("230.31 to 230.62", "230.02 to 230.04 ± 0.12")),
        ((51_204.0, 51_204.0), (1234.56, 1234.56), 30.0, ("51,204", "1,235 ± 30")),
        ((230.25, 230.5), (np.nan, np.nan), None, ("230.25 to 230.5", "")),
    ],
)
def test_the_table_shows_the_digits_that_differ(read, expected, band, shown):
    readings = np.array(read), np.array(expected)
    *_, observed, normal = row(Reason("voltage", 1.0, "forecast", "unlikely", 7, 7, 9, *readings, band=band))
    assert (observed.partition("\n")[2], normal.partition("\n")[2]) == shown


def test_an_imputed_reading_is_shown_as_none_and_has_no_share():
    normal, fresh = waves(400, 3), waves(120, 3, seed=1)
    fresh[60:64, 1] = 9.0
    fresh[62, 2] = np.nan
    fresh[60:64, 0] = np.nan
    explanation = tiny(gaps=ScoreMeasured()).fit(normal).explain(fresh, (60, 64))
    shares = {reason.variable: reason.share for reason in explanation.reasons}
    assert shares["v0"] == 0
    assert explanation.reasons[0].variable == "v1"
    plain = json.loads(json.dumps(explanation.as_json(), allow_nan=False))
    row = 62 - plain["begin"]
    assert plain["observed"][row] == [None, 9.0, None]
    np.testing.assert_array_equal(explanation.observed[np.isfinite(explanation.observed)][:3], fresh[28, :3])
