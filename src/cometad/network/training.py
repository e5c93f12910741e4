"""Training the network: initial codes, the objective, and the loop over batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from torch import Tensor, nn

from cometad.arrays import Floats32, Integers
from cometad.network.fast.moments import batch_losses, threads_for
from cometad.network.fast.torch_threads import torch_alone
from cometad.network.loop import Epoch, EpochLog, seeded, shuffled_batches
from cometad.network.network import Losses, Network
from cometad.network.schedules import Schedule

# How the initial codes are set: "normal" keeps the standard normal ones, "k-means" places them by k-means++.
INITIALIZATIONS = ("normal", "k-means")
# Codes are placed on a sample of the embeddings.
PLACING_WINDOWS = 512  # spread evenly over the training series
KMEANS_WINDOWS = 256  # drawn from these
KMEANS_EMBEDDINGS = 8192  # drawn from their embeddings; 8 per code if that is more


class CometEpochSummary(NamedTuple):
    epoch: int  # passes over the data so far
    epochs: int  # passes in total
    reconstruction: float
    codebook: float
    commitment: float
    codes_in_use: tuple[int, ...]  # per scale
    seconds_left: float

    def __str__(self) -> str:
        return (
            f"loss {self.reconstruction:.3f} + {self.codebook:.3f} + {self.commitment:.3f}, "
            f"codes {'/'.join(map(str, self.codes_in_use))}, {self.seconds_left:.0f} s left"
        )


@dataclass(frozen=True)
class Objective:
    codebook_weight: float
    commitment_weight: float
    weight_decay: float

    def total(self, parts: Losses) -> Tensor:
        """The loss to minimize. Paper: Eq. 11."""
        reconstruction, codebook, commitment = parts
        return reconstruction + self.codebook_weight * codebook + self.commitment_weight * commitment


@dataclass(frozen=True)
class Training:
    initialization: str  # of the codes
    refit: int  # rounds of k-means that move the codes at the end
    schedule: Schedule
    objective: Objective
    batch_size: int
    seed: int


def new_network(build: Callable[[], Network], seed: int, device: str) -> Network:
    """A network before training. Its weights depend on the seed alone, not on torch's random state."""
    with seeded(seed, torch.device("cpu")):  # weights are drawn on the CPU, whatever the device
        return build().to(device)


@torch_alone()
def fit_network(
    network: Network,
    scaled: Floats32,
    starts: Integers,
    length: int,
    training: Training,
    report: Callable[[CometEpochSummary], object],
) -> Network:
    """Train a network on the windows of a scaled series (time, variable) that begin at `starts`, and return it."""
    device = next(network.parameters()).device
    values, steps = torch.as_tensor(scaled, device=device), torch.arange(length, device=device)
    begins = torch.as_tensor(starts, device=device)

    def windows(chosen: Integers) -> Tensor:
        return values[begins[torch.as_tensor(chosen, device=device), None] + steps]  # (window, time, variable)

    spread = np.linspace(0, len(starts) - 1, min(len(starts), PLACING_WINDOWS)).astype(int)
    if training.initialization == "k-means":
        place_codes(network, windows(spread), rounds=0, seed=training.seed)
    train(network, windows, len(starts), training, report)
    if training.refit:
        place_codes(network, windows(spread), training.refit, training.seed)
    return network


@torch.no_grad()
def place_codes(network: Network, windows: Tensor, rounds: int, seed: int) -> None:
    """Move the codes among the embeddings of windows (window, time, variable): k-means++, then rounds of k-means."""
    rng = np.random.default_rng(seed)
    drawn = windows[torch.as_tensor(np.sort(rng.permutation(len(windows))[:KMEANS_WINDOWS]))]
    for scale in network:
        vectors = scale.codebook.vectors
        embeddings = scale.embed(drawn.to(vectors.device)).flatten(0, 2)  # (embedding, dim)
        # With replacement: a short series may have fewer embeddings than codes.
        limit = max(KMEANS_EMBEDDINGS, 8 * len(vectors))
        chosen = rng.integers(len(embeddings), size=max(len(vectors), min(len(embeddings), limit)))
        sample = embeddings[torch.as_tensor(chosen, device=vectors.device)].double().cpu()
        seeds, _ = kmeans_plusplus(sample.numpy(), len(vectors), random_state=int(seed), n_local_trials=2)
        vectors.copy_(_lloyd(sample, torch.as_tensor(seeds), rounds))


