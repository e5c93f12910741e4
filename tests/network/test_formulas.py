"""Every fast form equals the paper written as loops, for random shapes."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import naive
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.data.network_windows import window_starts
from cometad.network import Epochs, NoAdaptation
from cometad.network.adaptation import contrastive_loss
from cometad.network.fast import moments
from cometad.network.fast.kernels import back_to_time
from cometad.network.fast.moments import as_batch, batch_loss, embeddings_of, sum_losses
from cometad.network.network import Codebook, Network, losses
from cometad.network.patches import coverage, patch_count, patches
from cometad.network.pipeline import Block, Pipeline
from cometad.network.score import PatchScores, Scorer, memory_table, nearest_codes_torch
from cometad.network.training import Objective
from cometad.scoring import (
    AllVariables,
    BudgetSelection,
    EmaMinMax,
    HighestVariables,
    NoCalibration,
    NoNormalization,
    PercentileSelection,
)

seeds = st.integers(0, 2**32 - 1)


@st.composite
def cuts(draw):
    """A window length, patch size and stride that fit; may have patch = window and stride = patch."""
    length = draw(st.integers(1, 14))
    size = draw(st.integers(1, length))
    return length, size, draw(st.integers(1, size))


@st.composite
def networks(draw, scales=3):
    """A window length and a float32 network for it; may have one variable, one scale or fewer dims than patch steps."""
    length = draw(st.integers(2, 12))
    sizes = draw(st.lists(st.integers(1, length), min_size=1, max_size=scales))
    strides = [draw(st.integers(1, size)) for size in sizes]
    torch.manual_seed(draw(seeds))
    network = Network(
        variables=draw(st.integers(1, 4)),
        patch_sizes=sizes,
        patch_strides=strides,
        dim=2 * draw(st.integers(1, 4)),
        core_dim=draw(st.integers(1, 6)),
        codebook_size=draw(st.integers(1, 9)),
    )
    return length, network


def learned(network):
    """The learned weights of each scale, in the form that the loops use."""
    return [naive.Weights.of(scale) for scale in network]


def some_windows(network, length, seed, count=2):
    variables = next(iter(network)).encoder.series_weight.shape[0]
    return np.random.default_rng(seed).normal(size=(count, length, variables)).astype(np.float32)


# -- patches --------------------------------------------------------------------------------------------------------


@given(cuts(), st.integers(1, 3))
def test_patches_follow_equation_1(cut, variables):
    length, size, stride = cut
    window = np.arange(length * variables, dtype=float).reshape(length, variables)
    found = patches(torch.from_numpy(window), size, stride)
    assert len(found) == patch_count(length, size, stride) == naive.patch_count(length, size, stride)
    for j in range(len(found)):
        for i in range(variables):
            assert found[j, i].tolist() == naive.patch(window, i, j, size, stride)


@given(cuts())
@example((100, 6, 3))
def test_coverage_gives_the_first_and_last_patch_of_each_step(cut):
    length, size, stride = cut
    cover = coverage(length, size, stride)
    for step in range(length):
        over = naive.covering(step, length, size, stride)
        assert (cover.first[step], cover.last[step]) == (over[0], over[-1])
        assert cover.final[step] == max(step, over[-1] * stride + size - 1)


@given(cuts(), seeds, st.data())
def test_a_step_is_the_mean_of_its_patches_whatever_the_range_of_steps(cut, seed, data):
    length, size, stride = cut
    rng, shape = np.random.default_rng(seed), (2, patch_count(length, size, stride), data.draw(st.integers(1, 20)))
    codes, errors = rng.integers(0, 5, shape).astype(np.int32), rng.normal(size=shape).astype(np.float32)
    table, cover = rng.normal(size=5), coverage(length, size, stride)

    def scores_of(start, stop):
        scores = np.zeros((2, 2, stop - start, shape[2]))
        back_to_time(codes, errors, table, cover.first[start:stop], cover.last[start:stop], 1.0, *scores)
        return scores

    whole = scores_of(0, length)
    for values, scores in ((table[codes], whole[0]), (errors.astype(float), whole[1])):
        for w in range(2):
            np.testing.assert_allclose(scores[w], naive.back_to_time(values[w], length, size, stride), rtol=1e-12)
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    assert scores_of(start, stop).tobytes() == whole[:, :, start:stop].tobytes()


@given(st.integers(1, 12), st.integers(0, 60))
def test_consecutive_windows_and_one_at_the_end_cover_every_step_once(length, more):
    rows = length + more
    windows = naive.scoring_windows(rows, length)
    assert [start for start, _ in windows] == window_starts(rows, length, length).tolist()
    assert [step for start, new in windows for step in range(start + new, start + length)] == list(range(rows))


# -- encoder, codebook, losses --------------------------------------------------------------------------------------


@given(networks(), seeds)
def test_embeddings_and_codes_follow_equations_2_to_7(made, seed):
    length, network = made
    windows = some_windows(network, length, seed)
    encoded = network.double()(torch.from_numpy(windows).double())
    for scale, weights in zip(encoded, learned(network), strict=True):
        for w, window in enumerate(windows):
            for j, row in enumerate(naive.embeddings(window, weights)):
                for i, one in enumerate(row):
                    vector = scale.embeddings[w, j, i].detach().numpy()
                    np.testing.assert_allclose(vector, one.vector, rtol=1e-9, atol=1e-9)
                    assert scale.quantized.codes[w, j, i] == one.code
                    np.testing.assert_array_equal(
                        scale.quantized.vectors[w, j, i].detach().numpy(), weights.codes[one.code]
                    )
                    error = scale.quantized.error(scale.embeddings)[w, j, i].item()
                    np.testing.assert_allclose(
                        error, naive.quantization_score(one.vector, weights.codes[one.code]), rtol=1e-9, atol=1e-9
                    )


@given(st.integers(1, 20), st.integers(1, 6), seeds)
def test_a_code_is_its_own_nearest_neighbor(size, dim, seed):
    torch.manual_seed(seed)
    book = Codebook(size, dim).double()
    quantized = book(book.vectors.detach())
    assert quantized.codes.tolist() == list(range(size))
    assert quantized.error(book.vectors).max() == 0


def test_the_lowest_index_wins_a_tie():
    book = Codebook(4, 2)
    book.vectors.data.fill_(1.0)
    assert book(torch.zeros(3, 2)).codes.tolist() == [0, 0, 0]


@given(networks(), seeds, st.floats(0, 2), st.floats(0, 2))
def test_the_losses_follow_equations_8_to_11(made, seed, codebook_weight, commitment_weight):
    length, network = made
    windows = some_windows(network, length, seed)
    found = losses(network.double()(torch.from_numpy(windows).double()))
    expected = naive.losses(windows, learned(network))
    np.testing.assert_allclose([part.item() for part in found], expected, rtol=1e-9)
    total = Objective(codebook_weight, commitment_weight, weight_decay=0.0).total(found).item()
    np.testing.assert_allclose(total, naive.total_loss(expected, codebook_weight, commitment_weight), rtol=1e-9)


@given(networks(), seeds, st.sampled_from([0.0, 0.5, 1.0]))
def test_masked_losses_count_only_normal_patches(made, seed, share):
    length, network = made
    windows = some_windows(network, length, seed)
    encoded = network.double()(torch.from_numpy(windows).double())
    rng = np.random.default_rng(seed)
    normal = [torch.from_numpy(rng.random(scale.quantized.codes.shape) < share) for scale in encoded]
    found = [part.item() for part in losses(encoded, normal)]
    np.testing.assert_allclose(found, naive.losses(windows, learned(network), normal), rtol=1e-9)


@given(networks(scales=1), seeds, st.floats(0, 2), st.floats(0, 2))
def test_each_loss_trains_only_the_parameters_it_should(made, seed, codebook_weight, commitment_weight):
    length, network = made
    windows = some_windows(network, length, seed)
    encoded = network.double()(torch.from_numpy(windows).double())
    Objective(codebook_weight, commitment_weight, weight_decay=0.0).total(losses(encoded)).backward()
    (scale,), (weights,) = network, learned(network)
    codes = codebook_weight * naive.codebook_gradient(windows, weights)
    np.testing.assert_allclose(scale.codebook.vectors.grad.numpy(), codes, rtol=1e-7, atol=1e-10)
    bias = naive.fusion_bias_gradient(windows, weights, commitment_weight)
    np.testing.assert_allclose(scale.encoder.fusion_bias.grad.numpy(), bias, rtol=1e-7, atol=1e-10)


@given(networks(), seeds, st.sampled_from([None, 0.0, 0.5]))
def test_losses_and_gradients_from_sums_over_a_batch_equal_the_plain_ones(made, seed, share):
    length, network = made
    windows = torch.from_numpy(some_windows(network, length, seed, count=3))
    network = network.double()
    encoded = network(windows.double())
    rng = np.random.default_rng(seed)
    normal = None
    if share is not None:
        normal = [torch.from_numpy(rng.random(scale.quantized.codes.shape) < share) for scale in encoded]

    parts = [
        batch_loss(as_batch(scale, windows, plain.quantized.codes.int()), None if normal is None else normal[k])[0]
        for k, (scale, plain) in enumerate(zip(network, encoded, strict=True))
    ]
    fast, slow = sum_losses(parts), losses(encoded, normal)
    np.testing.assert_allclose([part.item() for part in fast], [part.item() for part in slow], rtol=1e-12, atol=1e-12)
    for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)):
        gradients = [
            torch.autograd.grad(
                sum(weight * part for weight, part in zip(weights, which, strict=True)),
                list(network.parameters()),
                retain_graph=True,
                materialize_grads=True,
            )
            for which in (fast, slow)
        ]
        for (name, _), ours, theirs in zip(network.named_parameters(), *gradients, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("variables, size, codes", [(1, 3, 5), (3, 11, 9), (13, 5, 7), (9, 16, 33), (33, 2, 4)])
@pytest.mark.parametrize("share", [None, 0.7, 0.0])
def test_kernel_products_equal_torch_beyond_one_tile(variables, size, codes, share):
    """More positions than fit in a tile, widths that do not fill a register, codes that do not fill a row."""
    torch.manual_seed(variables)
    (scale,) = Network(variables, (size,), (1,), dim=8, core_dim=4, codebook_size=codes)
    batch = as_batch(scale, torch.randn(7, size + 150, variables))
    normal = None if share is None else torch.rand(batch.codes.shape) < share
    if share == 0.7:
        normal[..., 0] = False  # a variable without any normal patch
    for fast, plain in zip(moments._products(batch, normal), moments._products_by_torch(batch, normal), strict=True):
        assert (fast is None) == (plain is None)
        if fast is not None:
            torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-10)


@given(networks(scales=1), seeds)
def test_a_batch_has_the_codes_and_embeddings_of_the_plain_network(made, seed):
    length, network = made
    windows = some_windows(network, length, seed)
    (scale,), (weights,) = network, learned(network)
    batch = as_batch(scale, torch.from_numpy(windows))
    codes = batch.codes.numpy()
    found = embeddings_of(batch, torch.arange(codes.size)).reshape(*codes.shape, -1).detach().numpy()
    errors = np.empty(codes.shape)
    for w, j, i in np.ndindex(codes.shape):
        vector = naive.embedding(windows[w], i, j, weights)
        np.testing.assert_allclose(found[w, j, i], vector, rtol=1e-9, atol=1e-9)
        errors[w, j, i] = naive.quantization_score(vector, weights.codes[codes[w, j, i]])
    assert_nearest(codes, errors, windows, weights)


# -- memory ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 14), st.integers(1, 5), st.integers(1, 12), st.sampled_from(["local", "plain"]), seeds)
@example(size=5, dim=2, neighbors=12, distance="local", seed=0)  # a bank smaller than n
def test_the_memory_table_is_the_memory_score_of_each_code(size, dim, neighbors, distance, seed):
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(size, dim))
    active = rng.random(size) < 0.6
    active[rng.integers(size)] = True
    bank = naive.bank(codes, np.flatnonzero(active))
    expected = [naive.memory_score(code, bank, neighbors, distance) for code in codes]
    # A distance near 0 over a scale near 0 depends on the last digit, hence the absolute tolerance.
    np.testing.assert_allclose(memory_table(codes, active, neighbors, distance), expected, rtol=1e-9, atol=1e-9)


@given(st.integers(2, 14), st.integers(1, 5), st.sampled_from(["local", "plain"]), seeds)
def test_with_one_neighbor_an_active_code_scores_zero(size, dim, distance, seed):
    codes = np.random.default_rng(seed).normal(size=(size, dim))
    active = np.arange(size) % 2 == 0
    table = memory_table(codes, active, 1, distance)
    assert (table[active] == 0).all()
    assert (table[~active] > 0).all()


# -- the folded encoder ---------------------------------------------------------------------------------------------


def assert_nearest(codes, errors, windows, weights):
    """Codes and errors (window, patch, variable) equal those of the loops, except for ties within rounding."""
    for w, window in enumerate(windows):
        for j, row in enumerate(naive.embeddings(window, weights)):
            for i, one in enumerate(row):
                least = naive.squared_distance(one.vector, weights.codes[one.code])
                found = naive.squared_distance(one.vector, weights.codes[codes[w, j, i]])
                size = 1 + max(naive.squared_distance(one.vector, 0 * c) + (c**2).sum() for c in weights.codes)
                assert found <= least + 1e-5 * size
                np.testing.assert_allclose(errors[w, j, i], np.sqrt(found), rtol=1e-5, atol=1e-6 * np.sqrt(size))


@given(networks(), seeds)
def test_folded_scores_equal_those_of_the_plain_encoder_and_codebook(made, seed):
    length, network = made
    windows = some_windows(network, length, seed, count=3)
    active = [np.ones(len(scale.codebook.vectors), bool) for scale in network]
    scorer = Scorer(network, active, neighbors=3, distance="local", device="cpu")
    for k, weights in enumerate(learned(network)):
        count = patch_count(length, weights.size, weights.stride)
        found = scorer.whole(windows, k)
        assert_nearest(found.codes, found.errors, windows, weights)
        for first in range(count):
            part = PatchScores(*(np.zeros_like(field[1:2, first:]) for field in found))
            scorer.patches(windows[1:2], k, first, part)
            assert part.codes.tobytes() == found.codes[1:2, first:].tobytes()
            assert part.errors.tobytes() == found.errors[1:2, first:].tobytes()


def test_scores_do_not_depend_on_the_number_of_threads():
    torch.manual_seed(0)
    network = Network(variables=5, patch_sizes=(2, 4), patch_strides=(1, 2), dim=8, core_dim=4, codebook_size=16)
    windows = some_windows(network, 20, seed=0, count=7)
    scorer = Scorer(network, [np.ones(16, bool)] * 2, neighbors=3, distance="local", device="cpu")
    alone = scorer.windows(windows)
    with thread_count_of(3):
        together = scorer.windows(windows)
    assert alone.tobytes() == together.tobytes()


@given(networks(scales=1), seeds)
def test_a_patch_on_its_code_has_no_error(made, seed):
    length, network = made
    (scale,) = network
    windows = some_windows(network, length, seed, count=1)
    with torch.no_grad():
        on = scale.embed(torch.from_numpy(windows))[0, 0, 0]
        scale.codebook.vectors[-1] = on
    scorer = Scorer(network, [np.ones(len(scale.codebook.vectors), bool)], 3, "local", "cpu")
    assert scorer.whole(windows, 0).errors[0, 0, 0] <= 1e-5 * (1 + on.norm().item())


@given(networks(scales=1), seeds)
def test_the_device_kernel_equals_the_cpu_kernel(made, seed):
    length, network = made
    windows = some_windows(network, length, seed)
    (scale,), (weights,) = network, learned(network)
    scorer = Scorer(network, [np.ones(len(weights.codes), bool)], neighbors=3, distance="local", device="cpu")
    cut = patches(torch.from_numpy(windows), scale.size, scale.stride)
    tables = [torch.from_numpy(table) for table in scorer.scales[0][2:]]
    codes, errors = (part.reshape(cut.shape[:3]).numpy() for part in nearest_codes_torch(cut.flatten(0, 1), *tables))
    assert_nearest(codes, errors, windows, weights)
    here = scorer.whole(windows, 0)
    same = codes == here.codes
    np.testing.assert_allclose(errors[same], here.errors[same], rtol=1e-5, atol=1e-5)
    assert same.mean() > 0.9


@given(networks(), seeds, st.sampled_from(["local", "plain"]), st.integers(1, 12))
def test_raw_scores_follow_equations_16_and_17(made, seed, distance, neighbors):
    length, network = made
    windows = some_windows(network, length, seed, count=1)
    rng = np.random.default_rng(seed)
    active = [rng.random(len(scale.codebook.vectors)) < 0.7 for scale in network]
    for seen in active:
        seen[0] = True
    scorer = Scorer(network, active, neighbors, distance, "cpu")
    found = scorer.windows(windows)
    seen = [np.flatnonzero(mask) for mask in active]
    memory, quantization = naive.raw_scores(windows[0], learned(network), seen, neighbors, distance)
    np.testing.assert_allclose(found[1, 0], quantization, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0, 0], memory, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scorer.windows(windows, apart=True).mean(axis=1), found, rtol=1e-12)


# -- variables ------------------------------------------------------------------------------------------------------


@st.composite
def score_tables(draw):
    """Scores (window, time, variable)."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(2, 12)), draw(st.integers(1, 9)))
    return np.random.default_rng(draw(seeds)).gamma(2.0, size=shape)


