"""The network as one of the views of a Comet: whatever a Comet does, it does with this view too."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import torch

from cometad import Comet
from cometad.compute import thread_count_of
from cometad.errors import ParameterError
from cometad.network.network import Network
from cometad.network.training import new_network
from cometad.views import NetworkView, Patterns
from contract import is_a_sentence, saved, waves
from tiny import NETWORK_VIEW

FAULT = 150
VIEWS = (Patterns(length=8), NetworkView(**NETWORK_VIEW))


@cache
def fitted():
    return Comet(views=VIEWS).fit(waves(400))


def faulty():
    series = waves(300, seed=5)
    series[FAULT, 1] += 6.0
    return series


def test_a_fault_is_flagged_and_explained():
    detector = fitted()
    assert detector.predict(faulty())[FAULT] == 1
    reason = detector.explain(faulty(), FAULT).reasons[0]
    assert reason.variable == "v1"
    assert abs(reason.expected[0]) < 2  # the sine, not the fault


def test_the_network_alone_explains_a_fault():
    reason = Comet(views=VIEWS[1:]).fit(waves(400)).explain(faulty(), FAULT).reasons[0]
    assert (reason.variable, reason.why) == ("v1", "alone unusual")


def test_a_new_process_loads_a_network_view_that_it_never_imported(tmp_path):
    fitted().save(tmp_path / "plant.comet")
    np.save(tmp_path / "series.npy", faulty())
    code = (
        "import cometad, numpy as np; series = np.load('series.npy'); "
        "np.save('scores.npy', cometad.load('plant.comet').decision_function(series))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "scores.npy").tobytes() == fitted().decision_function(faulty()).tobytes()


def test_the_number_of_threads_does_not_change_what_is_learned():
    with thread_count_of(4):  # the blocks of cross-fitting train at the same time
        assert saved(Comet(views=VIEWS).fit(waves(400))) == saved(fitted())


def test_networks_built_at_the_same_time_have_the_weights_of_their_seed():
    """Threads share torch's random state: without a lock one in four of these had other weights."""

    def weights(_):
        network = new_network(lambda: Network(25, (4, 8, 16), (2, 4, 8), 64, 8, 512), 7, "cpu")
        return b"".join(weight.detach().numpy().tobytes() for weight in network.parameters())

    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(weights, range(80)))) == 1
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "parameter, value",
    [
        ("patch_sizes", ()),
        ("patch_sizes", (4, 17)),
        ("patch_sizes", (0,)),
        ("window", 0),
        ("dim", 5),
        ("codebook_size", 0),
        ("initialization", "zeros"),
        ("refit", -1),
        ("schedule", 400),
        ("batch_size", 1.5),
        ("weight_decay", -1.0),
        ("device", "tpu"),
    ],
)
def test_a_bad_parameter_is_refused_with_advice(parameter, value):
    with pytest.raises(ParameterError, match=parameter) as caught:
        NetworkView(**{**NETWORK_VIEW, parameter: value})
    assert is_a_sentence(str(caught.value))
