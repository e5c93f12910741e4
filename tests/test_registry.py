"""Open protocols: custom strategies work in batch and stream and are saved under their registered names."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from cometad import BASELINES, Alerts, NetworkComet, load
from cometad.alerting import THRESHOLDS
from cometad.alerting.thresholds import parse_threshold
from cometad.alerting.watch import FixedWatch
from cometad.checkpoint import read, write
from cometad.data.gaps import Settled, fill
from cometad.errors import ModelFileError, ParameterError
from cometad.network import NoAdaptation, OneCycle, OnlineAdaptation
from cometad.registry import from_json, register, to_json
from contract import FRESH, NORMAL, SPIKE, SPIKED, is_a_sentence

SMALL = {"window": 32, "window_stride": 16, "dim": 8, "core_dim": 6, "codebook_size": 16, "test_batch": 2}


@register("test-sigmas")
@dataclass(frozen=True)
class Sigmas:
    """A threshold: the mean of the training scores plus a number of standard deviations."""

    count: float = 6.0
    rate: ClassVar[float] = 0.001

    def fit(self, scores):
        return np.array([np.mean(scores) + self.count * np.std(scores)])

    def watch(self, state):
        return FixedWatch(state)


@register("test-loudest")
@dataclass(frozen=True)
class Loudest:
    """A selection: the variable with the highest score."""

    release: ClassVar[str] = "row"

    def __call__(self, scores):
        return scores.max(axis=2)


@register("test-zero-fill")
@dataclass(frozen=True)
class ZeroFill:
    """A gap rule: zeros."""

    allowed: ClassVar[bool] = True

    def settle(self, cells):
        return Settled(np.zeros(cells.missing.shape), np.zeros_like(cells.missing))


@register("test-first-batches")
@dataclass(frozen=True)
class FirstBatches:
    """An adaptation that learns only from the first batches of a run."""

    batches: int = 2

    def start(self, network, memory, objective, seed):
        return _FirstBatches(OnlineAdaptation(contrastive_weight=0.0).start(network, memory, objective, seed), self)


class _FirstBatches:
    def __init__(self, inner, settings):
        self._inner, self._settings = inner, settings

    def learn(self, *batch):
        if self._inner.steps < self._settings.batches:
            self._inner.learn(*batch)

    def __getattr__(self, name):
        return getattr(self._inner, name)


OWN = {
    "threshold": Sigmas(),
    "selection": Loudest(),
    "gaps": ZeroFill(),
    "adaptation": FirstBatches(),
}


@register("test-grown", step=1)
@dataclass(frozen=True)
class Grown:
    """A strategy that had no `step` in an earlier version, which then was always 1."""

    size: int = 3
    step: int = 2


def test_a_field_that_an_earlier_file_lacks_has_its_earlier_value():
    assert from_json({"kind": "test-grown", "size": 3}) == Grown(step=1)
    assert from_json(to_json(Grown())) == Grown()
    assert to_json(Grown(step=1)) == {"kind": "test-grown", "size": 3}  # as the earlier version wrote it


def small(**changes):
    return NetworkComet(**SMALL, schedule=OneCycle(12), **changes)


@pytest.fixture(scope="module", params=OWN)
def fitted(request):
    """A NetworkComet with one custom strategy."""
    return small(**{request.param: OWN[request.param]}).fit(NORMAL)


def test_a_custom_strategy_works_in_batch_and_stream(fitted):
    scores = fitted.decision_function(SPIKED)
    assert abs(int(scores.argmax()) - SPIKE) < 16  # the longest patch
    assert fitted.predict(SPIKED)[SPIKE] == 1
    stream = fitted.stream(alerts=Alerts())
    streamed = [stream.update(row) for row in SPIKED[:150]]
    resumed = fitted.stream(stream.snapshot())
    rest = [resumed.update_many(SPIKED[150:]), resumed.finish()]
    assert np.concatenate([*streamed, *rest]).tobytes() == scores.tobytes()


def test_a_custom_strategy_is_saved_and_loaded_under_its_registered_name(fitted, tmp_path):
    fitted.save(tmp_path / "own.comet")
    loaded = load(tmp_path / "own.comet")
    assert loaded.get_params() == fitted.get_params()
    assert loaded.decision_function(FRESH).tobytes() == fitted.decision_function(FRESH).tobytes()
    kinds = [
        value["kind"]
        for value in read(tmp_path / "own.comet", "NetworkComet").facts["parameters"].values()
        if isinstance(value, dict)
    ]
    assert any(kind.startswith("test-") for kind in kinds)


def test_each_custom_strategy_is_applied():
    fitted = small(threshold=Sigmas(3.0)).fit(NORMAL)
    scores = fitted.alert_scores_
    held_out = scores[-len(scores) // 10 :]
    assert fitted.threshold_ == max(Sigmas(3.0).fit(scores)[0], Sigmas(3.0).fit(held_out)[0])
    assert Loudest()(np.array([[[1.0, 5.0]]])).tolist() == [[5.0]]
    assert fill(np.array([[1.0], [np.nan]]), ZeroFill(), np.ones(1)).values.tolist() == [[1.0], [0.0]]
    adapting = small(adaptation=FirstBatches(batches=1)).fit(NORMAL).stream()
    adapting.update_many(np.tile(FRESH, (3, 1)))
    assert adapting.adaptation_steps == (1, 0)


def test_baselines_accept_a_custom_threshold_and_gap_rule(tmp_path):
    detector = BASELINES["squared-norm"](threshold=Sigmas(), gaps=ZeroFill()).fit(NORMAL)
    gappy = SPIKED.copy()
    gappy[10] = np.nan
    assert detector.predict(gappy)[[10, SPIKE]].tolist() == [0, 1]
    detector.save(tmp_path / "own.comet")
    assert load(tmp_path / "own.comet").threshold == Sigmas()


@dataclass(frozen=True)
class Nameless(Sigmas):
    """A threshold that is not registered."""


def test_an_unregistered_strategy_scores_but_cannot_be_saved(tmp_path):
    detector = small(threshold=Nameless(), adaptation=NoAdaptation()).fit(NORMAL)
    assert detector.predict(SPIKED)[SPIKE] == 1
    detector.stream(detector.stream().snapshot())
    with pytest.raises(ParameterError, match=r"'threshold' parameter is a Nameless.*Decorate it with") as caught:
        detector.save(tmp_path / "own.comet")
    assert is_a_sentence(str(caught.value))
    assert not list(tmp_path.iterdir())


def test_a_file_with_an_unknown_strategy_is_refused_and_imports_nothing(tmp_path):
    small(threshold=Sigmas()).fit(NORMAL).save(tmp_path / "own.comet")
    saved = read(tmp_path / "own.comet", "NetworkComet")
    facts = json.loads(json.dumps(saved.facts).replace("test-sigmas", "antigravity.Sigmas"))
    write(tmp_path / "other.comet", saved._replace(facts=facts))
    with pytest.raises(ModelFileError, match=r"'antigravity\.Sigmas', which is not registered here") as caught:
        load(tmp_path / "other.comet")
    assert is_a_sentence(str(caught.value))


def test_a_name_is_registered_once_and_only_for_dataclasses():
    with pytest.raises(ParameterError, match="'Quantile' is registered for Quantile"):
        register("Quantile")(Nameless)
    with pytest.raises(ParameterError, match="Only a dataclass"):
        register("test-plain")(type("Plain", (), {}))
    assert to_json(register("test-sigmas")(Sigmas)()) == {"kind": "test-sigmas", "count": 6.0}


def test_a_row_in_thresholds_is_enough_for_the_command_line(monkeypatch):
    @dataclass(frozen=True)
    class Share:
        rate: float = 0.5
        fit, watch = Sigmas.fit, Sigmas.watch

    monkeypatch.setitem(THRESHOLDS, "share", Share)
    assert parse_threshold("share:0.25") == Share(rate=0.25)


@pytest.mark.parametrize("value", [Sigmas, "quantile", object(), None])
@pytest.mark.parametrize("name", OWN)
def test_an_object_without_the_required_methods_is_refused(name, value):
    if value is Sigmas and name not in ("threshold",):
        value = type(OWN[name])
    with pytest.raises(ParameterError, match=f"The '{name}' parameter must be an object with") as caught:
        small(**{name: value}).check_parameters()
    assert is_a_sentence(str(caught.value))
