"""Plain torch against the folded, fused form, as ratios from one run.

    python benchmarks/speed.py [--threads N] [--rows N]

Sizes are the paper's on PSM: 25 variables, embeddings of 256, 128 codes, three scales, windows of 100 readings.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from cometad import Comet, Epochs, NoAdaptation
from cometad.model.moments import batch_losses
from cometad.model.network import Network, losses
from cometad.model.score import Scorer

VARIABLES, DIM, CODES, WINDOW = 25, 256, 128, 100


def best(work: Callable[[], object], repeats: int = 10) -> float:
    """The least of some wall times in seconds, after one call to warm up."""
    work()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def plain_scores(network: Network, windows: torch.Tensor) -> None:
    with torch.no_grad():
        for scale in network(windows):
            scale.quantized.error(scale.embeddings)


def step(loss: Callable[[], torch.Tensor], network: Network) -> None:
    network.zero_grad()
    loss().backward()


def row(what: str, plain: float, fast: float, count: int) -> None:
    print(f"| {what} | {count / plain:,.0f} | {count / fast:,.0f} | {plain / fast:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=25_600)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    network = Network(VARIABLES, (2, 4, 6), (1, 2, 3), DIM, 64, CODES)
    values = np.random.default_rng(0).normal(size=(arguments.rows // WINDOW, WINDOW, VARIABLES)).astype(np.float32)
    few = values[:32]
    scorer = Scorer(network, [np.ones(CODES, bool)] * 3, 10, "local", "cpu")

    print(f"{platform.machine()}, {os.cpu_count()} cores, {arguments.threads} thread(s), torch {torch.__version__}\n")
    print("| what | plain, readings/s | fast, readings/s | times |\n|---|---|---|---|")
    plain = best(lambda: plain_scores(network, torch.as_tensor(few))) * len(values) / len(few)
    row("score patches", plain, best(lambda: [scorer.whole(values, k) for k in range(3)]), values[..., 0].size)
    row("score time steps", plain, best(lambda: scorer.windows(values)), values[..., 0].size)
    batch = torch.as_tensor(values[:128])
    row(
        "one training step",
        best(lambda: step(lambda: losses(network(batch)).total(1.0, 1.0), network), repeats=1),
        best(lambda: step(lambda: batch_losses(network, batch)[0].total(1.0, 1.0), network)),
        batch[..., 0].numel(),
    )
    stream_latency()


def stream_latency() -> None:
    """How long one reading of a stream takes, without adaptation."""
    series = np.random.default_rng(1).normal(size=(5_000, VARIABLES))
    detector = Comet(adaptation=NoAdaptation(), schedule=Epochs(1), codebook_size=CODES, refit=0).fit(series[:1_000])
    stream = detector.stream()
    times = []
    for reading in series:
        begun = time.perf_counter()
        stream.update(reading)
        times.append(time.perf_counter() - begun)
    middle, high = 1e6 * np.quantile(times[500:], [0.5, 0.99])
    print(f"\nOne reading of a stream (default patches): median {middle:.0f} µs, 99 % below {high:.0f} µs.")


if __name__ == "__main__":
    main()
