"""Teaching a network what is normal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from cometad.arrays import Floats32, Integers
from cometad.errors import unknown
from cometad.network import loop as training
from cometad.network.fast.moments import batch_losses, small_products
from cometad.network.loop import Player, Supply, Told
from cometad.network.network import Losses, Network
from cometad.network.schedules import Schedule

PLACING_WINDOWS = 512  # codes are placed by windows spread evenly over the training series,
KMEANS_WINDOWS = 256  # at most this many windows, and
KMEANS_EMBEDDINGS = 8192  # this many of their embeddings, choose the first codes


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


def initialize(network: Network, kind: str, windows: Tensor, seed: int) -> None:
    """Choose the first codes: "normal" leaves the standard normal ones, "k-means" takes spread-out embeddings."""
    if kind not in INITIALIZATIONS:
        raise unknown("initialization", kind, INITIALIZATIONS)
    INITIALIZATIONS[kind](network, windows, seed)


def _normal(network: Network, windows: Tensor, seed: int) -> None:
    """Codebooks are standard normal from the start."""


def _spread(network: Network, windows: Tensor, seed: int) -> None:
    place_codes(network, windows, rounds=0, seed=seed)


INITIALIZATIONS = {"normal": _normal, "k-means": _spread}


@torch.no_grad()
def place_codes(network: Network, windows: Tensor, rounds: int, seed: int) -> None:
    """Move every code to where embeddings of the windows are: k-means++ seeds, then rounds of k-means."""
    chance = np.random.default_rng(seed)
    few = windows[torch.as_tensor(np.sort(chance.permutation(len(windows))[:KMEANS_WINDOWS]))]
    for scale in network:
        vectors = scale.codebook.vectors
        embeddings = scale.embed(few.to(vectors.device)).flatten(0, 2)
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


def new_network(
    variables: int,
    patch_sizes: Sequence[int],
    patch_strides: Sequence[int],
    dim: int,
    core_dim: int,
    codebook_size: int,
    *,
    seed: int,
    device: str,
) -> Network:
    """A network before training; the seed decides its weights, whatever else the process draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return Network(variables, patch_sizes, patch_strides, dim, core_dim, codebook_size).to(device)


def fit_network(
    network: Network,
    scaled: Floats32,
    starts: Integers,
    length: int,
    *,
    initialization: str,
    refit: int,
    schedule: Schedule,
    objective: Objective,
    batch_size: int,
    seed: int,
    report: Callable[[Epoch], object],
) -> Network:
    """Train a network on the windows of a scaled series (time, variable) that begin at `starts`, and return it."""
    device = next(network.parameters()).device
    values, steps = torch.as_tensor(scaled, device=device), torch.arange(length, device=device)
    begins = torch.as_tensor(starts, device=device)

    def windows(chosen: Integers) -> Tensor:
        return values[begins[torch.as_tensor(chosen, device=device), None] + steps]

    few = np.linspace(0, len(starts) - 1, min(len(starts), PLACING_WINDOWS)).astype(int)
    initialize(network, initialization, windows(few), seed)
    train(
        network,
        windows,
        len(starts),
        schedule=schedule,
        objective=objective,
        batch_size=batch_size,
        seed=seed,
        report=report,
    )
    if refit:
        place_codes(network, windows(few), refit, seed)
    return network


def train(
    network: Network,
    windows: Callable[[NDArray[np.int64]], Tensor],
    count: int,
    *,
    schedule: Schedule,
    objective: Objective,
    batch_size: int,
    seed: int,
    report: Callable[[Epoch], object],
) -> None:
    """Train on `count` windows, which `windows` gives by index, with AdamW; `report` hears of every epoch."""
    tally = _Tally(network)

    def loss(batch: Tensor, epoch: int) -> Tensor:
        parts, taken = batch_losses(network, batch)
        tally.add(parts, taken)
        return objective.total(parts)

    with small_products(network):
        training.train(
            network,
            [Player(list(network.parameters()), loss, steady=True)],
            Supply(count, windows),
            schedule=schedule,
            batch_size=batch_size,
            seed=seed,
            report=lambda told: report(tally.epoch(told)),
            weight_decay=objective.weight_decay,
        )


class _Tally:
    """What one epoch's batches came to, beyond their loss."""

    def __init__(self, network: Network) -> None:
        codebooks = [scale.codebook.vectors.detach() for scale in network]
        self._parts = codebooks[0].new_zeros(4, dtype=torch.float64)  # the three losses, and how many batches
        self._taken = [codes.new_zeros(len(codes), dtype=torch.float64) for codes in codebooks]

    def _clear(self) -> None:
        for total in (self._parts, *self._taken):
            total.zero_()

    def add(self, parts: Losses, taken: Sequence[Tensor]) -> None:
        """Count one batch: its losses, and how many patches took each code of each scale.

        In place and without a look at the numbers, so that a GPU can replay it.
        """
        for total, more in zip((self._parts, *self._taken), (_row(parts), *taken), strict=True):
            total += more

    def epoch(self, told: Told) -> Epoch:
        """What the epoch that just ended comes to."""
        reconstruction, codebook, commitment = (self._parts[:3] / self._parts[3]).tolist()
        in_use = tuple(int((taken > 0).sum()) for taken in self._taken)
        self._clear()
        return Epoch(told.epoch, told.epochs, reconstruction, codebook, commitment, in_use, told.seconds_left)


def _row(parts: Losses) -> Tensor:
    return torch.stack([*parts, torch.ones_like(parts.codebook)]).detach()
