"""What holds for the explanations of a detector with views and of one with a network alike."""

import json
import math

import numpy as np
import pytest

from cometad import Comet, NetworkComet, load
from cometad.alerting.alerts import Alerts
from cometad.errors import InputError, NotFittedError, ParameterError
from cometad.network import OneCycle
from contract import is_a_sentence, saved, waves
from tiny import UNEVEN

FAULT = 130
KINDS = {"views": Comet, "network": lambda: NetworkComet(**UNEVEN, schedule=OneCycle(30))}


@pytest.fixture(scope="module", params=KINDS)
def detector(request):
    return KINDS[request.param]().fit(waves(400))


@pytest.fixture
def faulty():
    series = waves(307, seed=1)
    series[FAULT : FAULT + 3, 1] += 6.0
    return series


def test_shares_are_not_negative_and_sum_to_one_at_every_step(detector, faulty):
    explain = detector.explainer(faulty)
    for step in (0, 1, 7, 40, FAULT, 305, 306):
        share = [reason.share for reason in explain(step, 4).reasons]
        assert min(share) >= 0
        assert share == sorted(share, reverse=True)
        assert sum(share) == pytest.approx(1.0)


def test_an_event_keeps_its_own_peak_and_score(detector, faulty):
    event = max(detector.events(faulty, Alerts(merge_gap=3)), key=lambda event: event.peak_score)
    explanation = detector.explain(faulty, event)
    assert (explanation.start, explanation.stop, explanation.peak) == (event.start, event.stop, event.peak)
    assert explanation.score == event.peak_score
    assert explanation.reasons[0].variable == "v1"


def test_explaining_changes_neither_the_detector_nor_the_series(detector, faulty):
    before, series = saved(detector), faulty.copy()
    explanation = detector.explain(series, FAULT)
    explanation.observed[:] = explanation.reasons[0].observed[:] = 0.0
    assert saved(detector) == before
    assert np.array_equal(series, faulty)


def test_a_loaded_detector_gives_the_same_explanation_in_valid_json(detector, faulty, tmp_path):
    detector.save(tmp_path / "plant.comet")
    explanation = detector.explain(faulty, (FAULT, FAULT + 3))
    plain = load(tmp_path / "plant.comet").explain(faulty, (FAULT, FAULT + 3)).as_json()
    assert plain == explanation.as_json() == json.loads(json.dumps(plain, allow_nan=False))
    assert plain["reasons"][0]["observed"] == explanation.reasons[0].observed.tolist()
    assert plain["normal"] == explanation.normal.tolist()
    assert plain.keys() == {"start", "stop", "peak", "score", "reasons", "begin", "observed", "normal", "names"}
    assert plain["names"] == ["v0", "v1", "v2"]


def test_readings_far_out_of_range_get_finite_explanations(detector, faulty):
    for value in (1e30, 1e308):
        faulty[FAULT, 0] = value
        first, *rest = detector.explain(faulty, FAULT).reasons
        assert first.variable == "v0"
        assert f"it read {value:.4g}" in first.sentence()
        assert all(np.isfinite(reason.expected).all() and math.isfinite(reason.share) for reason in (first, *rest))


@pytest.mark.parametrize(
    "event", [True, 3.0, "7", None, (1,), (1, 2, 3), (5, 5), (6, 2), -1, 307, (300, 308), (1.0, 2)]
)
def test_an_invalid_event_is_refused(detector, faulty, event):
    with pytest.raises(InputError) as caught:
        detector.explain(faulty, event)
    assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize("context", [-1, 2.5, True])
def test_a_context_that_is_no_number_of_time_steps_is_refused(detector, faulty, context):
    with pytest.raises(ParameterError, match="'context' parameter must be an integer of at least 0"):
        detector.explain(faulty, 5, context=context)


@pytest.mark.parametrize("kind", KINDS)
def test_explain_before_fit_is_refused(kind):
    with pytest.raises(NotFittedError):
        KINDS[kind]().explain(waves(100), 5)
