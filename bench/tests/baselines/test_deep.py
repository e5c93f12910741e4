"""The deep baselines have the published sizes, equal plain loops in their distinctive parts, and learn."""

import math
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch

import naive_baselines as naive
from cometad.baselines import BASELINES
from cometad.errors import InputError, ParameterError
from cometad.metrics import auc_roc
from cometad.network import Epochs
from cometad.network.loop import seeded
from cometad.series import as_series
from cometad_bench.baselines.anomaly_transformer import (
    AnomalyAttention,
    discrepancy,
    gaussian_prior,
    symmetric_discrepancy,
)
from cometad_bench.baselines.catch import Catch, ChannelMask, MaskedAttention, mask_loss
from cometad_bench.baselines.d3r import D3r, Decompose, nearest_offset, noisy, time_marks
from cometad_bench.baselines.deep import parameter_count
from cometad_bench.baselines.lstm_ae import EncoderDecoder
from cometad_bench.baselines.lstm_vae import LstmVae, StepVae, divergence
from cometad_bench.baselines.usad import Adversaries, Usad
from cometad_bench.baselines.vtt import DualAttention, Stem, Vtt, WideAttention
from contract import is_a_sentence, waves
from tiny import TINY

CPU = torch.device("cpu")


def close(found, expected, tolerance=1e-5):
    return np.allclose(torch.as_tensor(found).detach().numpy(), np.asarray(expected), atol=tolerance, rtol=1e-4)


@pytest.fixture(autouse=True)
def _seeded():
    with seeded(0, CPU):
        yield


# -- sizes ----------------------------------------------------------------------------------------------------------

