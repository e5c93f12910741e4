"""Adaptation is safe: it scores before it learns, changes only its own run, and rolls back failed steps."""

import numpy as np
import pytest
import torch

import naive
from cometad import Comet
from cometad.checkpoint import from_bytes
from cometad.errors import CometadError
from cometad.network import NoAdaptation, OneCycle, OnlineAdaptation
from cometad.network.adaptation import NormalCriteria
from cometad.network.network import Network
from cometad.network.score import Scorer
from cometad.network.training import Objective
from cometad.scoring import AllVariables, NoNormalization, TrainingNormalization
from contract import is_a_sentence, saved, waves

WINDOW, BATCH = 20, 2
STEP = WINDOW * BATCH  # readings between two steps of adaptation


def detector(**changes):
    """A small detector with the paper's settings; training leaves some of its codes inactive."""
    small = {
        "window": WINDOW,
        "window_stride": 10,
        "patch_sizes": (2, 5),
        "patch_strides": (1, 2),
        "dim": 6,
        "core_dim": 4,
        "codebook_size": 24,
        "batch_size": 16,
        "schedule": OneCycle(20),
        "test_batch": BATCH,
        "selection": AllVariables(),
        "normalization": TrainingNormalization(),
        "adaptation": OnlineAdaptation(learning_rate=1e-2),
    }
    return Comet.paper(**{**small, **changes})


def fitted(**changes):
    return detector(**changes).fit(waves(300))


