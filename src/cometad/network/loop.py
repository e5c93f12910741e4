"""One training loop for every network: batches in random order, a schedule, early stopping on validation loss."""

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
from cometad.network.schedules import Schedule

Loss = Callable[[Tensor, int], Tensor]  # of windows (window, time, variable) in an epoch, counted from 1


@dataclass(frozen=True)
class Supply:
    """Windows to be had by index: never all of them at once."""

    count: int
    cut: Callable[[NDArray[np.int64]], NDArray[np.float32] | Tensor]  # indices -> (window, time, variable)


@dataclass(frozen=True)
class Player:
    """Some parameters and the loss that they lower. Most networks have one; adversaries take turns in a batch.

    The first player plays in every batch, and its loss is the one that is told.
    """

    parameters: Sequence[nn.Parameter]
    loss: Loss
    rate_share: float = 1.0  # of the schedule's learning rate
    turns: int | None = None  # in each epoch; None: in every batch
    steady: bool = False  # the loss does the same in every epoch and waits for no result: a GPU may replay it


class Told(NamedTuple):
    """What training tells after each epoch."""

    epoch: int  # passes over the data that are behind
    epochs: int  # passes in all
    loss: float  # the mean over the epoch's batches
    validation: float | None
    seconds_left: float

    def __str__(self) -> str:
        """One line for the eye."""
        validation = "" if self.validation is None else f", validation {self.validation:.4g}"
        return f"loss {self.loss:.4g}{validation}, {self.seconds_left:.0f} s left"


class NoValidation:
    """Trains to the end of the schedule and keeps what came out."""

    enough = False

    def look(self, network: nn.Module) -> float | None:
        """Nothing to look at."""
        return None

    def finish(self, network: nn.Module) -> None:
        """Leave the network as it is."""


class Validation:
    """Early stopping: the network of the epoch with the lowest loss on windows that are never trained on.

    >>> import numpy as np, torch
    >>> from cometad.network.loop import Supply, Validation
    >>> network = torch.nn.Linear(1, 1)
    >>> quiet = Supply(4, lambda chosen: np.zeros((len(chosen), 5, 1), np.float32))
    >>> watch = Validation(lambda windows, epoch: (network(windows) ** 2).mean(), quiet, patience=2, at_once=4, seed=0)
    >>> _ = torch.nn.init.constant_(network.bias, 2.0)
    >>> watch.look(network)
    4.0
    """

    def __init__(self, loss: Loss, supply: Supply, *, patience: int, at_once: int, seed: int) -> None:
        self._loss, self._supply, self._patience, self._at_once, self._seed = loss, supply, patience, at_once, seed
        self._epoch = self._missed = 0
        self._lowest = math.inf
        self._best: dict[str, Tensor] = {}

    @property
    def enough(self) -> bool:
        """Whether more epochs in a row than the patience brought nothing."""
        return self._missed > self._patience

    def look(self, network: nn.Module) -> float | None:
        """The validation loss after one more epoch; the best network so far is kept."""
        self._epoch += 1
        loss = self._mean(network)
        self._missed += 1
        if loss < self._lowest:
            self._lowest, self._missed = loss, 0
            self._best = {name: value.detach().clone() for name, value in network.state_dict().items()}
        return loss

    def finish(self, network: nn.Module) -> None:
        """Take the network back to its best epoch."""
        if self._best:
            network.load_state_dict(self._best)

    @torch.no_grad()
    def _mean(self, network: nn.Module) -> float:
        device, count = _device(network), self._supply.count
        network.eval()
        total = 0.0
        with seeded(self._seed, device):  # a loss that draws noise draws the same in every epoch
            for begin in range(0, count, self._at_once):
                chosen = np.arange(begin, min(begin + self._at_once, count))
                windows = torch.as_tensor(self._supply.cut(chosen), device=device)
                total += float(self._loss(windows, self._epoch)) * len(chosen) / count
        network.train()
        return total


