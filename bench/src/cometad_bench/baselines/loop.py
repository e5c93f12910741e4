"""The training loop of the deep baselines: groups of parameters with losses of their own, and early stopping."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cometad.network.loop import Epoch, EpochLog, seeded, shuffled_batches
from cometad.network.schedules import Schedule

Loss = Callable[[Tensor, int], Tensor]  # windows (window, time, variable) and the epoch, from 1 -> a scalar


@dataclass(frozen=True)
class WindowSource:
    """Windows to train on, cut on demand: all of them together may not fit in memory."""

    count: int
    cut: Callable[[NDArray[np.int64]], NDArray[np.float32] | Tensor]  # indices (window,) -> (window, time, variable)

    def batches(self, size: int, device: torch.device | str) -> Iterator[Tensor]:
        for begin in range(0, self.count, size):
            yield torch.as_tensor(self.cut(np.arange(begin, min(begin + size, self.count))), device=device)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters and the loss they minimize. Most networks have one group; adversarial ones alternate between several.

    The first group must take a step in every batch; its loss is the one reported.
    """

    parameters: Sequence[nn.Parameter]
    loss: Loss
    rate_factor: float = 1.0  # times the schedule's learning rate
    steps_per_epoch: int | None = None  # None: one step per batch


class Validation:
    """Early stopping: keeps the network of the epoch with the lowest loss on held-out windows."""

    def __init__(self, loss: Loss, source: WindowSource, *, patience: int, at_once: int, seed: int) -> None:
        self._loss, self._source, self._patience, self._at_once, self._seed = loss, source, patience, at_once, seed
        self._epoch = self._epochs_since_best = 0
        self._lowest = math.inf
        self._best: dict[str, Tensor] = {}

    @property
    def should_stop(self) -> bool:
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
        if self._best:
            network.load_state_dict(self._best)

    @torch.no_grad()
    def _mean_loss(self, network: nn.Module) -> float:
        device, count = _device(network), self._source.count
        network.eval()
        total = 0.0
        with seeded(self._seed, device):  # a loss that draws noise must draw the same noise in every epoch
            for windows in self._source.batches(self._at_once, device):
                total += float(self._loss(windows, self._epoch)) * len(windows) / count
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
    report: Callable[[Epoch, float | None], object],
    weight_decay: float = 0.0,
    validation: Validation | None = None,
    at_once: int | None = None,
) -> None:
    """Train with AdamW on batches that are reshuffled in every epoch; `report` gets each one with its validation loss.

    Without `validation`, training runs to the end of the schedule, or to its least steps if it has such a number. With
    `at_once`, a batch is processed that many windows at a time and the gradients are summed: the same step in less
    memory.
    """
    device, least = _device(network), getattr(schedule, "least", None)
    batches = math.ceil(source.count / batch_size)
    steps = schedule.steps(batches)
    trainers = [_GroupTrainer(network, group, weight_decay, batches) for group in groups]
    log = EpochLog(steps, batches)
    network.train()
    for step, chosen in enumerate(shuffled_batches(source.count, batch_size, steps, np.random.default_rng(seed))):
        windows = torch.as_tensor(source.cut(chosen), device=device)  # (window, time, variable)
        rate = schedule.rate(step / steps)
        losses = [trainer.step(windows, step, rate, at_once or len(windows)) for trainer in trainers]
        if losses[0] is not None:
            log.losses.append(losses[0])
        if (step + 1) % batches == 0 or step + 1 == steps:
            epoch = log.end_epoch(step + 1)
            report(epoch, validation.after_epoch(network) if validation else None)
            should_stop = validation.should_stop if validation else least is not None
            if should_stop and step + 1 >= (least or 0):
                break
    if validation:
        validation.restore_best(network)


class _GroupTrainer:
    def __init__(self, network: nn.Module, group: ParameterGroup, weight_decay: float, batches: int) -> None:
        self._network, self._group = network, group
        self._optimizer = torch.optim.AdamW(group.parameters, weight_decay=weight_decay, fused=True)
        self._every = 1 if group.steps_per_epoch is None else max(1, batches // group.steps_per_epoch)
        self._batches = batches

    def step(self, windows: Tensor, step: int, rate: float, at_once: int) -> Tensor | None:
        if (step + 1) % self._every:
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = rate * self._group.rate_factor
        self._network.zero_grad()  # of all parameters: a group must not step along another group's gradient
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


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
