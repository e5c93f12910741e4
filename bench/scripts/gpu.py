"""Speed of the folded form relative to plain torch on a GPU, measured in one run.

    python bench/scripts/gpu.py [--device cuda]

Sizes are those of the paper on PSM: 25 variables, embeddings of 256, 128 codes, three scales, windows of 100 readings.
If the package is not installed, set PYTHONPATH=src.
"""

import argparse
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from cometad import Comet, NetworkComet
from cometad.network import Epochs, NoAdaptation
from cometad.network.fast.moments import batch_losses
from cometad.network.network import Network, losses
from cometad.network.score import Scorer
from speed import CODES, DIM, VARIABLES, WINDOW, step
from speed import ROWS as SIZES

ROWS, _ = SIZES["PSM"]


def best(work: Callable[[], object], repeats: int = 10) -> float:
    """The shortest wall time in seconds, after a warm-up call."""
    work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times)


def plain_scores(network: Network, windows: torch.Tensor) -> None:
    with torch.no_grad():
        for scale in network(windows):
            scale.quantized.error(scale.embeddings).cpu()


def row(what: str, plain: float, fast: float, count: int) -> None:
    print(f"| {what} | {count / plain:,.0f} | {count / fast:,.0f} | {plain / fast:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    torch.manual_seed(0)
    network = Network(VARIABLES, (2, 4, 6), (1, 2, 3), DIM, 64, CODES).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    values = np.random.default_rng(0).normal(size=(256, WINDOW, VARIABLES)).astype(np.float32)
    scorer = Scorer(network, [np.ones(CODES, bool)] * 3, 10, "local", device)
    few = torch.as_tensor(values[:128], device=device)

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("| what | plain, readings/s | fast, readings/s | speedup |\n|---|---|---|---|")
    plain = best(lambda: plain_scores(network, few)) * 2
    row("score patches", plain, best(lambda: [scorer.whole(values, k) for k in range(3)]), values[..., 0].size)
    row(
        "one training step of 128 windows",
        best(lambda: step(lambda: losses(network(few)).total(1.0, 1.0), optimizer)),
        best(lambda: step(lambda: batch_losses(network, few)[0].total(1.0, 1.0), optimizer)),
        few[..., 0].numel(),
    )
    series = np.random.default_rng(1).normal(size=(ROWS, VARIABLES)).astype(np.float32)
    torch.cuda.reset_peak_memory_stats()
    detector = Comet.paper("PSM", device=device, adaptation=NoAdaptation())
    detector.set_params(schedule=Epochs(1)).fit(series[:20_000])  # warm up
    detector.set_params(schedule=Epochs(20))
    trained = _train_alone(detector, series)
    print(f"\n{ROWS:,} x {VARIABLES}, 20 epochs of batches of 128 windows: trained in {trained:.2f} s.")
    begun = time.perf_counter()
    detector.fit(series)
    print(f"The whole fit, with memory, calibration and threshold, takes {time.perf_counter() - begun:.2f} s", end=" ")
    print(f"and at most {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB.")


def _train_alone(detector: NetworkComet, series: np.ndarray) -> float:
    from cometad.data.network_windows import training_rows, window_starts

    rows = training_rows(len(series), detector.validation_share)
    starts = window_starts(rows, detector.window, detector.window_stride)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    detector._train(series, starts)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