def train(
    network: nn.Module,
    players: Sequence[Player],
    supply: Supply,
    *,
    schedule: Schedule,
    batch_size: int,
    seed: int,
    report: Callable[[Told], object],
    weight_decay: float = 0.0,
    validation: Validation | NoValidation | None = None,
    at_once: int | None = None,
) -> None:
    """Train with AdamW on batches in a new random order in every pass; `report` hears of every epoch.

    A batch is taken `at_once` windows at a time, with the gradients added up: less memory, the same step.

    >>> import numpy as np, torch
    >>> from cometad.network.loop import Player, Supply, train
    >>> from cometad.network.schedules import OneCycle
    >>> line, chance = torch.nn.Linear(1, 1), np.random.default_rng(0)
    >>> ramps = Supply(64, lambda chosen: chance.normal(size=(len(chosen), 9, 1)).astype(np.float32))
    >>> player = Player(list(line.parameters()), lambda windows, epoch: ((line(windows) - 3 * windows) ** 2).mean())
    >>> train(line, [player], ramps, schedule=OneCycle(200, 0.1), batch_size=8, seed=0, report=lambda told: None)
    >>> round(float(line.weight.detach()))
    3
    """
    validation = validation or NoValidation()
    device = _device(network)
    batches = math.ceil(supply.count / batch_size)
    steps = schedule.steps(batches)
    turns = [_Turns(network, player, weight_decay, batches) for player in players]
    diary = _Diary(steps, batches)
    network.train()
    for step, chosen in enumerate(_batches(supply.count, batch_size, steps, np.random.default_rng(seed))):
        windows = torch.as_tensor(supply.cut(chosen), device=device)
        rate = schedule.rate(step / steps)
        losses = [turn.take(windows, step, rate, at_once or len(windows)) for turn in turns]
        if losses[0] is not None:
            diary.losses.append(losses[0])
        if (step + 1) % batches == 0 or step + 1 == steps:
            diary.check(step + 1)
            report(diary.told(step + 1, validation.look(network)))
            if validation.enough:
                break
    validation.finish(network)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's random numbers from a seed; those of the rest of the program go on undisturbed.

    >>> import torch
    >>> from cometad.network.loop import seeded
    >>> def draw():
    ...     with seeded(1, torch.device("cpu")):
    ...         return float(torch.rand(()))
    >>> draw() == draw()
    True
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(seed))
        yield


class _Turns:
    """A player with its optimizer."""

    def __init__(self, network: nn.Module, player: Player, weight_decay: float, batches: int) -> None:
        self._network, self._player = network, player
        self._optimizer = torch.optim.AdamW(player.parameters, weight_decay=weight_decay, fused=True)
        self._every = 1 if player.turns is None else max(1, batches // player.turns)
        self._batches = batches
        self._shape: torch.Size | None = None  # of the first batch on a GPU
        self._recording: _Recording | None = None

    def take(self, windows: Tensor, step: int, rate: float, at_once: int) -> Tensor | None:
        """One step if it is the player's turn; the loss before it."""
        if (step + 1) % self._every:
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = rate * self._player.rate_share
        self._network.zero_grad()  # all of it: no player steps along another's gradient
        loss = self._replayed(windows) if at_once >= len(windows) else None
        if loss is None:
            loss = self._added_up(windows, step // self._batches + 1, at_once)
        self._optimizer.step()
        return loss

    def _added_up(self, windows: Tensor, epoch: int, at_once: int) -> Tensor:
        losses = []
        for part in torch.split(windows, at_once):
            loss = self._player.loss(part, epoch) * (len(part) / len(windows))
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _replayed(self, windows: Tensor) -> Tensor | None:
        """The loss with its gradients from a recording, made with the second batch of a shape; None without one."""
        if not (self._player.steady and windows.is_cuda) or windows.shape != (self._shape or windows.shape):
            return None
        if self._shape is None:
            self._shape = windows.shape
            return None
        if self._recording is None:
            self._recording = _Recording(self._player, windows)
        return self._recording.play(windows)


class _Recording:
    """A loss and its gradients as one command to a GPU: thousands of small ones would wait for their launches."""

    def __init__(self, player: Player, windows: Tensor) -> None:
        self._windows, self._parameters = windows.clone(), player.parameters
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = player.loss(self._windows, 1)
            self._loss.backward()  # type: ignore[no-untyped-call]
        self._gradients = [parameter.grad for parameter in player.parameters]

    def play(self, windows: Tensor) -> Tensor:
        """The loss on windows of the recorded shape; the parameters get its gradients."""
        self._windows.copy_(windows)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return self._loss.detach().clone()


class _Diary:
    """The losses of one epoch, and the clock."""

    def __init__(self, steps: int, batches: int) -> None:
        self._steps, self._batches = steps, batches
        self._begun = time.monotonic()
        self.losses: list[Tensor] = []

    def check(self, done: int) -> None:
        """Refuse to go on with a loss that is not a number."""
        if not torch.stack(self.losses).isfinite().all():
            raise ParameterError(
                f"Training diverged in epoch {self._epoch(done)}: the loss is not finite. Lower the learning rate."
            )

    def told(self, done: int, validation: float | None) -> Told:
        """What the epoch that just ended comes to."""
        left = (time.monotonic() - self._begun) * (self._steps - done) / done
        loss = float(torch.stack(self.losses).mean())
        self.losses = []
        return Told(self._epoch(done), self._epoch(self._steps), loss, validation, left)

    def _epoch(self, done: int) -> int:
        return math.ceil(done / self._batches)


def _batches(count: int, size: int, steps: int, chance: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """`steps` batches of window indices, in a new random order in every pass."""
    while True:
        order = chance.permutation(count)
        for begin in range(0, count, size):
            if steps == 0:
                return
            yield order[begin : begin + size]
            steps -= 1


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
