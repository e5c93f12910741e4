"""One training loop for every network: shuffled batches, a learning-rate schedule, early stopping."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cometad.errors import ParameterError
from cometad.network.fast.torch_threads import torch_alone
from cometad.network.schedules import Schedule

Loss = Callable[[Tensor, int], Tensor]  # windows (window, time, variable) and the epoch, from 1 -> a scalar


@dataclass(frozen=True)
class WindowSource:
    """Windows to train on, cut on demand: all of them together may not fit in memory."""

    count: int
    cut: Callable[[NDArray[np.int64]], NDArray[np.float32] | Tensor]  # indices (window,) -> (window, time, variable)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters and the loss they minimize. Most networks have one group; adversarial ones alternate between several.

    The first group must take a step in every batch; its loss is the one reported.
    """

    parameters: Sequence[nn.Parameter]
    loss: Loss
    rate_factor: float = 1.0  # times the schedule's learning rate
    steps_per_epoch: int | None = None  # None: one step per batch
    replayable: bool = False  # the loss is the same in every epoch and never waits for a result: a GPU may replay it


class EpochSummary(NamedTuple):
    """The report on one epoch."""

    epoch: int  # passes over the data so far
    epochs: int  # passes in total
    loss: float  # mean over the batches of the epoch
    validation: float | None
    seconds_left: float

    def __str__(self) -> str:
        """A one-line summary."""
        validation = "" if self.validation is None else f", validation {self.validation:.4g}"
        return f"loss {self.loss:.4g}{validation}, {self.seconds_left:.0f} s left"


class NoValidation:
    """No early stopping, and the final network is kept: trains to the end of the schedule, or to its least steps."""

    def __init__(self, should_stop: bool = False) -> None:
        self.should_stop = should_stop

    def after_epoch(self, network: nn.Module) -> float | None:
        """There is no validation loss."""
        return None

    def restore_best(self, network: nn.Module) -> None:
        """Leave the network as it is."""


class Validation:
    """Early stopping: keeps the network of the epoch with the lowest loss on held-out windows."""

    def __init__(self, loss: Loss, source: WindowSource, *, patience: int, at_once: int, seed: int) -> None:
        self._loss, self._source, self._patience, self._at_once, self._seed = loss, source, patience, at_once, seed
        self._epoch = self._epochs_since_best = 0
        self._lowest = math.inf
        self._best: dict[str, Tensor] = {}

    @property
    def should_stop(self) -> bool:
        """Whether the loss has not improved for more epochs than the patience allows."""
        return self._epochs_since_best > self._patience

    def after_epoch(self, network: nn.Module) -> float | None:
        """The validation loss after one more epoch; remembers the network if it is the best so far."""
        self._epoch += 1
        loss = self._mean_loss(network)
        self._epochs_since_best += 1
        if loss < self._lowest:
            self._lowest, self._epochs_since_best = loss, 0
            self._best = {name: value.detach().clone() for name, value in network.state_dict().items()}
        return loss

    def restore_best(self, network: nn.Module) -> None:
        """Reset the network to its best epoch."""
        if self._best:
            network.load_state_dict(self._best)

    @torch.no_grad()
    def _mean_loss(self, network: nn.Module) -> float:
        device, count = _device(network), self._source.count
        network.eval()
        total = 0.0
        with seeded(self._seed, device):  # a loss that draws noise must draw the same noise in every epoch
            for begin in range(0, count, self._at_once):
                chosen = np.arange(begin, min(begin + self._at_once, count))
                windows = torch.as_tensor(self._source.cut(chosen), device=device)
                total += float(self._loss(windows, self._epoch)) * len(chosen) / count
        network.train()
        return total


