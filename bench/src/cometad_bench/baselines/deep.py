"""The base class of the deep baselines: windows, training with early stopping, scoring, and a memory check.

Below it, how much memory a network needs, estimated before any is allocated, and what several networks share.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Baseline
from cometad.data.network_windows import cut, learnable, training_rows, window_starts
from cometad.errors import ParameterError
from cometad.network.fast.torch_threads import torch_alone
from cometad.network.loop import Epoch, seeded
from cometad.network.schedules import Halving, Schedule
from cometad.network.state import weights
from cometad.progress import show_progress
from cometad.saving import Table, arrays, require_state
from cometad.series import Series
from cometad_bench.baselines.loop import ParameterGroup, Validation, WindowSource, train

# Per parameter in training: its value, its gradient, the two moments of AdamW, and the copy from the best epoch.
BYTES_PER_PARAMETER = 5 * 4
# Memory for the windows processed at once: bytes on the CPU, a share of all memory on a GPU. It does not depend on free
# memory: splitting a batch differently changes the last bits, and equal seeds must give equal bytes.
CPU_BYTES, CUDA_SHARE = 2 * 2**30, 1 / 8


class WindowNetwork(nn.Module, ABC):
    """A network that learns from windows (window, time, variable) and scores their time steps."""

    @abstractmethod
    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The training loss; epochs count from 1."""

    @abstractmethod
    def score(self, windows: Tensor) -> Tensor:
        """The score of each time step, (window, time)."""

    def validation_loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The loss for early stopping; it must be comparable between epochs."""
        return self.loss(windows, epoch)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(list(self.parameters()), self.loss)]

    def after_training(self, batches: Iterator[Tensor]) -> None:
        """Fit anything that depends on the trained network, on validation windows if there are any."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeepBaseline(Baseline):
    """A network trained on windows. The defaults follow the published protocol: see bench/BASELINES.md.

    The last `validation_share` of the series is held out, a share or a number of readings. Training stops once the
    validation loss has not improved for more than `patience` epochs, and the network of the best epoch is kept. If the
    held-out part is shorter than a window, training runs to the end of the schedule.
    """

    saved: ClassVar[Table] = {
        **arrays(window_bytes_=(1,), dtype=np.int64),
        "network": weights("network_", lambda own: own._network(own.n_features_in_).eval()),
    }

    window: int = 100
    window_stride: int = 50
    schedule: Schedule = Halving(30, learning_rate=1e-4)
    batch_size: int = 32
    patience: int = 5
    weight_decay: float = 0.0
    validation_share: float = 0.1

    @abstractmethod
    def _network(self, variables: int) -> WindowNetwork:
        """The untrained network; it takes its sizes from the parameters of this detector."""

    def _features(self, scaled: Floats32, series: Series, training: bool) -> Floats32:
        """The input of the network (time, feature); the scaled variables come first."""
        return scaled

    def _feature_count(self, variables: int) -> int:
        return variables

    def check_memory(self, variables: int) -> None:
        """Refuse a network whose parameters, with the activations of one window, do not fit into memory."""
        self.check_parameters()
        self._measured(variables)

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored. Threads that fit take turns."""
        with torch_alone():
            return super().fit(X, y)

    # -- fitting ----------------------------------------------------------------------------------------------------

    def _least_rows(self) -> int:
        return self.window

    def _training_rows(self, rows: int) -> int:
        return training_rows(rows, self.validation_share)

    def _learn(self, scaled: Floats32, series: Series) -> None:
        features = self._features(scaled, series, training=True)
        self.window_bytes_ = np.array([self._measured(scaled.shape[1])])
        rows = self._training_rows(len(features))
        starts = window_starts(rows, self.window, self.window_stride)
        learned = self._source(features, learnable(starts, self.window, series))
        held_out = None
        if len(features) - rows >= self.window:
            starts = rows + window_starts(len(features) - rows, self.window, self.window_stride)
            held_out = self._source(features, learnable(starts, self.window, series))
        with seeded(self.seed, torch.device(self.device)):
            self.network_ = self._network(scaled.shape[1]).to(self.device)
            self._train(learned, held_out)
            self.network_.eval()
            self.network_.after_training((held_out or learned).batches(self._at_once, self.device))

    def _train(self, learned: WindowSource, held_out: WindowSource | None) -> None:
        network, limits = self.network_, {"patience": self.patience, "at_once": self._at_once, "seed": self.seed}
        with show_progress("epoch", self.verbose) as progress:

            def report(epoch: Epoch, loss: float | None) -> None:
                validation = "" if loss is None else f", validation {loss:.4g}"
                note = f"loss {epoch.loss:.4g}{validation}, {epoch.seconds_left:.0f} s left"
                progress(epoch.number, epoch.of, note)

            train(
                network,
                network.parameter_groups(),
                learned,
                schedule=self.schedule,
                batch_size=self.batch_size,
                seed=self.seed,
                report=report,
                weight_decay=self.weight_decay,
                validation=Validation(network.validation_loss, held_out, **limits) if held_out else None,
                at_once=self._at_once,
            )

    @property
    def _at_once(self) -> int:
        available = CUDA_SHARE * _memory(self.device) if self.device.startswith("cuda") else CPU_BYTES
        return max(1, int(available // max(1, int(self.window_bytes_[0]))))

    def _measured(self, variables: int) -> int:
        """The training memory of one window in bytes; refused if that and the parameters do not fit."""
        with torch.device("meta"):  # shapes only, nothing is allocated
            network = self._network(variables)
            window = torch.zeros(1, self.window, self._feature_count(variables))
        kept: dict[int, Tensor] = {}  # for the backward pass, without views and parameters

        def keep(tensor: Tensor) -> Tensor:
            whole = tensor if tensor._base is None else tensor._base
            if not isinstance(whole, nn.Parameter):
                kept[id(whole)] = whole
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            network.loss(window, 1)
        window_bytes = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
        parameters, total = parameter_count(network), _memory(self.device)
        needed = parameters * BYTES_PER_PARAMETER + window_bytes
        if needed > total:
            raise ParameterError(
                f"A {type(self).__name__} on {variables} variables with a window of {self.window} has {parameters:,} "
                f"parameters and needs about {needed / 2**30:,.1f} GiB of memory, but there are only "
                f"{total / 2**30:,.1f} GiB. Use fewer variables, a shorter window or smaller layers."
            )
        return window_bytes

    # -- scoring ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _score(self, scaled: Floats32, series: Series) -> Floats:
        features = self._features(scaled, series, training=False)
        starts = window_starts(len(features), self.window, self.window)
        batches = self._source(features, starts).batches(self._at_once, self.device)
        with torch_alone():  # the last bit of a score depends on the number of threads
            per_window = np.concatenate([self.network_.score(windows).double().cpu().numpy() for windows in batches])
        scores = np.empty(len(features))
        scores[-self.window :] = per_window[-1]
        scores[: per_window[:-1].size] = per_window[:-1].ravel()  # the last window may overlap the one before it
        return scores

    def _source(self, features: Floats32, starts: NDArray[np.int64]) -> WindowSource:
        return WindowSource(len(starts), lambda chosen: cut(features, starts[chosen], self.window))

    # -- state ------------------------------------------------------------------------------------------------------

    def _check_state(self) -> None:
        require_state(self.window_bytes_[0] > 0, "its array 'window_bytes_' is not positive")


# --- memory -----------------------------------------------------------------------------------------------------------


def parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _memory(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # limit of a container
    text = limit.read_text().strip() if limit.exists() else "max"
    return whole if text == "max" else min(whole, int(text))


# --- shared by several networks ---------------------------------------------------------------------------------------


def sinusoid(length: int, dim: int) -> Tensor:
    """Position encodings (time, dim): sines and cosines of decreasing frequency, interleaved."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(0, dim, 2) / dim)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]


def in_heads(x: Tensor, heads: int) -> Tensor:
    """Split the last axis of tokens (window, token, dim): (window, head, token, dim / heads)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