@given(score_tables(), st.sampled_from([0.0, 25.0, 50.0, 75.0, 100.0]))
def test_percentile_selection_follows_equations_26_to_31(scores, percentile):
    found = PercentileSelection(percentile)(scores)
    for w, window in enumerate(scores):
        expected = naive.selected(window, lambda deviation: naive.chosen_by_percentile(deviation, percentile))
        np.testing.assert_allclose(found[w], expected, rtol=1e-9)


@given(score_tables(), st.integers(1, 11))
def test_budget_selection_follows_equation_30(scores, budget):
    found = BudgetSelection(budget)(scores)
    for w, window in enumerate(scores):
        expected = naive.selected(window, lambda deviation: naive.chosen_by_budget(deviation, budget))
        np.testing.assert_allclose(found[w], expected, rtol=1e-9)


@given(score_tables())
def test_selecting_every_variable_is_the_mean_over_all(scores):
    every = AllVariables()(scores)
    np.testing.assert_allclose(every, scores.mean(axis=2), rtol=1e-12)
    for same in (PercentileSelection(100), BudgetSelection(9), HighestVariables(9)):
        np.testing.assert_allclose(same(scores), every, rtol=1e-9)


@given(score_tables(), st.integers(1, 11))
def test_highest_variables_is_the_mean_of_the_largest_scores(scores, count):
    found = HighestVariables(count)(scores)
    for w, t in np.ndindex(scores.shape[:2]):
        largest = sorted(scores[w, t], reverse=True)[:count]
        np.testing.assert_allclose(found[w, t], sum(largest) / len(largest), rtol=1e-12)