def train(
    network: nn.Module,
    groups: Sequence[ParameterGroup],
    source: WindowSource,
    *,
    schedule: Schedule,
    batch_size: int,
    seed: int,
    report: Callable[[EpochSummary], object],
    weight_decay: float = 0.0,
    validation: Validation | NoValidation | None = None,
    at_once: int | None = None,
) -> None:
    """Train with AdamW on batches that are reshuffled in every epoch; calls `report` after each one.

    With `at_once`, a batch is processed that many windows at a time and the gradients are summed: the same step in less
    memory.
    """
    validation = validation or NoValidation()
    device = _device(network)
    batches = math.ceil(source.count / batch_size)
    steps = schedule.steps(batches)
    trainers = [_GroupTrainer(network, group, weight_decay, batches) for group in groups]
    log = _EpochLog(steps, batches)
    network.train()
    for step, chosen in enumerate(_batches(source.count, batch_size, steps, np.random.default_rng(seed))):
        windows = torch.as_tensor(source.cut(chosen), device=device)  # (window, time, variable)
        rate = schedule.rate(step / steps)
        losses = [trainer.step(windows, step, rate, at_once or len(windows)) for trainer in trainers]
        if losses[0] is not None:
            log.losses.append(losses[0])
        if (step + 1) % batches == 0 or step + 1 == steps:
            log.check_finite(step + 1)
            report(log.summary(step + 1, validation.after_epoch(network)))
            if validation.should_stop and step + 1 >= getattr(schedule, "least", 0):
                break
    validation.restore_best(network)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch inside the `with` block only; the random state outside it is unaffected."""
    # Threads share torch's random state: of 400 networks that 4 threads built from one seed, 105 had other weights.
    with torch_alone(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(seed))
        yield


def _batches(count: int, size: int, steps: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """`steps` batches of window indices, reshuffled in every epoch."""
    while True:
        order = rng.permutation(count)
        for begin in range(0, count, size):
            if steps == 0:
                return
            yield order[begin : begin + size]
            steps -= 1


class _GroupTrainer:
    """A parameter group with its optimizer."""

    def __init__(self, network: nn.Module, group: ParameterGroup, weight_decay: float, batches: int) -> None:
        self._network, self._group = network, group
        self._optimizer = torch.optim.AdamW(group.parameters, weight_decay=weight_decay, fused=True)
        self._every = 1 if group.steps_per_epoch is None else max(1, batches // group.steps_per_epoch)
        self._batches = batches
        self._shape: torch.Size | None = None  # of the first batch on a GPU
        self._captured: _CapturedLoss | None = None

    def step(self, windows: Tensor, step: int, rate: float, at_once: int) -> Tensor | None:
        """Take one optimizer step and return the loss before it, or None if this group skips the batch."""
        if (step + 1) % self._every:
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = rate * self._group.rate_factor
        self._network.zero_grad()  # of all parameters: a group must not step along another group's gradient
        loss = self._replay(windows) if at_once >= len(windows) else None
        if loss is None:
            loss = self._accumulate(windows, step // self._batches + 1, at_once)
        self._optimizer.step()
        return loss

    def _accumulate(self, windows: Tensor, epoch: int, at_once: int) -> Tensor:
        losses = []
        for part in torch.split(windows, at_once):
            loss = self._group.loss(part, epoch) * (len(part) / len(windows))
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _replay(self, windows: Tensor) -> Tensor | None:
        """The loss, with gradients set, from a CUDA graph captured at the second batch; None if there is no graph."""
        if not (self._group.replayable and windows.is_cuda) or windows.shape != (self._shape or windows.shape):
            return None
        if self._shape is None:
            self._shape = windows.shape
            return None
        if self._captured is None:
            self._captured = _CapturedLoss(self._group, windows)
        return self._captured.replay(windows)


class _CapturedLoss:
    """A loss and its gradients as one CUDA graph: launching many small kernels takes longer than running them."""

    def __init__(self, group: ParameterGroup, windows: Tensor) -> None:
        self._windows, self._parameters = windows.clone(), group.parameters
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = group.loss(self._windows, 1)
            self._loss.backward()  # type: ignore[no-untyped-call]
        self._gradients = [parameter.grad for parameter in group.parameters]

    def replay(self, windows: Tensor) -> Tensor:
        """The loss on windows of the captured shape; sets the gradients of the parameters."""
        self._windows.copy_(windows)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return self._loss.detach().clone()


class _EpochLog:
    """The losses of the current epoch, and the time since training began."""

    def __init__(self, steps: int, batches: int) -> None:
        self._steps, self._batches = steps, batches
        self._started = time.monotonic()
        self.losses: list[Tensor] = []

    def check_finite(self, done: int) -> None:
        """Raise an error if a loss is not finite."""
        if not torch.stack(self.losses).isfinite().all():
            raise ParameterError(
                f"Training diverged in epoch {self._epoch(done)}: the loss is not finite. Lower the learning rate."
            )

    def summary(self, done: int, validation: float | None) -> EpochSummary:
        """Summarize the epoch that just ended and start the next one."""
        left = (time.monotonic() - self._started) * (self._steps - done) / done
        loss = float(torch.stack(self.losses).mean())
        self.losses = []
        return EpochSummary(self._epoch(done), self._epoch(self._steps), loss, validation, left)

    def _epoch(self, done: int) -> int:
        return math.ceil(done / self._batches)


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