def drifting(rows):
    """Normal readings with a slow drift and a burst of large noise."""
    series = waves(rows, seed=1) + np.linspace(0, 2, rows)[:, None]
    series[rows // 2 : rows // 2 + 30] *= np.random.default_rng(2).normal(scale=9, size=(30, 3))
    return series


def adapted(stream):
    """The adapted network parameters of a stream, by name."""
    prefix = "adapter.network."
    arrays = from_bytes(stream.snapshot(), "Stream").arrays
    return {k.removeprefix(prefix): torch.from_numpy(v) for k, v in arrays.items() if k.startswith(prefix)}


@pytest.fixture(scope="module")
def quick():
    return fitted()


# -- only its own run -----------------------------------------------------------------------------------------------


def test_scoring_never_changes_the_fitted_state(quick):
    before = saved(quick)
    active = [seen.copy() for seen in quick.active_]
    stream = quick.stream()
    stream.update_many(drifting(400))
    assert stream.adaptation_steps == (400 // STEP, 0)
    quick.decision_function(drifting(400))
    quick.score_map(drifting(400))
    assert saved(quick) == before
    assert all(np.array_equal(a, b) for a, b in zip(active, quick.active_, strict=True))


def test_adaptation_changes_every_part_of_the_network(quick):
    stream = quick.stream()
    stream.update_many(drifting(200))
    now = adapted(stream)
    for name, value in quick.network_.state_dict().items():
        assert not torch.equal(now[name], value), name


def test_a_batch_is_scored_before_adaptation_learns_from_it(quick):
    fixed = fitted(adaptation=NoAdaptation())
    series = drifting(400)
    with_it, without = quick.decision_function(series), fixed.decision_function(series)
    assert with_it[:STEP].tobytes() == without[:STEP].tobytes()
    assert not np.isclose(with_it[STEP : 2 * STEP], without[STEP : 2 * STEP], rtol=1e-6).all()


def test_adaptation_never_learns_from_an_incomplete_batch(quick):
    stream = quick.stream()
    stream.update_many(drifting(400)[: 3 * STEP - 1])
    stream.finish()
    assert stream.adaptation_steps == (2, 0)


def test_a_new_stream_starts_from_the_fitted_state(quick):
    series = drifting(400)
    first = quick.stream()
    scores = first.update_many(series).scores
    assert quick.stream().update_many(series).scores.tobytes() == scores.tobytes()
    again = adapted(quick.stream())
    assert all(torch.equal(again[name], value) for name, value in quick.network_.state_dict().items())


def test_without_adaptation_no_steps_are_taken():
    stream = fitted(adaptation=NoAdaptation()).stream()
    stream.update_many(drifting(200))
    assert stream.adaptation_steps == (0, 0)
    assert adapted(stream) == {}


def test_a_stream_can_turn_off_the_adaptation_of_its_detector(quick):
    series = drifting(400)
    fixed = fitted(adaptation=NoAdaptation())
    stream = quick.stream(adaptation=NoAdaptation())
    assert stream.update_many(series).scores.tobytes() == fixed.stream().update_many(series).scores.tobytes()
    assert stream.adaptation_steps == (0, 0)


def test_a_snapshot_resumes_only_in_a_stream_with_the_same_adaptation(quick):
    series = drifting(400)
    kinds = {"moving": None, "fixed": NoAdaptation()}
    for kind, adaptation in kinds.items():
        stream = quick.stream(adaptation=adaptation)
        stream.update_many(series[:200])
        snapshot = stream.snapshot()
        other = quick.stream(snapshot, adaptation=adaptation)
        rest = stream.update_many(series[200:]).scores
        assert other.update_many(series[200:]).scores.tobytes() == rest.tobytes()
        for another, unlike in kinds.items():
            if another != kind:
                with pytest.raises(CometadError) as caught:
                    quick.stream(snapshot, adaptation=unlike)
                assert is_a_sentence(str(caught.value))


# -- what it learns -------------------------------------------------------------------------------------------------


def test_later_scores_use_the_adapted_network_and_a_memory_updated_by_index():
    moving = fitted(normalization=NoNormalization())
    series = drifting(2 * STEP)
    stream = moving.stream()
    stream.update_many(series[:STEP])
    network = Network(3, moving.patch_sizes, moving.patch_strides, moving.dim, moving.core_dim, moving.codebook_size)
    network.load_state_dict(adapted(stream))
    found = stream.update_many(series[STEP : STEP + WINDOW]).scores
    memory, quantization = naive.raw_scores(
        moving.scaling_(series[STEP : STEP + WINDOW]),
        [naive.Weights.of(scale) for scale in network],
        [np.flatnonzero(seen) for seen in moving.active_],
        moving.neighbors,
    )
    expected = naive.mixed(np.mean(memory, axis=1), np.mean(quantization, axis=1), 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_adaptation_follows_a_drift():
    slow = waves(3000, seed=3) + np.linspace(0, 3, 3000)[:, None]
    moving = fitted(initialization="k-means", score_weight=1.0)
    fixed = fitted(initialization="k-means", score_weight=1.0, adaptation=NoAdaptation())
    assert moving.decision_function(slow)[-500:].mean() < 0.8 * fixed.decision_function(slow)[-500:].mean()


# -- one step -------------------------------------------------------------------------------------------------------


def adapter(settings, weight_decay=0.0, active=True, limit=np.inf):
    torch.manual_seed(0)
    network = Network(variables=2, patch_sizes=(2, 4), patch_strides=(1, 2), dim=6, core_dim=4, codebook_size=8)
    seen = [np.full(8, active) for _ in network]
    limits = [np.full(2, limit) for _ in network]
    one = settings.start(network, NormalCriteria(seen, limits), Objective(1.0, 1.0, weight_decay), seed=0)

    def learn(windows):
        scorer = Scorer(network, [np.full(8, True)] * 2, neighbors=3, distance="local", device="cpu")
        one.learn(windows, [scorer.whole(windows, k) for k in range(2)])
        return one.steps, one.rolled_back

    return network, learn, one


def parameters(network):
    return [parameter.detach().clone() for parameter in network.parameters()]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def some_windows(seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(4, 12, 2))).astype(np.float32)


def test_adaptation_learns_only_from_patches_with_an_active_code():
    for active in (True, False):
        network, learn, _ = adapter(OnlineAdaptation(learning_rate=1e-2, contrastive_weight=0.0), active=active)
        before = parameters(network)
        learn(some_windows())
        assert same(before, parameters(network)) != active


def test_adaptation_learns_only_from_patches_within_the_error_limit():
    settings = OnlineAdaptation(learning_rate=1e-2, contrastive_weight=0.0, error_limit=0.99)
    for limit, learns in ((np.inf, True), (0.0, False)):
        network, learn, _ = adapter(settings, limit=limit)
        before = parameters(network)
        learn(some_windows())
        assert same(before, parameters(network)) != learns


def test_a_variable_without_normal_patches_keeps_its_own_weights():
    settings = OnlineAdaptation(learning_rate=1e-2, contrastive_weight=0.0, error_limit=0.99)
    network, learn, _ = adapter(settings, limit=np.array([np.inf, 0.0]))
    before = [scale.encoder.series_weight.detach().clone() for scale in network]
    learn(some_windows())
    for scale, weights in zip(network, before, strict=True):
        assert not torch.equal(scale.encoder.series_weight[0], weights[0])
        assert torch.equal(scale.encoder.series_weight[1], weights[1])


def test_the_error_limit_is_a_quantile_of_the_training_errors():
    strict, loose = (fitted(adaptation=OnlineAdaptation(error_limit=quantile)) for quantile in (0.5, 0.99))
    for low, high in zip(strict.error_limits_, loose.error_limits_, strict=True):
        assert low.shape == (3,)
        assert (low < high).all()
    assert all(np.isinf(limit).all() for limit in fitted().error_limits_)


def test_the_contrastive_loss_needs_two_samples_of_each_pseudo_label():
    settings = [OnlineAdaptation(learning_rate=1e-2, contrastive_weight=weight) for weight in (0.0, 10.0)]
    without, with_it = (adapter(one) for one in settings)
    for _, learn, _ in (without, with_it):
        assert learn(some_windows()) == (1, 0)  # every code is active, so there is only one pseudo-label
    assert same(parameters(without[0]), parameters(with_it[0]))


@pytest.mark.parametrize("max_drift", [0.0, 0.05, 0.5])
def test_no_parameter_drifts_further_than_max_drift(max_drift):
    bounded = fitted(adaptation=OnlineAdaptation(learning_rate=0.5, max_drift=max_drift))
    stream = bounded.stream()
    stream.update_many(drifting(400))
    assert stream.adaptation_steps[0] > stream.adaptation_steps[1]
    now = adapted(stream)
    shares = {
        name: ((now[name] - value).norm() / value.norm()).item()
        for name, value in bounded.network_.state_dict().items()
    }
    assert max(shares.values()) <= max_drift * (1 + 1e-5) + 1e-7
    if max_drift == 0.05:
        assert max(shares.values()) > 0.049  # the limit was reached


# -- failed steps ---------------------------------------------------------------------------------------------------


def test_a_step_without_a_finite_loss_is_rolled_back_and_counted():
    series = drifting(400)
    stream = fitted(adaptation=OnlineAdaptation(temperature=1e-320)).stream()
    scores = stream.update_many(series).scores
    taken, rolled_back = stream.adaptation_steps
    assert taken == 400 // STEP
    assert rolled_back > 0
    assert np.isfinite(scores).all()


def test_a_roll_back_undoes_the_step_completely():
    settings = OnlineAdaptation(learning_rate=1e-2, contrastive_weight=0.0, max_drift=0.5)
    (network, learn, _), (other, learn_other, _) = (adapter(settings, weight_decay=1e-3) for _ in range(2))
    learn(some_windows(seed=0))
    learn_other(some_windows(seed=0))
    before = parameters(network)
    assert learn(some_windows(seed=1, scale=1e25)) == (2, 1)  # its square overflows, so the gradient is not finite
    assert same(before, parameters(network))
    learn(some_windows(seed=2))
    learn_other(some_windows(seed=2))
    assert same(parameters(network), parameters(other))


def test_parameters_and_momentum_that_overflow_are_rolled_back():
    # The loss and gradients are finite; only weight decay makes the parameters overflow.
    network, learn, one = adapter(OnlineAdaptation(learning_rate=1.0), weight_decay=1e39)
    before, state = parameters(network), one.state()
    assert learn(some_windows()) == (1, 1)
    assert same(before, parameters(network))
    after = one.state()
    assert after.keys() == state.keys()
    assert all(np.array_equal(after[name], state[name]) for name in state if name != "counts")


def test_even_the_first_step_can_be_rolled_back():
    network, learn, _ = adapter(OnlineAdaptation(learning_rate=1e-2))
    before = parameters(network)
    learn(some_windows(scale=1e25))
    assert same(before, parameters(network))
    assert learn(some_windows()) == (2, 1)
    assert not same(before, parameters(network))


@pytest.mark.parametrize("learning_rate", [1.0, 1e3])
def test_scores_stay_finite_at_any_learning_rate(learning_rate):
    fast = fitted(adaptation=OnlineAdaptation(learning_rate=learning_rate))
    assert np.isfinite(fast.decision_function(drifting(400))).all()