@pytest.mark.parametrize(
    "selection", [AllVariables(), HighestVariables(2), PercentileSelection(50), BudgetSelection(3)]
)
def test_a_selection_does_not_change_its_input(selection):
    scores = np.random.default_rng(0).gamma(2.0, size=(2, 10, 5))
    before = scores.copy()
    selection(scores)
    assert np.array_equal(scores, before)


# -- normalization, mixing ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(0, 1), seeds)
def test_ema_normalization_follows_equations_18_and_19(lengths, momentum, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.gamma(2.0, size=length) for length in lengths]
    rule = EmaMinMax(momentum)
    state = rule.fit(np.empty(0))
    expected = naive.ema_min_max([batch.tolist() for batch in batches], momentum)
    for batch, wanted in zip(batches, expected, strict=True):
        found, state = rule(batch, state)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_imputed_steps_do_not_shift_the_windows_of_an_update():
    raw = np.random.default_rng(0).gamma(2.0, size=(2, 3, 4, 1))
    left_out = np.zeros((3, 4, 1), bool)
    left_out[0, :3] = True
    rule = EmaMinMax(0.75, windows=1)
    pipeline = Pipeline.fit(raw, NoCalibration(), AllVariables(), rule, score_weight=1.0)
    scores = pipeline([Block(raw, 0, left_out)], pipeline.start)[0].alerts
    measured = [[raw[1, 0, 3, 0]], raw[1, 1, :, 0], raw[1, 2, :, 0]]
    wanted = [score for update in naive.ema_min_max([list(part) for part in measured], 0.75) for score in update]
    np.testing.assert_allclose(scores[3:], wanted, rtol=1e-6, atol=1e-6)
    assert (scores[:3] == 0).all()


