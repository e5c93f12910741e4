"""Teaching a network what is normal."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from cometad.errors import ParameterError, unknown
from cometad.model.moments import batch_losses
from cometad.model.network import Losses, Network

KMEANS_WINDOWS = 256  # at most this many windows, and
KMEANS_EMBEDDINGS = 8192  # this many of their embeddings, choose the first codes


class Schedule(Protocol):
    """How long to train, and how fast at each step."""

    def steps(self, batches: int) -> int:
        """The number of steps, given the batches in one pass over the data."""

    def rate(self, done: float) -> float:
        """The learning rate when a share `done` of all steps is behind."""


@dataclass(frozen=True)
class Epochs:
    """A number of passes over the data at one learning rate: the paper's schedule.

    >>> from cometad.model.train import Epochs
    >>> Epochs(20, learning_rate=1e-4).steps(batches=9)
    180
    """

    epochs: int = 20
    learning_rate: float = 1e-4

    def steps(self, batches: int) -> int:
        """The number of steps, given the batches in one pass over the data."""
        return self.epochs * batches

    def rate(self, done: float) -> float:
        """The same at every step."""
        return self.learning_rate


@dataclass(frozen=True)
class OneCycle:
    """A number of steps whatever the length of the series, with a learning rate that rises, then falls to nothing.

    >>> from cometad.model.train import OneCycle
    >>> schedule = OneCycle(1200, learning_rate=3e-3)
    >>> schedule.steps(batches=9), schedule.rate(0.3)
    (1200, 0.003)
    """

    total: int = 1200
    learning_rate: float = 3e-3

    def steps(self, batches: int) -> int:
        """The same number whatever the length of the series."""
        return self.total

    def rate(self, done: float) -> float:
        """Half a cosine up over the first 30 % of the steps, half a cosine down over the rest."""
        low, rise = self.learning_rate / 25, 0.3
        if done < rise:
            return low + (self.learning_rate - low) * (1 - math.cos(math.pi * done / rise)) / 2
        return self.learning_rate * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


class Epoch(NamedTuple):
    """What training tells after each pass over the data."""

    epoch: int  # passes done
    epochs: int  # passes in all
    reconstruction: float
    codebook: float
    commitment: float
    codes_in_use: tuple[int, ...]  # per scale
    seconds_left: float

    def __str__(self) -> str:
        """One line for the eye."""
        return (
            f"loss {self.reconstruction:.3f} + {self.codebook:.3f} + {self.commitment:.3f}, "
            f"codes {'/'.join(map(str, self.codes_in_use))}, {self.seconds_left:.0f} s left"
        )


@dataclass(frozen=True)
class Objective:
    """The weights of the losses and of the parameters' decay."""

    codebook_weight: float
    commitment_weight: float
    weight_decay: float

    def total(self, parts: Losses) -> Tensor:
        """The loss to lower. Paper: Eq. 11."""
        return parts.total(self.codebook_weight, self.commitment_weight)


def initialize(network: Network, kind: str, windows: NDArray[np.float32], seed: int) -> None:
    """Choose the first codes: "normal" leaves the standard normal ones, "k-means" takes spread-out embeddings."""
    if kind not in INITIALIZATIONS:
        raise unknown("initialization", kind, INITIALIZATIONS)
    INITIALIZATIONS[kind](network, windows, seed)


def _normal(network: Network, windows: NDArray[np.float32], seed: int) -> None:
    """Codebooks are standard normal from the start."""


def _spread(network: Network, windows: NDArray[np.float32], seed: int) -> None:
    place_codes(network, windows, rounds=0, seed=seed)


INITIALIZATIONS = {"normal": _normal, "k-means": _spread}


