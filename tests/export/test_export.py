"""An exported file scores a stream as its detector does, to within rounding."""

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import onnx
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cometad import BASELINES, Budget, Comet, NetworkComet, Quantile
from cometad.alerting import Spot
from cometad.cli import main
from cometad.data import ForwardFill
from cometad.errors import NotFittedError, OutputError, ParameterError
from cometad.export import to_onnx
from cometad.export.agreement import TOLERANCE, checked, generated, opened, run_steps, times_of
from cometad.export.step import NEXT_STATE, READING, STATE, TIME
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.adaptation import FollowLevel
from contract import is_a_sentence
from fitted import fitted
from own_views import Level

LIVE = [
    Joint(length=1, codes=4),
    Patterns(length=8, codes=6),
    Joint(length=5, codes=8),
    Forecast(lags=4),
    Balance(length=3),
    Activity(length=9),
]


def plant(rows, seed=0):
    """A wave, noise, a switch, a counter and a variable that wanders."""
    rng = np.random.default_rng(seed)
    wave, noise = np.sin(np.arange(rows) / 7) + 0.1 * rng.normal(size=rows), rng.normal(size=rows)
    switch = np.repeat(rng.integers(0, 2, rows // 50 + 1), 50)[:rows]
    counter, walk = np.cumsum(rng.random(rows)), np.cumsum(rng.normal(size=rows))
    return np.column_stack([wave, noise, switch, counter, walk])


@pytest.fixture(scope="module")
def detector():
    return fitted(Comet(), plant(2400))


@pytest.fixture(scope="module")
def file(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "plant.onnx"
    to_onnx(detector, path)
    return path


def today():
    """New readings with faults and a stretch in which nothing moves."""
    readings = plant(700, seed=1)
    readings[200, 0], readings[300:310, 1], readings[400:460] = 9.0, -7.0, readings[400]
    readings[500, 3] += 1e6
    return readings


def assert_same(scored, theirs, difference=1e-9):
    for ours, other in (
        (scored.alert_scores, theirs.alert_scores),
        (scored.variables, theirs.variables),
        (scored.thresholds, theirs.thresholds),
    ):
        np.testing.assert_allclose(other, ours, rtol=difference, atol=difference)
    assert np.array_equal(scored.flags, theirs.flags)


def test_a_file_scores_readings_as_a_stream_does(detector, file):
    assert set(detector.trends_.kinds.values()) == {"counter", "state", "wanders"}
    scored = detector.stream().update_many(today())
    assert_same(scored, run_steps(opened(file.read_bytes()), today()))
    assert 0 < scored.flags.sum() < 200


@settings(max_examples=4)
@given(
    width=st.integers(1, 4),
    seed=st.integers(0, 99),
    views=st.lists(st.sampled_from(LIVE), min_size=1, max_size=6, unique=True),
    pooling=st.sampled_from([1, 2, 8, 11]),
    threshold=st.sampled_from([Budget(), Budget(alerts_per_day=500, period=1.0), Budget(rate=0.05), Quantile(0.02)]),
    scaler=st.sampled_from(["standard", "min-max"]),
    few_values=st.booleans(),
)
def test_any_detector_that_can_be_exported_scores_the_same(width, seed, views, pooling, threshold, scaler, few_values):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, (500, width)).astype(float) if few_values else rng.normal(size=(500, width))
    detector = Comet(views=views, pooling=pooling, threshold=threshold, scaler=scaler).fit(values[:300])
    assume(detector.threshold_ > 1e-9)  # one view alone may explain everything: then scores are only rounding
    fresh = np.concatenate([values[300:], 3 * values[:100], values[:50]])
    exported = detector_bytes(detector)
    assert_same(detector.stream().update_many(fresh), run_steps(opened(exported), fresh))


def detector_bytes(detector):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plant.onnx"
        assert to_onnx(detector, path).agreement.difference < TOLERANCE
        return path.read_bytes()


def test_a_detector_whose_views_need_no_reading_before_scores_the_same():
    rng = np.random.default_rng(0)
    detector = Comet(views=[Joint(length=1, codes=4), Patterns(length=1, codes=3)]).fit(rng.normal(size=(300, 2)))
    fresh = 2 * rng.normal(size=(50, 2))
    assert_same(detector.stream().update_many(fresh), run_steps(opened(detector_bytes(detector)), fresh))


def test_a_detector_of_a_wide_table_scores_the_same():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(700, 2)), 50, axis=1) + 0.3 * rng.normal(size=(700, 100))
    rows = rows[:, rng.permutation(100)]
    detector = Comet(views=[Forecast(lags=2), Balance(length=2), Joint(length=2, codes=4)]).fit(rows[:500])
    assert {type(view).__name__ for view in detector.views_} == {"FittedBlocks"}
    fresh = np.concatenate([rows[500:], 2 * rows[:50]])
    assert_same(detector.stream().update_many(fresh), run_steps(opened(detector_bytes(detector)), fresh))