@given(score_tables(), st.floats(0, 1), st.sampled_from([None, 1, 2, 3]), st.data())
def test_the_pipeline_selects_then_normalizes_then_mixes(scores, weight, windows, data):
    memory, quantization = raw = np.random.default_rng(0).gamma(2.0, size=(2, *scores.shape))
    skip = data.draw(st.integers(0, scores.shape[1] - 1)) if windows is None else 0
    rule = EmaMinMax(0.75, windows=windows)
    calibration = np.stack([np.stack([np.zeros(scores.shape[2]), np.ones(scores.shape[2])])] * 2)
    pipeline = Pipeline(PercentileSelection(50), rule, weight, calibration, np.stack([rule.fit(np.empty(0))] * 2))
    decided, _ = pipeline([Block(raw, skip)], pipeline.start)
    normalized = []
    for kind in (memory, quantization):
        steps = []
        for w in range(scores.shape[0]):
            steps += naive.selected(kind[w], lambda deviation: naive.chosen_by_percentile(deviation, 50))[skip:]
        size = len(steps) if windows is None else windows * scores.shape[1]
        updates = [steps[begin : begin + size] for begin in range(0, len(steps), size)]
        normalized.append([score for update in naive.ema_min_max(updates, 0.75) for score in update])
    np.testing.assert_allclose(decided.alerts, naive.mixed(*normalized, weight), rtol=1e-6, atol=1e-6)
    assert decided.variables.shape == (len(decided.alerts), scores.shape[2])


