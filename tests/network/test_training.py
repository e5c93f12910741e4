"""Training: schedules, batches, and losses that are not finite."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cometad import NetworkComet
from cometad.errors import ParameterError
from cometad.network import Converging, Epochs, Halving
from cometad.network.loop import shuffled_batches
from cometad.network.training import _Backward
from contract import is_a_sentence, waves


@pytest.mark.parametrize("epochs", [1, 3, 7, 30])
@pytest.mark.parametrize("batches", [1, 3, 7, 11, 67])
def test_halving_changes_the_rate_only_between_epochs(epochs, batches):
    schedule = Halving(epochs, learning_rate=1.0)
    steps = schedule.steps(batches)
    for step in range(steps):
        assert schedule.rate(step / steps) == 0.5 ** max(0, step // batches - 1)


@pytest.mark.parametrize("changes", [{"least": 0}, {"least": 5, "most": 4}, {"learning_rate": 0.0}])
def test_an_invalid_schedule_is_refused(changes):
    with pytest.raises(ParameterError, match="parameter"):
        Converging(**changes)


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 40), st.integers(0, 9))
def test_every_window_is_seen_once_per_epoch(count, size, steps, seed):
    batches = list(shuffled_batches(count, size, steps, np.random.default_rng(seed)))
    assert len(batches) == steps
    seen, epochs = np.concatenate(batches), steps // -(-count // size)
    for epoch in np.split(seen[: epochs * count], epochs) if epochs else ():
        assert sorted(epoch) == list(range(count))


def test_a_loss_that_is_not_finite_stops_training_with_an_error():
    detector = NetworkComet(window=20, window_stride=20, codebook_size=8, schedule=Epochs(3), codebook_weight=1e300)
    with pytest.raises(ParameterError, match="diverged in epoch 2") as caught:
        detector.fit(waves(200))
    assert is_a_sentence(str(caught.value))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_replayed_loss_gives_the_same_gradients():
    batches = torch.randn(4, 20, 6, 2, device="cuda")
    network = torch.nn.Linear(2, 2).cuda()
    parameters = list(network.parameters())
    backward = _Backward(lambda batch: ((network(batch) - 2 * batch) ** 2).mean(), parameters)
    for batch in batches:
        network.zero_grad()
        loss = backward(batch)
        replayed = [parameter.grad.clone() for parameter in parameters]
        network.zero_grad()
        again = ((network(batch) - 2 * batch) ** 2).mean()
        again.backward()
        assert torch.equal(loss, again)
        assert all(torch.equal(one, parameter.grad) for one, parameter in zip(replayed, parameters, strict=True))