@pytest.mark.parametrize("seed", [10, 24])
def test_scores_that_often_repeat_keep_the_thresholds_together(seed):
    """One valve with three positions: equal scores are common, and rounding must not decide which ones are equal."""
    readings = np.random.default_rng(seed).integers(0, 3, (1700, 1)).astype(float)
    detector = Comet(threshold=Budget(rate=0.1)).fit(readings[:200])
    assert_same(
        detector.stream().update_many(readings[200:]), run_steps(opened(detector_bytes(detector)), readings[200:])
    )


def test_a_detector_with_verdicts_scores_the_same():
    detector = fitted(Comet(views=[Patterns(length=8, codes=6), Forecast(lags=4)]), plant(1200))
    taught = detector.learn_normal(today(), (300, 310)).learn_normal(today(), 200)
    scored = taught.stream().update_many(today())
    assert_same(scored, run_steps(opened(detector_bytes(taught)), today()))
    assert (scored.alert_scores < detector.stream().update_many(today()).alert_scores).any()


# --- seasons ----------------------------------------------------------------------------------------------------------

AUTUMN = datetime(2024, 9, 2, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def office(minutes, days=77):
    """Readings of an office that follows the clocks of Berlin, and their times in UTC."""
    rng, ats = np.random.default_rng(minutes), [AUTUMN + timedelta(minutes=k) for k in range(0, 1440 * days, minutes)]
    local = [at.astimezone(BERLIN) for at in ats]
    busy = np.array([(8 <= each.hour < 18) * (1.0 if each.weekday() < 5 else 0.2) for each in local])
    monday = np.array([each.weekday() == 0 and each.hour < 12 for each in local])
    noise = rng.normal(size=(len(ats), 4))
    columns = [30 * busy, 10 * monday, 0 * busy, np.cumsum(5 * busy + np.abs(noise[:, 3]))]
    return np.column_stack(columns) + noise * [1, 1, 1, 0], ats


def clock(ats):
    """What the clocks show, in seconds."""
    return np.array([at.astimezone(BERLIN).replace(tzinfo=UTC).timestamp() for at in ats])


@pytest.fixture(scope="module")
def seasonal():
    """A detector of hourly readings."""
    return office_detector(60)


def office_detector(minutes, **parameters):
    values, ats = office(minutes)
    cut = 1440 * 42 // minutes
    frame = pl.DataFrame(values[:cut], schema=["load", "start", "noise", "energy"])
    times = pl.Series("time", [at.replace(tzinfo=None) for at in ats[:cut]])
    return fitted(Comet(timezone="Europe/Berlin", **parameters), frame.insert_column(0, times))


def october(minutes):
    """Readings after those of training, with a fault and a gap of five hours; clocks change in them."""
    values, ats = office(minutes)
    begin, day = 1440 * 42 // minutes, 1440 // minutes
    kept = [
        k for k in range(begin, min(begin + 35 * day, begin + 2500)) if not 0 <= k - begin - 4 * day < 300 // minutes
    ]
    values[begin + 5 * day : begin + 5 * day + 8, 0] += 25.0
    return values[kept], [ats[k] for k in kept]


@pytest.mark.parametrize("minutes", [60, 10])
@pytest.mark.parametrize("parameters", [{}, {"season": "1w"}, {"holidays": "DE"}], ids=str)
def test_a_detector_with_a_season_scores_the_same_when_clocks_change(minutes, parameters):
    detector, (readings, ats) = office_detector(minutes, **parameters), october(minutes)
    assert {at.astimezone(BERLIN).utcoffset() for at in ats} == {timedelta(hours=1), timedelta(hours=2)}
    assert (detector.season_.kind[:2] == [7, 7] if parameters.get("season") else detector.season_.kind[:2] >= 2).all()
    assert detector.trends_.any
    scored = detector.stream().update_many(readings, [at.timestamp() for at in ats])
    session = opened(detector_bytes(detector))
    assert_same(scored, run_steps(session, readings, times=clock(ats)))
    assert scored.flags.any()
    in_utc = run_steps(session, readings, times=np.array([at.timestamp() for at in ats]))
    assert np.abs(in_utc.alert_scores - scored.alert_scores).max() > 0.1, "the time makes no difference"


@pytest.mark.parametrize("length", [24, 200])
def test_a_season_of_readings_needs_no_time_and_goes_on_after_training(length):
    values = 9 * np.sin(np.arange(1500) * 2 * np.pi / length)[:, None] + np.random.default_rng(0).normal(size=(1500, 2))
    values[1200:1210, 0] += 15.0
    detector = Comet(season=length).fit(values[:905])
    session = opened(detector_bytes(detector))
    assert [each.name for each in session.get_inputs()] == [READING, STATE]
    assert_same(detector.stream().update_many(values[905:]), run_steps(session, values[905:]))


def test_a_file_with_a_season_says_that_it_needs_the_local_time(seasonal, tmp_path):
    described = to_onnx(seasonal, tmp_path / "plant.onnx").as_json()
    assert described["timezone"] == "Europe/Berlin"
    means = next(part for part in described["state"]["parts"] if part["name"] == "means")
    assert means["shape"] == [(seasonal.season_.kind > 0).sum(), 42, 24]
    model = onnx.load(tmp_path / "plant.onnx")
    onnx.checker.check_model(model)
    assert [each.name for each in model.graph.input] == [READING, STATE, TIME]
    assert all(each.doc_string for each in model.graph.input)


def test_a_reading_without_a_time_is_not_scored_and_leaves_the_state(seasonal):
    session, (readings, ats) = opened(detector_bytes(seasonal)), october(60)
    before = run_steps(session, readings[:30], times=clock(ats[:30]))
    for time in (np.nan, np.inf, 1e300, 1e6 * clock(ats[30:31])[0]):  # the last one in microseconds
        refused = run_steps(session, readings[30:31], before.state, np.array([time]))
        assert np.isnan(refused.alert_scores).all()
        assert refused.flags == 0
        assert np.array_equal(refused.state, before.state)


def test_generated_readings_with_a_season_are_normal_and_not(seasonal):
    at = [micro / 1e6 for micro in times_of(seasonal).tolist()]
    scored = {name: seasonal.stream().update_many(series, at) for name, series in generated(seasonal, 0)}
    assert scored["normal"].flags.mean() < 0.02, "their season is not subtracted"
    assert all(0 < scored[name].flags.mean() < 0.5 for name in ("faults", "drift")), "equal flags check nothing"


# --- the file ---------------------------------------------------------------------------------------------------------


def test_state_passed_on_in_chunks_gives_the_scores_of_one_run(file):
    readings, whole = today()[:200], run_steps(opened(file.read_bytes()), today()[:200])
    state, parts = None, []
    for chunk in np.split(readings, [1, 40, 130]):
        part = run_steps(opened(file.read_bytes()), chunk, state)  # another process, as after a restart
        state = np.frombuffer(part.state.tobytes())
        parts.append(part)
    assert np.array_equal(np.concatenate([part.alert_scores for part in parts]), whole.alert_scores)
    assert np.array_equal(np.concatenate([part.thresholds for part in parts]), whole.thresholds)
    assert np.array_equal(state, whole.state)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reading_that_is_not_finite_is_not_scored_and_leaves_the_state(file, value):
    session, readings = opened(file.read_bytes()), today()[:50]
    broken = readings[30].copy()
    broken[2] = value
    before = run_steps(session, readings[:30])
    refused = run_steps(session, broken[None], before.state)
    assert np.isnan(refused.alert_scores).all()
    assert np.isnan(refused.variables).all()
    assert refused.flags == 0
    assert np.array_equal(refused.state, before.state)


def test_the_file_says_what_it_needs(detector, file):
    session = opened(file.read_bytes())
    described = {key: json.loads(text) for key, text in session.get_modelmeta().custom_metadata_map.items()}
    assert described["cometad.variables"] == list(detector.names_)
    assert described["cometad.delay"] == 0
    assert described["cometad.warm_up"] == 31
    assert described["cometad.checked"]["difference"] < 1e-9
    state = described["cometad.state"]
    names = ["seen", "rows", "level", "away", "position", "last", "length", "quiet", "peak", "held", "mark"]
    names += ["lasting", "calm", "state", "state_mark"]
    assert [part["name"] for part in state["parts"]] == names
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes == {READING: [1, 5], STATE: [state["size"]]}
    assert state["bytes"] == 8 * state["size"]
    model = onnx.load(file)
    onnx.checker.check_model(model)
    assert all(each.doc_string for each in (*model.graph.input, *model.graph.output))
    assert {each.name for each in model.graph.output} >= {NEXT_STATE, "alert_score", "variable_scores", "threshold"}


def test_the_generated_series_are_normal_and_not(detector):
    scored = {name: detector.stream().update_many(series) for name, series in generated(detector, 0)}
    assert list(scored) == ["normal", "faults", "drift"]
    assert scored["faults"].alert_scores.max() > scored["normal"].alert_scores.max()
    assert all(0 < one.flags.mean() < 0.5 for one in scored.values()), "flags that never change check nothing"
    assert any(change.event.new_level for change in scored["faults"].changes), "no event became a new level"


def test_a_file_of_another_detector_disagrees(detector, file):
    other = fitted(Comet(seed=1), plant(2400, seed=5))
    with pytest.raises(OutputError, match="disagrees with the detector on a generated series"):
        checked(other, file.read_bytes())


def test_a_file_that_disagrees_is_not_written(detector, tmp_path):
    class Shifted(Comet):
        """Streams as another detector, which its graph cannot know."""

        def stream(self, *args, **kwargs):
            return detector.with_threshold(Quantile(0.2)).stream(*args, **kwargs)

    shifted = Shifted()
    shifted.__dict__.update(detector.__dict__)
    path = tmp_path / "plant.onnx"
    path.write_text("old")
    with pytest.raises(OutputError, match="nothing was written"):
        to_onnx(shifted, path)
    assert [each.name for each in tmp_path.iterdir()] == ["plant.onnx"]
    assert path.read_text() == "old"


NOISE = np.random.default_rng(0).normal(size=(300, 2))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: fitted(BASELINES["pca"](), NOISE), "PcaError cannot be exported to ONNX; only Comet() can."),
        (NetworkComet, "NetworkComet cannot be exported to ONNX; only Comet() can."),
        (lambda: fitted(Comet(), NOISE).with_gaps(ForwardFill(5)), "gap rule ForwardFill(limit=5) cannot be exported"),
        (lambda: fitted(Comet(adaptation=FollowLevel()), NOISE), "because the graph cannot learn"),
        (lambda: Comet(views=[Level(), Forecast()]).fit(NOISE), "The view Level cannot be exported"),
        (lambda: fitted(Comet(), NOISE).with_threshold(Spot(0.01)), "The threshold Spot(rate=0.01"),
    ],
)
def test_a_detector_that_cannot_be_exported_says_why(make, words, tmp_path):
    with pytest.raises(ParameterError) as refused:
        to_onnx(make(), tmp_path / "plant.onnx")
    assert words in str(refused.value)
    assert is_a_sentence(str(refused.value))
    assert not list(tmp_path.iterdir())


