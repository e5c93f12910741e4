"""Damaged files and snapshots are refused, and so are crafted ones that no kernel could work with."""

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from cometad import BASELINES, Comet, load
from cometad.checkpoint import with_hash
from cometad.errors import ModelFileError
from cometad.live.lines import InputFeed
from cometad.live.output import checked_position
from cometad.live.session import Clock, Session
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from contract import FRESH, NORMAL, is_a_sentence, saved

sys.path.append(str(Path(__file__).parents[1] / "bench" / "scripts"))
from fuzzing import models

FIXTURES = Path(__file__).parent / "fixtures"
VIEWS = (Patterns(8, 4), Joint(4, 4), Forecast(3), Balance(4), Activity(8))


@pytest.fixture(scope="module")
def detector():
    return Comet(views=VIEWS).fit(NORMAL)


@pytest.fixture(scope="module")
def content(detector):
    return saved(detector)


def rewritten(content, change):
    """The content after a change to its header and arrays, with a valid hash."""
    size = int.from_bytes(content[:8], "little")
    header, arrays = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cometad"]), load_arrays(content)
    text = change(header, arrays)
    return with_hash(bytes(save_arrays(arrays, {"cometad": text or json.dumps(header)})))


def refused(content, use, words=None):
    with pytest.raises(ModelFileError, match=words) as caught:
        use(content)
    assert is_a_sentence(str(caught.value))


@pytest.fixture
def load_bytes(tmp_path):
    def use(content):
        (tmp_path / "file").write_bytes(content)
        return load(tmp_path / "file")

    return use