@given(st.floats(0, 1), seeds)
def test_mixing_follows_equation_20(weight, seed):
    memory, quantization = raw = np.random.default_rng(seed).gamma(2.0, size=(2, 1, 7, 1))
    calibration = np.array([[[0.0], [1.0]]] * 2)
    pipeline = Pipeline(AllVariables(), NoNormalization(), weight, calibration, np.array([[0.0, 1.0]] * 2))
    decided, _ = pipeline([Block(raw, 0)], pipeline.start)
    np.testing.assert_allclose(decided.alerts, naive.mixed(memory.ravel(), quantization.ravel(), weight), rtol=1e-12)
    np.testing.assert_allclose(decided.variables[:, 0], decided.alerts, rtol=1e-12)


# -- adaptation -----------------------------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0]), seeds)
def test_the_contrastive_loss_follows_equation_23(normal, abnormal, dim, temperature, seed):
    vectors = np.random.default_rng(seed).normal(size=(normal + abnormal, dim))
    labels = np.arange(normal + abnormal) >= normal
    found = contrastive_loss(torch.from_numpy(vectors), torch.from_numpy(labels), temperature)
    np.testing.assert_allclose(found.item(), naive.contrastive_loss(vectors, labels, temperature), rtol=1e-9, atol=1e-9)