def test_a_detector_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        to_onnx(Comet(), tmp_path / "plant.onnx")


def test_a_folder_as_target_is_refused(detector, tmp_path):
    with pytest.raises(OutputError, match="Cannot write"):
        to_onnx(detector, tmp_path)


# --- command line -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    detector.save("plant.comet")
    return tmp_path


def test_export_writes_a_file_and_describes_it(folder, capsys):
    assert main(["export", "plant.comet", "-o", "plant.onnx", "--json"]) == 0
    printed, said = capsys.readouterr()
    assert json.loads(printed)["variables"] == ["v0", "v1", "v2", "v3", "v4"]
    assert "differ from the detector's by at most" in said
    assert main(["export", "plant.comet", "-o", "plant.onnx", "--threshold", "quantile:0.01"]) == 0  # its own file
    assert opened((folder / "plant.onnx").read_bytes()).get_modelmeta().producer_name == "cometad"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["plant.comet", "-o", "plant.bin"], "does not end in .onnx"),
        (["plant.comet", "-o", "other.onnx"], "is not an ONNX file written by cometad"),
        (["plant.comet", "-o", "no/plant.onnx"], "Choose a folder that exists"),
        (["plant.comet", "-o", "folder.onnx"], "it is a folder"),
        (["nowhere.comet", "-o", "plant.onnx"], "does not exist"),
        (["other.onnx", "-o", "plant.onnx"], "Pass a file written by cometad"),
        (["plant.comet", "-o", "plant.onnx", "--threshold", "spot:1e-3"], "Pass --alerts 1/1000 or 3/day"),
        (["plant.comet", "-o", "plant.onnx", "--gaps", "forward-fill:5"], "Pass --gaps refuse"),
        (["baseline.comet", "-o", "plant.onnx"], "SquaredNorm cannot be exported"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder, capsys, arguments, words):
    (folder / "other.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    (folder / "folder.onnx").mkdir()
    fitted(BASELINES["squared-norm"](), NOISE).save("baseline.comet")
    before = sorted(folder.iterdir())
    assert main(["export", *arguments]) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert words in said
    assert said.count("\n") == 1
    assert is_a_sentence(said.removeprefix("cometad: ").strip())
    assert sorted(folder.iterdir()) == before


def test_export_says_that_a_season_needs_the_time(seasonal, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seasonal.save("office.comet")
    assert main(["export", "office.comet", "-o", "office.onnx"]) == 0
    assert "Each reading needs its local time (Europe/Berlin).\n" in capsys.readouterr().err


def test_force_replaces_a_foreign_file(folder):
    (folder / "other.onnx").write_text("mine")
    assert main(["export", "plant.comet", "-o", "other.onnx", "--force"]) == 0
    assert opened((folder / "other.onnx").read_bytes()).get_inputs()


def test_without_onnx_the_command_line_says_what_to_install(folder):
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'onnx':\n"
        "            raise ModuleNotFoundError('No module named onnx', name='onnx')\n"
        "sys.meta_path.insert(0, Without())\n"
        "from cometad.cli import main\n"
        "sys.exit(main(['export', 'plant.comet', '-o', 'plant.onnx']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("needs onnx. Install it with pip install 'cometad[onnx]'.\n")
    assert done.stderr.count("\n") == 1