# For 25 variables and a window of 100: detector, our number of parameters, the specified number.
COUNTS = {
    "LSTM-AE": (BASELINES["lstm-ae"](), 161_945, 161_945),
    "LSTM-VAE": (LstmVae(), 177_010, 177_010),
    "LSTM-VAE of the lab": (LstmVae.lab(), 112_577, 112_577),
    "USAD": (Usad(), 11_804_415, 11.80e6),
    # The public code has three more layer norms that are never used.
    "Anomaly Transformer": (BASELINES["anomaly-transformer"](), 4_798_513, 4_801_585),
    "VTT-PAT": (Vtt(), 1_754_528, 1_754_528),
    "VTT-SAT": (Vtt(attention="serial"), 2_250_656, 2_250_656),
    # The public code has 0.15 million more parameters in three parts that are never used.
    "CATCH": (Catch(), 48_529_196, 48.6e6),
    "D3R": (D3r(), 52_466_651, 52.46e6),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_number_of_parameters_is_as_published(name):
    detector, ours, published = COUNTS[name]
    with torch.device("meta"):
        found = parameter_count(detector._network(25))
    assert found == ours
    assert found == pytest.approx(published, rel=2e-3)


# -- LSTM-AE, LSTM-VAE, USAD ----------------------------------------------------------------------------------------


def test_the_decoder_reconstructs_a_window_backward_from_its_own_output():
    network, window = EncoderDecoder(2, hidden=3), torch.randn(1, 5, 2)
    hidden = cell = np.zeros(3)
    for reading in window[0].numpy():
        hidden, cell = naive.lstm_step(network.encoder, reading, hidden, cell)
    output, rebuilt = np.zeros(2), []
    for _ in range(5):
        hidden, cell = naive.lstm_step(network.decoder, output, hidden, cell)
        output = naive.linear(network.output, hidden)
        rebuilt.insert(0, output)
    assert close(network(window)[0], rebuilt)


def test_the_decoder_is_trained_with_teacher_forcing():
    network, window = EncoderDecoder(2, hidden=3), torch.randn(1, 4, 2)
    hidden = cell = np.zeros(3)
    for reading in window[0].numpy():
        hidden, cell = naive.lstm_step(network.encoder, reading, hidden, cell)
    previous, errors = np.zeros(2), []
    for reading in window[0].numpy()[::-1]:
        hidden, cell = naive.lstm_step(network.decoder, previous, hidden, cell)
        errors += list((naive.linear(network.output, hidden) - reading) ** 2)
        previous = reading
    assert close(network.loss(window, 1), np.mean(errors))


def test_scores_are_mahalanobis_distances_of_the_errors():
    network, windows = EncoderDecoder(2, hidden=3), torch.randn(6, 5, 2)
    network.after_training(iter([windows[:4], windows[4:]]))
    errors = (network(windows) - windows).abs().detach().double().numpy().reshape(-1, 2)
    covariance = np.cov(errors.T)
    covariance += 1e-3 * covariance.diagonal().mean() * np.eye(2)
    centered = errors - errors.mean(axis=0)
    expected = [one @ np.linalg.inv(covariance) @ one for one in centered]
    assert close(network.score(windows).flatten(), expected, 1e-4)


def test_likelihood_and_divergence_equal_those_of_torch_distributions():
    network, windows = StepVae(2, LstmVae(hidden=3, latent=2, noise=0.0)).eval(), torch.randn(2, 4, 2)
    hidden, _ = network.encoder(windows)
    out, _ = network.decoder(network.latent_mean(hidden))
    mean, deviation = network.mean(out), (network.spread(out) / 2).exp()
    surprise, found = network(windows)
    assert close(surprise, -torch.distributions.Normal(mean, deviation).log_prob(windows).detach().numpy())
    latent = torch.distributions.Normal(network.latent_mean(hidden), (network.latent_spread(hidden) / 2).exp())
    standard = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    assert close(found, torch.distributions.kl_divergence(latent, standard).detach().numpy())
    assert close(divergence(torch.tensor(2.0), torch.tensor(0.0)), 2.0)


@pytest.mark.parametrize("epoch", [1, 2, 10])
def test_the_adversarial_weight_grows_with_the_epochs(epoch):
    network, windows = Adversaries(6, latent=2), torch.rand(5, 3, 2)
    flat = windows.flatten(1)
    encoded = network.encoder(flat)
    first, second = network.first(encoded), network.second(encoded)
    twice = network.second(network.encoder(first))
    one, two, three = (float(((flat - rebuilt) ** 2).mean().detach()) for rebuilt in (first, second, twice))
    assert close(network.loss(windows, epoch), one / epoch + (1 - 1 / epoch) * three)
    assert close(network.adversary_loss(windows, epoch), two / epoch - (1 - 1 / epoch) * three)
    assert close(network.score(windows).mean(), (one + three) / 2)


# -- Anomaly Transformer: association discrepancy -------------------------------------------------------------------


def test_the_prior_and_the_discrepancy_equal_the_loops():
    widths = torch.rand(2, 3, 5) * 2 + 0.1
    prior, series = gaussian_prior(widths), torch.softmax(torch.randn(2, 3, 5, 5), dim=-1)
    found, both = discrepancy(series, prior), symmetric_discrepancy(series, prior)
    for window in range(2):
        rows = [naive.gaussian_prior(widths[window, head].tolist()) for head in range(3)]
        for step in range(5):
            forth = [naive.divergence(series[window, head, step].tolist(), rows[head][step]) for head in range(3)]
            back = [naive.divergence(rows[head][step], series[window, head, step].tolist()) for head in range(3)]
            assert close(found[window, step], np.mean(forth))
            assert close(both[window, step], np.mean(forth) + np.mean(back))


def test_anomaly_attention_equals_a_loop():
    layer, tokens = AnomalyAttention(4, heads=2), torch.randn(1, 5, 4)
    out, associations = layer(tokens)
    attended = [[] for _ in range(5)]
    for head in range(2):
        own = slice(2 * head, 2 * head + 2)
        parts = [[naive.linear(one, x)[own] for x in tokens[0]] for one in (layer.query, layer.key, layer.value)]
        output, rows = naive.attention(*parts)
        assert close(associations.series[0, head], rows)
        widths = [3 ** (naive.sigmoid(5 * naive.linear(layer.width, x)[head]) + 1e-5) - 1 for x in tokens[0]]
        assert close(associations.prior[0, head], naive.gaussian_prior(widths))
        for step in range(5):
            attended[step] += list(output[step])
    assert close(out[0], [naive.linear(layer.out, one) for one in attended])


def test_the_two_phases_cancel_in_value_but_not_in_gradient():
    network = BASELINES["anomaly-transformer"](**TINY["anomaly-transformer"])._network(3)
    windows = torch.randn(4, 20, 3)
    assert close(network.loss(windows, 1), 2 * network.validation_loss(windows, 1).detach().numpy())
    network.loss(windows, 1).backward()
    assert network.layers[0].attention.width.weight.grad.abs().sum() > 0


# -- VTT: variable attention ----------------------------------------------------------------------------------------


def naive_vtt_attention(layer, tokens):
    dim, heads = len(tokens[0]), layer.heads
    joint = [naive.linear(layer.joint, x) for x in tokens]
    attended = [[] for _ in tokens]
    for head in range(heads):
        parts = [[one[dim * (which * heads + head) :][:dim] for one in joint] for which in range(3)]
        for step, output in enumerate(naive.attention(*parts)[0]):
            attended[step] += list(output)
    return [naive.linear(layer.out, one) for one in attended]


def test_variables_attend_to_each_other_within_a_time_step_and_time_steps_within_a_variable():
    both, x = DualAttention(4, heads=2, dropout=0.0), torch.randn(2, 3, 5, 4)
    over_variables, over_time = both.over_variables(x), both.over_time(x)
    for window in range(2):
        for step in range(3):
            assert close(over_variables[window, step], naive_vtt_attention(both.variables, x[window, step]))
        for variable in range(5):
            assert close(over_time[window, :, variable], naive_vtt_attention(both.times, x[window, :, variable]))


def test_the_stem_sees_only_the_past_of_its_own_variable():
    stem, windows = Stem(3, window=60, dim=4, dropout=0.0), torch.randn(1, 60, 3)
    other = windows.clone()
    other[0, 50, 1] += 5
    changed = (stem(windows) != stem(other)).any(dim=-1)[0]
    assert changed[50:, 1].any()
    assert not changed[:50].any()
    assert not changed[:, [0, 2]].any()


def test_attention_is_equivariant_to_the_order_of_variables():
    layer, x, order = WideAttention(4, heads=2, dropout=0.0), torch.randn(2, 6, 4), torch.randperm(6)
    assert close(layer(x)[:, order], layer(x[:, order]).detach().numpy())


# -- CATCH: channel mask --------------------------------------------------------------------------------------------


def test_a_mask_is_zero_or_one_and_every_channel_attends_to_itself():
    mask = ChannelMask(6, variables=4)
    torch.nn.init.normal_(mask.logits.weight)
    tokens = torch.randn(50, 4, 6)
    sampled = mask(tokens).detach()
    assert set(sampled.unique().tolist()) == {0.0, 1.0}
    assert (sampled.diagonal(dim1=1, dim2=2) == 1).all()
    fixed = mask.eval()(tokens).detach()
    assert torch.equal(fixed, mask(tokens).detach())
    for patch in range(3):
        for i in range(4):
            logits = naive.linear(mask.logits, tokens[patch, i])
            assert fixed[patch, i].tolist() == [float(i == j or logits[j] >= 0) for j in range(4)]


def test_a_mask_is_sampled_with_its_probability():
    mask = ChannelMask(1, variables=2)
    mask.logits.weight.data = torch.tensor([[0.0], [math.log(3)]])  # probabilities 1/2 and 3/4
    sampled = mask(torch.ones(4000, 2, 1)).detach()
    assert float(sampled[:, 0, 1].mean()) == pytest.approx(0.75, abs=0.03)
    assert float(sampled[:, 1, 0].mean()) == pytest.approx(0.5, abs=0.03)


def test_masked_attention_equals_a_loop():
    layer, tokens = MaskedAttention(4, heads=2, head_dim=3, dropout=0.0), torch.randn(1, 5, 4)
    mask = (torch.rand(1, 5, 5) < 0.5).float()
    mask[0].fill_diagonal_(1)
    out, cosine = layer(tokens, mask)
    attended, cosines = [[] for _ in range(5)], np.zeros((5, 5))
    for head in range(2):
        own = slice(3 * head, 3 * head + 3)
        parts = [[naive.linear(one, x)[own] for x in tokens[0]] for one in (layer.query, layer.key, layer.value)]
        for channel, output in enumerate(naive.attention(*parts, keep=mask[0].tolist())[0]):
            attended[channel] += list(output)
        for i, query in enumerate(parts[0]):
            for j, key in enumerate(parts[1]):
                cosines[i, j] += query @ key / np.linalg.norm(query) / np.linalg.norm(key) / 2
    assert close(out[0], [naive.linear(layer.out[0], one) for one in attended])
    assert close(cosine[0], cosines)
    assert close(mask_loss(cosine, mask), naive.mask_loss(cosines.tolist(), mask[0].tolist()))


def test_the_frequency_score_equals_a_loop():
    network = Catch(**{**TINY["catch"], "window": 12, "score_patch": 5})._network(2).eval()
    windows = torch.randn(1, 12, 2)
    errors = (network(windows).windows - windows).detach().double().numpy()[0]
    expected = (errors**2).mean(axis=1) + network.score_weight * naive.spectrum_score(errors, 5)
    assert close(network.score(windows)[0], expected)


def test_the_mask_has_a_lower_learning_rate_and_fewer_updates():
    rest, mask = Catch(**TINY["catch"])._network(3).parameter_groups()
    assert mask.rate_factor == 0.1
    assert (rest.steps_per_epoch, mask.steps_per_epoch) == (None, 10)
    assert [tuple(parameter.shape) for parameter in mask.parameters] == [(3, 16)]


# -- D3R: decomposition and diffusion step --------------------------------------------------------------------------


def test_the_offset_from_the_shifted_stable_part_equals_a_loop():
    windows, stable = torch.randn(2, 9, 3), torch.randn(2, 9, 3)
    found = nearest_offset(windows, stable, shift=2)
    for window in range(2):
        assert close(found[window], naive.nearest_offset(windows[window].numpy(), stable[window].numpy(), 2))


def test_the_diffusion_step_equals_a_loop():
    kept = naive.kept_after(500)
    window, trend, noise = torch.randn(3, 4, 2)
    expected = math.sqrt(kept) * window + (1 - math.sqrt(kept)) * trend + math.sqrt(1 - kept) * noise
    assert close(noisy(window, trend, noise), expected.numpy())
    assert (math.sqrt(kept), math.sqrt(1 - kept)) == (pytest.approx(0.279, abs=1e-3), pytest.approx(0.96, abs=1e-3))


def test_a_decomposition_step_takes_weights_from_data_and_time_and_values_from_time():
    block = Decompose(2, dim=4, heads=2, feed_dim=5, dropout=0.0).eval()
    data, time = torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    attended = [[] for _ in range(3)]
    for head in range(2):
        own = slice(2 * head, 2 * head + 2)
        query, key = ([naive.linear(one, x)[own] for x in time[0]] for one in (block.time.query, block.time.key))
        by_time = [[float(a @ b) / math.sqrt(2) for b in key] for a in query]
        by_data = [[naive.linear(one, x)[own] for x in data[0]] for one in (block.data_query, block.data_key)]
        values = [naive.linear(block.time.value, x)[own] for x in time[0]]
        for step, output in enumerate(naive.attention(*by_data, values, extra=by_time)[0]):
            attended[step] += list(output)
    mixed = torch.tensor(np.array([naive.linear(block.time.out, one) for one in attended])).float()[None]
    found = block.temporal(block.time_norm(mixed))
    left, stable = block(data, time)
    assert close(left, block.norm(data - found).detach().numpy())
    assert close(stable, block.stable(found).detach().numpy())


def test_time_marks_follow_the_calendar():
    times = np.array(["2024-02-29T23:59", "1999-12-31T12:30", "1970-01-01T00:00"], dtype="datetime64[us]")
    for mark, time in zip(time_marks(times), times.astype(datetime), strict=True):
        expected = (time.minute / 59, time.hour / 23, time.weekday() / 6, (time.day - 1) / 30, (time.month - 1) / 11)
        assert close(mark, np.array(expected) - 0.5)


def test_timestamps_matter_if_the_detector_was_fitted_with_them():
    series = waves(300)
    day = pd.date_range("2024-03-01", periods=300, freq="min")
    detector = D3r(**TINY["d3r"]).fit(pd.DataFrame(series, index=day))
    same = detector.decision_function(pd.DataFrame(series, index=day))
    assert same.tobytes() == detector.decision_scores_.tobytes()
    later = detector.decision_function(pd.DataFrame(series, index=day + pd.Timedelta(hours=9)))
    assert not np.array_equal(later, same)
    with pytest.raises(InputError, match="fitted with timestamps") as caught:
        detector.decision_function(pd.DataFrame(series))
    assert is_a_sentence(str(caught.value))


# -- learning -------------------------------------------------------------------------------------------------------

ROWS = 1000
LEARNING = {name: {**sizes, "schedule": Epochs(12, learning_rate=3e-3)} for name, sizes in TINY.items()}
for slow in ("lstm-ae", "lstm-vae"):
    LEARNING[slow] |= {"schedule": Epochs(12, learning_rate=2e-2)}
LEARNING["d3r"] |= {"disturbance": 1.0, "dropout": 0.1}


@pytest.fixture(scope="module")
def learned():
    return {name: BASELINES[name](**LEARNING[name]).fit(waves(ROWS)) for name in LEARNING}


@pytest.mark.parametrize("name", LEARNING)
def test_training_lowers_the_loss(name, learned):
    detector = learned[name]
    series = waves(300, seed=5)
    features = detector._features(detector.scaling_(series), as_series(series), training=True)
    windows = torch.from_numpy(features).unfold(0, 20, 20).transpose(1, 2)
    losses = []
    with seeded(detector.seed, CPU):
        untrained = detector._network(3)
    for network in (untrained.eval(), detector.network_):
        with seeded(1, CPU), torch.no_grad():
            losses.append(float(network.loss(windows, 1)))
    assert losses[1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", LEARNING)
def test_a_planted_anomaly_is_detected(name, learned):
    series, labels = waves(400, seed=7), np.zeros(400, dtype=bool)
    for start in (90, 210, 330):
        labels[start : start + 6] = True
    series[labels] += np.random.default_rng(0).choice([-4, 4], size=(labels.sum(), 3))
    scores = learned[name].decision_function(series)
    assert labels[scores.argmax()]
    # In Anomaly Transformer, the weights of a window sum to 1, so it marks only part of an anomaly.
    assert name == "anomaly-transformer" or auc_roc(labels, scores) > 0.9


def test_the_validation_part_may_be_shorter_than_a_window():
    detector = Vtt(**{**TINY["vtt"], "validation_share": 0.1}).fit(waves(100))
    assert np.isfinite(detector.decision_scores_).all()


# -- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "width"), [("usad", 4000), ("catch", 60_000)])
def test_a_network_too_large_for_memory_is_refused_before_training(name, width):
    with pytest.raises(ParameterError, match=r"[\d,]+ parameters and needs about [\d,.]+ GiB") as caught:
        BASELINES[name]().fit(np.random.default_rng(0).normal(size=(120, width)))
    assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("vtt", {"attention": "sideways"}, "Unknown attention 'sideways'. Available: parallel, serial."),
        ("lstm-vae", {"latent_per": "year"}, "Unknown latent per 'year'. Available: step, window."),
        ("anomaly-transformer", {"dim": 9, "heads": 2}, "'dim' parameter must be a multiple of the number of heads"),
        ("catch", {"window": 8}, "'patch_size' parameter must be at most the window"),
        ("usad", {"latent": 0}, "'latent' parameter must be an integer of at least 1"),
        ("d3r", {"dropout": 1.0}, "'dropout' parameter must be below 1"),
        ("vtt", {"schedule": 3}, "'schedule' parameter must be an object with steps and rate"),
        ("catch", {"mask_weight": -1.0}, "'mask_weight' parameter must be a number between 0 and inf"),
        ("knn", {"device": "tpu"}, "Unknown device 'tpu'"),
    ],
)
def test_invalid_parameters_are_refused(name, changes, words):
    detector = BASELINES[name](**changes)
    for use in (detector.check_parameters, lambda: detector.fit("no series")):
        with pytest.raises(ParameterError, match=words) as caught:
            use()
        assert is_a_sentence(str(caught.value))


def test_memory_is_not_measured_with_invalid_parameters():
    with pytest.raises(ParameterError, match="'latent' parameter must be an integer of at least 1"):
        Usad(latent=0).check_memory(3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", TINY)
def test_a_detector_fitted_on_a_gpu_scores_the_same_on_the_cpu(name, tmp_path):
    detector = BASELINES[name](**TINY[name], device="cuda").fit(waves(300))
    detector.save(tmp_path / "detector")
    moved = BASELINES[name].load(tmp_path / "detector", device="cpu")
    assert np.allclose(moved.decision_function(waves(300)), detector.decision_scores_, rtol=1e-2, atol=1e-4)
