"""What training loops share: torch's random state, batches that are reshuffled in every epoch, the log of an epoch."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cometad.errors import ParameterError
from cometad.network.fast.torch_threads import torch_alone


class Epoch(NamedTuple):
    number: int  # passes over the data so far
    of: int  # passes in total
    loss: float  # mean over its batches
    seconds_left: float


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch inside the `with` block only; the random state outside it is unaffected."""
    # Threads share torch's random state: of 400 networks that 4 threads built from one seed, 105 had other weights.
    with torch_alone(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(seed))
        yield


def shuffled_batches(count: int, size: int, steps: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """`steps` batches of window indices, reshuffled in every epoch."""
    while True:
        order = rng.permutation(count)
        for begin in range(0, count, size):
            if steps == 0:
                return
            yield order[begin : begin + size]
            steps -= 1


class EpochLog:
    def __init__(self, steps: int, batches: int) -> None:
        self._steps, self._batches = steps, batches
        self._started = time.monotonic()
        self.losses: list[Tensor] = []

    def end_epoch(self, done: int) -> Epoch:
        """The epoch that ends after `done` steps, if its losses are finite; the next one starts."""
        losses, self.losses = torch.stack(self.losses), []
        if not losses.isfinite().all():
            raise ParameterError(
                f"Training diverged in epoch {self._epoch(done)}: the loss is not finite. Lower the learning rate."
            )
        left = (time.monotonic() - self._started) * (self._steps - done) / done
        return Epoch(self._epoch(done), self._epoch(self._steps), float(losses.mean()), left)

    def _epoch(self, done: int) -> int:
        return math.ceil(done / self._batches)