def _lloyd(sample: Tensor, centers: Tensor, rounds: int) -> Tensor:
    """Centers (code, dim) after rounds of k-means on a sample (embedding, dim); empty clusters keep their center.

    Not scikit-learn's KMeans: its threads sum in arbitrary order, but equal seeds must give equal bytes.
    """
    for _ in range(rounds):
        nearest = ((centers**2).sum(dim=1) - 2 * sample @ centers.T).argmin(dim=1)  # (embedding,)
        counts = torch.bincount(nearest, minlength=len(centers))[:, None]
        sums = torch.zeros_like(centers).index_add_(0, nearest, sample)
        centers = torch.where(counts > 0, sums / counts.clamp(min=1), centers)
    return centers


def train(
    network: Network,
    windows: Callable[[NDArray[np.int64]], Tensor],
    count: int,
    training: Training,
    report: Callable[[CometEpochSummary], object],
) -> None:
    """Train with AdamW on `count` windows, which `windows` returns by index; calls `report` after each epoch."""
    totals, parameters = _EpochTotals(network), list(network.parameters())

    def loss(batch: Tensor) -> Tensor:
        parts, counts = batch_losses(network, batch)
        totals.add(parts, counts)
        return training.objective.total(parts)

    batches = math.ceil(count / training.batch_size)
    steps, rng = training.schedule.steps(batches), np.random.default_rng(training.seed)
    with threads_for(network):
        optimizer = torch.optim.AdamW(parameters, weight_decay=training.objective.weight_decay, fused=True)
        backward, log = _Backward(loss, parameters), EpochLog(steps, batches)
        network.train()
        for step, chosen in enumerate(shuffled_batches(count, training.batch_size, steps, rng)):
            batch = windows(chosen)  # (window, time, variable)
            for group in optimizer.param_groups:
                group["lr"] = training.schedule.rate(step / steps)
            network.zero_grad()
            log.losses.append(backward(batch))
            optimizer.step()
            if (step + 1) % batches == 0 or step + 1 == steps:
                report(totals.summary(log.end_epoch(step + 1)))


class _Backward:
    """The loss of a batch, with the gradients of parameters set; on a GPU, replayed from the second batch on.

    The loss must be the same in every epoch and never wait for a result.
    """

    def __init__(self, loss: Callable[[Tensor], Tensor], parameters: Sequence[nn.Parameter]) -> None:
        self._loss, self._parameters = loss, parameters
        self._shape: torch.Size | None = None  # of the first batch on a GPU
        self._captured: _CapturedLoss | None = None

    def __call__(self, batch: Tensor) -> Tensor:
        if batch.is_cuda and batch.shape == self._shape:
            if self._captured is None:
                self._captured = _CapturedLoss(self._loss, self._parameters, batch)
            return self._captured.replay(batch)
        if batch.is_cuda and self._shape is None:
            self._shape = batch.shape
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class _CapturedLoss:
    """A loss and its gradients as one CUDA graph: launching many small kernels takes longer than running them."""

    def __init__(self, loss: Callable[[Tensor], Tensor], parameters: Sequence[nn.Parameter], batch: Tensor) -> None:
        self._batch, self._parameters = batch.clone(), parameters
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = loss(self._batch)
            self._loss.backward()  # type: ignore[no-untyped-call]
        self._gradients = [parameter.grad for parameter in parameters]

    def replay(self, batch: Tensor) -> Tensor:
        """The loss of a batch of the captured shape; sets the gradients of the parameters."""
        self._batch.copy_(batch)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return self._loss.detach().clone()


class _EpochTotals:
    def __init__(self, network: Network) -> None:
        codebooks = [scale.codebook.vectors.detach() for scale in network]
        self._parts = codebooks[0].new_zeros(4, dtype=torch.float64)  # the three losses and the number of batches
        self._counts = [codes.new_zeros(len(codes), dtype=torch.float64) for codes in codebooks]

    def add(self, parts: Losses, counts: Sequence[Tensor]) -> None:
        """Add the losses of one batch, and the number of patches with each code (code,), for each scale.

        In place and without reading a value back, so that a GPU can replay it.
        """
        for total, more in zip((self._parts, *self._counts), (_loss_row(parts), *counts), strict=True):
            total += more

    def summary(self, epoch: Epoch) -> CometEpochSummary:
        reconstruction, codebook, commitment = (self._parts[:3] / self._parts[3]).tolist()
        in_use = tuple(int((counts > 0).sum()) for counts in self._counts)
        self._clear()
        return CometEpochSummary(
            epoch.number, epoch.of, reconstruction, codebook, commitment, in_use, epoch.seconds_left
        )

    def _clear(self) -> None:
        for total in (self._parts, *self._counts):
            total.zero_()


def _loss_row(parts: Losses) -> Tensor:
    return torch.stack([*parts, torch.ones_like(parts.codebook)]).detach()
