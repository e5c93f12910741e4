"""The training loop of the deep baselines: batches, parameter groups and early stopping."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cometad import BASELINES, NetworkComet
from cometad.errors import ParameterError
from cometad.network import Converging, Epochs, OneCycle
from cometad.network.loop import seeded
from cometad_bench.baselines.loop import ParameterGroup, Validation, WindowSource, train
from contract import is_a_sentence, saved, waves

CPU = torch.device("cpu")
WINDOWS = np.random.default_rng(0).normal(size=(20, 6, 2)).astype(np.float32)
SOURCE = WindowSource(len(WINDOWS), lambda chosen: WINDOWS[chosen])


def line():
    with seeded(0, CPU):
        return torch.nn.Linear(2, 2)


def rebuild(network):
    return lambda windows, epoch: ((network(windows) - 2 * windows) ** 2).mean()


def trained(network, groups=None, summaries=None, **changes):
    groups = groups or [ParameterGroup(list(network.parameters()), rebuild(network))]
    settings = {"schedule": Epochs(3, 0.05), "batch_size": 8, "seed": 1, **changes}
    seen = summaries if summaries is not None else []
    train(network, groups, SOURCE, report=lambda epoch, validation: seen.append((epoch, validation)), **settings)
    return network


class Scripted:
    """A validation loss with fixed values, whatever the network."""

    def __init__(self, *losses):
        self.losses = list(losses)

    def __call__(self, windows, epoch):
        return torch.tensor(self.losses[epoch - 1])


def test_a_batch_processed_in_parts_gives_the_same_step():
    whole, parts = trained(line()), trained(line(), at_once=3)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_every_window_is_seen_once_per_epoch():
    seen = []
    network = line()

    def loss(windows, epoch):
        seen.append((epoch, len(windows)))
        return rebuild(network)(windows, epoch)

    trained(network, [ParameterGroup(list(network.parameters()), loss)])
    assert [sum(count for epoch, count in seen if epoch == number) for number in (1, 2, 3)] == [20, 20, 20]


def test_the_network_of_the_best_epoch_is_kept():
    states, network = [], line()
    validation = Validation(Scripted(3.0, 1.0, 2.0, 2.0), SOURCE, patience=9, at_once=20, seed=0)
    after_epoch = validation.after_epoch
    validation.after_epoch = lambda net: (states.append(net.weight.detach().clone()), after_epoch(net))[1]
    trained(network, validation=validation, schedule=Epochs(4, 0.05))
    assert torch.equal(network.weight, states[1])
    assert not torch.equal(network.weight, states[3])


@pytest.mark.parametrize(("patience", "epochs"), [(0, 3), (1, 4), (5, 6)])
def test_training_stops_when_patience_runs_out(patience, epochs):
    summaries = []
    validation = Validation(Scripted(3.0, 1.0, 2.0, 2.0, 2.0, 2.0), SOURCE, patience=patience, at_once=20, seed=0)
    trained(line(), summaries=summaries, validation=validation, schedule=Epochs(6, 0.05))
    assert [epoch.number for epoch, _ in summaries] == list(range(1, epochs + 1))
    assert [validation for _, validation in summaries] == [3.0, 1.0, 2.0, 2.0, 2.0, 2.0][:epochs]


@pytest.mark.parametrize(("least", "most", "steps"), [(1, 99, 9), (10, 99, 12), (14, 14, 14)])
def test_training_to_convergence_takes_the_least_steps_and_then_stops_by_patience(least, most, steps):
    # Three batches an epoch; the second epoch is the best one.
    network, taken = line(), []

    def loss(windows, epoch):
        taken.append(len(windows))
        return rebuild(network)(windows, epoch)

    validation = Validation(Scripted(3.0, 1.0, *[2.0] * 9), SOURCE, patience=0, at_once=20, seed=0)
    group = ParameterGroup(list(network.parameters()), loss)
    trained(network, [group], validation=validation, schedule=Converging(least, most, 0.05))
    assert len(taken) == steps


def test_without_validation_training_to_convergence_takes_the_least_steps():
    summaries = []
    schedule = Converging(least=6, most=99, learning_rate=0.05)
    trained(line(), summaries=summaries, schedule=schedule)
    assert len(summaries) == 2


def test_the_validation_loss_is_a_mean_over_windows_without_dropout():
    network = torch.nn.Sequential(line(), torch.nn.Dropout(0.5))
    validation = Validation(rebuild(network), SOURCE, patience=1, at_once=7, seed=0)
    wanted = float(rebuild(network[0])(torch.from_numpy(WINDOWS), 1).detach())
    assert validation.after_epoch(network) == pytest.approx(wanted, rel=1e-5)
    assert network.training


def test_without_validation_training_runs_to_the_end():
    summaries = []
    trained(line(), summaries=summaries)
    assert [(epoch.number, epoch.of, loss) for epoch, loss in summaries] == [(number, 3, None) for number in (1, 2, 3)]
    assert summaries[2][0].loss < summaries[0][0].loss


def test_a_group_changes_only_its_own_parameters_and_steps_as_often_as_asked():
    network, steps = torch.nn.ModuleList([line(), line()]), {0: 0, 1: 0}

    def loss(which):
        def count(windows, epoch):
            steps[which] += 1
            return (network[0](windows) ** 2).mean() + (network[1](windows) ** 2).mean()

        return count

    groups = [
        ParameterGroup(list(network[0].parameters()), loss(0)),
        ParameterGroup([network[1].weight], loss(1), steps_per_epoch=1),
    ]
    trained(network, groups)
    assert steps == {0: 9, 1: 3}  # three epochs of three batches
    assert not torch.equal(network[0].bias, line().bias)
    assert not torch.equal(network[1].weight, line().weight)
    assert torch.equal(network[1].bias, line().bias)


def test_the_learning_rate_is_scaled_by_the_factor_of_the_group():
    network = line()
    before = network.weight.detach().clone()
    group = ParameterGroup(list(network.parameters()), rebuild(network), rate_factor=0.5)
    trained(network, [group], schedule=OneCycle(1, learning_rate=0.5), batch_size=20)
    # The first step of AdamW moves every coordinate by the learning rate.
    moved = (network.weight.detach() - before).abs()
    assert torch.allclose(moved, torch.full_like(moved, 0.5 * 0.5 / 25), rtol=1e-3)


def test_a_loss_that_is_not_finite_stops_training_with_an_error():
    network = line()
    group = ParameterGroup(
        list(network.parameters()), lambda windows, epoch: rebuild(network)(windows, epoch) * float("nan")
    )
    with pytest.raises(ParameterError, match="diverged in epoch 1") as caught:
        trained(network, [group])
    assert is_a_sentence(str(caught.value))


TINY = {"window": 20, "window_stride": 20}
FITTED_AT_ONCE = {
    "network": lambda: NetworkComet(
        **TINY, patch_sizes=(4,), patch_strides=(2,), codebook_size=8, schedule=OneCycle(5)
    ),
    "usad": lambda: BASELINES["usad"](**TINY, schedule=OneCycle(5)),
    "anomaly-transformer": lambda: BASELINES["anomaly-transformer"](**TINY, dim=256, schedule=OneCycle(3)),
}


def test_detectors_fitted_in_threads_at_once_give_the_same_bytes_as_one_by_one():
    series, threads = waves(600), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        alone = {name: saved(make().fit(series)) for name, make in FITTED_AT_ONCE.items()}
        names = 3 * list(FITTED_AT_ONCE)
        for _ in range(2):  # new threads: torch remembers a number of threads for each
            with ThreadPoolExecutor(len(names)) as pool:
                found = list(pool.map(lambda name: saved(FITTED_AT_ONCE[name]().fit(series)), names))
            assert [name for name, content in zip(names, found, strict=True) if content != alone[name]] == []
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