@torch.no_grad()
def place_codes(network: Network, windows: NDArray[np.float32], rounds: int, seed: int) -> None:
    """Move every code to where embeddings of the windows are: k-means++ seeds, then rounds of k-means."""
    chance = np.random.default_rng(seed)
    few = windows[np.sort(chance.permutation(len(windows))[:KMEANS_WINDOWS])]
    for scale in network:
        vectors = scale.codebook.vectors
        embeddings = scale.embed(torch.as_tensor(few, device=vectors.device)).flatten(0, 2)
        # With replacement: a short series may hold fewer embeddings than codes.
        most = max(KMEANS_EMBEDDINGS, 8 * len(vectors))
        chosen = chance.integers(len(embeddings), size=max(len(vectors), min(len(embeddings), most)))
        sample = embeddings[torch.as_tensor(chosen, device=vectors.device)].double().cpu()
        seeds, _ = kmeans_plusplus(sample.numpy(), len(vectors), random_state=int(seed), n_local_trials=2)
        vectors.copy_(_lloyd(sample, torch.as_tensor(seeds), rounds))


def _lloyd(sample: Tensor, centers: Tensor, rounds: int) -> Tensor:
    """Centers (code, dim) after rounds of k-means on a sample (embedding, dim); one that nothing is near stays.

    Not scikit-learn's KMeans: its threads add up in any order, and equal seeds must give equal bytes.
    """
    for _ in range(rounds):
        nearest = ((centers**2).sum(dim=1) - 2 * sample @ centers.T).argmin(dim=1)
        counts = torch.bincount(nearest, minlength=len(centers))[:, None]
        sums = torch.zeros_like(centers).index_add_(0, nearest, sample)
        centers = torch.where(counts > 0, sums / counts.clamp(min=1), centers)
    return centers


def train(
    network: Network,
    windows: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    count: int,
    *,
    schedule: Schedule,
    objective: Objective,
    batch_size: int,
    seed: int,
    report: Callable[[Epoch], object],
) -> None:
    """Train on `count` windows, which `windows` gives by index, with AdamW; `report` hears of every epoch."""
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=objective.weight_decay)
    device = next(network.parameters()).device
    chance = np.random.default_rng(seed)
    batches = math.ceil(count / batch_size)
    steps = schedule.steps(batches)
    tally = _Tally(network, steps, batches)
    for step, chosen in enumerate(_batches(count, batch_size, steps, chance)):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step / steps)
        parts, looked = batch_losses(network, torch.as_tensor(windows(chosen), device=device))
        optimizer.zero_grad()
        objective.total(parts).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        tally.add(parts, [batch.codes for batch in looked])
        if (step + 1) % batches == 0 or step + 1 == steps:
            report(tally.epoch(step + 1))


def _batches(count: int, size: int, steps: int, chance: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """`steps` batches of window indices, in a new random order in every pass."""
    while True:
        order = chance.permutation(count)
        for begin in range(0, count, size):
            if steps == 0:
                return
            yield order[begin : begin + size]
            steps -= 1


class _Tally:
    """The running means of one epoch, and the clock."""

    def __init__(self, network: Network, steps: int, batches: int) -> None:
        self._network, self._steps, self._batches = network, steps, batches
        self._begun = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._parts: list[list[float]] = []
        self._used = [torch.zeros(len(scale.codebook.vectors), dtype=torch.bool) for scale in self._network]

    def add(self, parts: Losses, codes: list[Tensor]) -> None:
        """Count one batch."""
        self._parts.append([float(part.detach()) for part in parts])
        for used, indices in zip(self._used, codes, strict=True):
            used[indices.flatten().long().cpu()] = True

    def epoch(self, done: int) -> Epoch:
        """What the epoch that just ended comes to."""
        means = np.mean(self._parts, axis=0)
        number, last = math.ceil(done / self._batches), math.ceil(self._steps / self._batches)
        if not np.isfinite(means).all():
            raise ParameterError(
                f"Training diverged in epoch {number}: the loss is not finite. Lower the learning rate."
            )
        left = (time.monotonic() - self._begun) * (self._steps - done) / done
        reconstruction, codebook, commitment = (float(mean) for mean in means)
        in_use = tuple(int(used.sum()) for used in self._used)
        told = Epoch(number, last, reconstruction, codebook, commitment, in_use, left)
        self._clear()
        return told