def test_the_gradient_of_the_contrastive_loss_matches_finite_differences():
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 3))).requires_grad_()
    labels = torch.arange(7) >= 4
    assert torch.autograd.gradcheck(lambda sample: contrastive_loss(sample, labels, 0.5), [vectors])


# -- end to end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variables", "rows"), [(1, 60), (3, 100), (4, 87)])
def test_the_paper_preset_equals_the_paper_end_to_end(variables, rows):
    rng = np.random.default_rng(variables)
    normal, fresh = rng.normal(size=(300, variables)), 2 * rng.normal(size=(rows, variables))
    detector = Comet.paper(
        window=20,
        window_stride=10,
        dim=6,
        core_dim=5,
        codebook_size=12,
        batch_size=8,
        neighbors=4,
        test_batch=2,
        schedule=Epochs(2, learning_rate=1e-2),
        adaptation=NoAdaptation(),
    ).fit(normal)
    train = normal[:270]
    scaled = ((fresh - train.mean(axis=0)) / train.std(axis=0)).astype(np.float32)
    weights = learned(detector.network_)
    expected = naive.scores(
        scaled.tolist(),
        20,
        2,
        weights,
        [np.flatnonzero(seen) for seen in detector.active_],
        neighbors=4,
        rho=50,
        momentum=0.75,
        weight=0.5,
    )
    np.testing.assert_allclose(detector.decision_function(fresh), expected, rtol=1e-4, atol=1e-4)


def test_the_active_codes_are_those_of_the_training_windows():
    normal = np.random.default_rng(0).normal(size=(100, 2))
    detector = Comet.paper(window=20, window_stride=10, dim=4, core_dim=3, codebook_size=12, adaptation=NoAdaptation())
    detector.fit(normal)
    scaled = ((normal[:90] - normal[:90].mean(axis=0)) / normal[:90].std(axis=0)).astype(np.float32)
    windows = [scaled[start : start + 20].tolist() for start in range(0, 71, 10)]
    for weights, active in zip(learned(detector.network_), detector.active_, strict=True):
        assert set(np.flatnonzero(active)) == naive.activated(windows, weights)