# -- damage ---------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_model_is_refused(content, load_bytes):
    for at in np.random.default_rng(0).integers(8 * len(content), size=500).tolist():
        flipped = bytearray(content)
        flipped[at // 8] ^= 1 << at % 8
        refused(bytes(flipped), load_bytes)


def test_every_flipped_bit_of_a_snapshot_is_refused(detector):
    stream = detector.stream()
    stream.update_many(FRESH)
    snapshot = stream.snapshot()
    for at in np.random.default_rng(0).integers(8 * len(snapshot), size=200).tolist():
        flipped = bytearray(snapshot)
        flipped[at // 8] ^= 1 << at % 8
        refused(bytes(flipped), detector.stream)


def test_a_snapshot_without_the_steps_of_its_events_is_refused(detector):
    series = FRESH.copy()
    series[40:45] += 30
    stream = detector.stream()
    stream.update_many(series)
    stream.finish()
    damaged = rewritten(stream.snapshot(), lambda header, arrays: arrays.__delitem__("events.case.steps"))
    refused(damaged, detector.stream().restore, "it has no array 'case.steps'")


def test_a_flipped_bit_of_a_session_is_refused(detector, tmp_path):
    session = Session(detector, Clock())
    session.save(tmp_path / "state")
    whole = (tmp_path / "state").read_bytes()
    for at in range(0, 8 * len(whole), 997):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        (tmp_path / "state").write_bytes(bytes(flipped))
        refused(tmp_path / "state", lambda path: Session.resume(path, detector, Clock()))


@pytest.mark.parametrize("value", [[], 3, "", None])
def test_a_position_that_no_session_has_is_refused(value, detector, tmp_path):
    path = tmp_path / "state"
    Session(detector, Clock()).save(path)
    path.write_bytes(rewritten(path.read_bytes(), lambda header, arrays: header["facts"].update(position=value)))
    refused(path, lambda path: Session.resume(path, detector, Clock()), "'position' is not a dict")


@pytest.mark.parametrize(
    "position",
    [[], {}, {"lines": "2"}, {"lines": -1}, {"lines": 2, "first": 3}, {"lines": 2, "first": [], "sha256": None}],
)
def test_a_position_that_no_input_has_is_refused(position):
    with pytest.raises(ModelFileError):
        InputFeed(position)


@pytest.mark.parametrize("position", [[], {}, {"bytes": 1.5, "tail": ""}, {"bytes": 0, "tail": None}])
def test_a_position_that_no_output_has_is_refused(position):
    with pytest.raises(ModelFileError):
        checked_position(position)


def test_the_error_for_a_damaged_file_says_so(content, load_bytes):
    refused(content[:-1] + bytes([content[-1] ^ 1]), load_bytes, "file' is damaged: its content does not match its SHA")


def test_a_file_of_0_1_loads_with_a_note_that_it_has_no_hash(caplog):
    with caplog.at_level(logging.INFO, "cometad"):
        load(FIXTURES / "knn.comet")
    assert "written by cometad 0.1, which saved no hash" in caplog.text


def test_a_file_with_a_hash_loads_without_a_note(content, load_bytes, caplog):
    with caplog.at_level(logging.INFO, "cometad"):
        load_bytes(content)
    assert not caplog.text


# -- crafted files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["scaling.center", "view.0.codes", "view.2.weights", "threshold", "tails.alert", "tail"]
)
def test_fitted_values_that_are_not_finite_are_refused(name, value, content, load_bytes):
    def change(header, arrays):
        arrays[name] = np.full_like(arrays[name], value)

    refused(rewritten(content, change), load_bytes, "not finite")


def test_bands_of_a_view_that_expects_nothing_may_be_unknown(detector, content, load_bytes):
    assert np.isnan(detector.bands_).any()
    assert load_bytes(content).decision_function(FRESH).tobytes() == detector.decision_function(FRESH).tobytes()


def _set(key, value):
    return lambda header, arrays: header["facts"]["parameters"].update({key: value})


CRAFTED = {
    "an unknown kind": (lambda h, a: h["facts"]["parameters"]["threshold"].update(kind="Nope"), "'Nope', which is not"),
    "a kind that is a list": (
        lambda h, a: h["facts"]["parameters"]["threshold"].update(kind=[]),
        "not a complete saved Comet",
    ),
    "an unknown class": (lambda h, a: h.update(kind="Nope"), "holds a saved Nope"),
    "an unknown parameter": (_set("depth", 3), "a Comet has no parameter 'depth'"),
    "an unknown field": (
        lambda h, a: h["facts"]["parameters"]["threshold"].update(ratio=3),
        "not a complete saved Comet",
    ),
    "an invalid parameter": (_set("pooling", 0), "'pooling' parameter must be an integer from 1"),
    "a huge integer": (_set("pooling", 10**400), "'pooling' parameter must be"),
    "a huge window": (_set("views", [{"kind": "Activity", "length": 10**12}] * 5), "shorter than its parameters"),
    "a huge format": (
        lambda h, a: json.dumps(h).replace('"format": 3', '"format": 1e999'),
        "not a complete saved Comet",
    ),
    "deep JSON": (lambda h, a: json.dumps(h)[:-1] + ', "x": ' + "[" * 10**5 + "]" * 10**5 + "}", "not a complete"),
    "facts that are a list": (lambda h, a: h.update(facts=[]), "not a complete saved Comet"),
    "parameters that are a list": (lambda h, a: h["facts"].update(parameters=[]), "not a complete saved Comet"),
    "a reshaped array": (lambda h, a: a.update({"view.0.codes": a["view.0.codes"].reshape(4, 3, 8)}), "has the shape"),
    "a flat array": (lambda h, a: a.update({"view.1.codes": a["view.1.codes"].ravel()}), "has the shape"),
    "another dtype": (lambda h, a: a.update({"tails.alert": a["tails.alert"].astype("f4")}), "holds float32"),
    "a missing array": (lambda h, a: a.pop("level"), "it has no array 'level'"),
    "names that are numbers": (lambda h, a: h["facts"].update(names=[1, 2, 3]), "not a list of texts"),
    "another number of names": (lambda h, a: h["facts"].update(names=["a", "b"]), "has the shape"),
    "times of no stretch": (lambda h, a: h["facts"].update(trimmed_times=[[0, 1]] * 99), "not those of its stretches"),
    "a time that is a text": (
        lambda h, a: h["facts"].update(trimmed=[[0, 1, [], ""]], trimmed_times=[["noon", 1]]),
        "'trimmed_times' is not an integer",
    ),
    "no unit": (lambda h, a: a["scaling.unit"].fill(0), "not positive"),
}


@pytest.mark.parametrize("how", CRAFTED)
def test_a_crafted_file_is_refused_in_one_sentence(how, content, load_bytes):
    change, words = CRAFTED[how]

    def in_place(header, arrays):
        text = change(header, arrays)
        return text if isinstance(text, str) else None

    refused(rewritten(content, in_place), load_bytes, words)


def test_a_forest_that_loops_is_refused(load_bytes):
    content = saved(BASELINES["isolation-forest"](trees=3).fit(NORMAL))

    def change(header, arrays):
        arrays["left_"][arrays["left_"].argmax()] = 0

    refused(rewritten(content, change), load_bytes, "nodes are not those of trees")


def test_a_refused_snapshot_leaves_the_stream_as_new(detector):
    stream = detector.stream()
    stream.update_many(FRESH)
    broken = rewritten(stream.snapshot(), lambda header, arrays: header["facts"].update(given=-1))
    refused(broken, stream.restore, "'given' is not an integer")
    again = np.concatenate([stream.update_many(FRESH), stream.finish()])
    assert again.tobytes() == detector.decision_function(FRESH).tobytes()


# -- fuzzing --------------------------------------------------------------------------------------------------------


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_any_changed_file_gives_the_same_scores_or_one_sentence(seed, tmp_path):
    # `python bench/scripts/fuzz.py --models` runs 10,000 cases.
    _, how, found = models.outcome(seed, tmp_path / "file")
    assert found in models.ALLOWED[how]
