"""Speed of the fast kernels relative to plain torch, measured in one run.

    python bench/scripts/speed.py [--threads N] [--fit PSM WADI]

Sizes are those of the paper on PSM: 25 variables, embeddings of 256, 128 codes, three scales, windows of 100 readings.
The plain form is the paper in torch: embeddings, the nearest code, its distance, a neighbor search in the memory for
every embedding, and means over the patches that cover each time step. `--fit` trains on random series of these sizes.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import torch

from cometad import Comet, NetworkComet
from cometad.data.network_windows import training_rows, window_starts
from cometad.network import NoAdaptation
from cometad.network.fast.moments import batch_losses
from cometad.network.network import Network, losses
from cometad.network.patches import coverage
from cometad.network.score import Scorer

VARIABLES, DIM, CODES, WINDOW = 25, 256, 128, 100
NEIGHBORS = 10
ROWS = {"PSM": (116_805, 25), "WADI": (1_088_595, 123)}  # the paper's training parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fit", nargs="*", choices=list(ROWS), default=[])
    arguments = parser.parse_args()
    os.environ["COMETAD_THREADS"] = str(arguments.threads)
    torch.set_num_threads(arguments.threads)
    facts(arguments.threads)
    compare()
    stream()
    for name in arguments.fit:
        fit(name)


def facts(threads: int) -> None:
    """Print the machine and the versions."""
    cpu = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    print(f"{models[0] if models else platform.processor()} ({llvmlite.binding.get_host_cpu_name()}),", end=" ")
    print(f"{os.cpu_count()} cores, {threads} thread(s), Python {platform.python_version()},", end=" ")
    print(f"torch {torch.__version__}, numba {numba.__version__}\n")


def compare() -> None:
    """Print the speed of the plain form and of the fast one."""
    torch.manual_seed(0)
    network = Network(VARIABLES, (2, 4, 6), (1, 2, 3), DIM, 64, CODES)
    values = np.random.default_rng(0).normal(size=(256, WINDOW, VARIABLES)).astype(np.float32)
    few, batch = torch.as_tensor(values[:32]), torch.as_tensor(values[:128])
    scorer = Scorer(network, [np.ones(CODES, bool)] * 3, NEIGHBORS, "local", "cpu")
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    rows = values[..., 0].size
    print("| what | plain, readings/s | fast, readings/s | speedup |\n|---|---|---|---|")
    (plain, fast), (plain_steps, fast_steps) = (
        best(
            lambda: [scale.quantized.error(scale.embeddings) for scale in plain_codes(network, few)],
            lambda: [scorer.whole(values, k) for k in range(3)],
        ),
        best(lambda: plain_scores(network, few), lambda: scorer.windows(values)),
    )
    row("nearest code and distance of every patch", plain * rows / few[..., 0].numel(), fast, rows)
    row("both raw scores of every time step", plain_steps * rows / few[..., 0].numel(), fast_steps, rows)
    plain, fast = best(
        lambda: step(lambda: losses(network(batch)).total(1.0, 1.0), optimizer),
        lambda: step(lambda: batch_losses(network, batch)[0].total(1.0, 1.0), optimizer),
        repeats=(1, 10),
    )
    row("one training step of 128 windows", plain, fast, batch[..., 0].numel())


def plain_codes(network: Network, windows: torch.Tensor) -> list:  # type: ignore[type-arg]
    with torch.no_grad():
        return network(windows)


@torch.no_grad()
def plain_scores(network: Network, windows: torch.Tensor) -> torch.Tensor:
    """Both raw scores of every time step as in the paper, without table or folding. Paper: Eq. 13 to 17."""
    length, scores = windows.shape[1], []
    for scale, encoded in zip(network, network(windows), strict=True):
        bank = scale.codebook.vectors
        density = torch.cdist(bank, bank).square().topk(NEIGHBORS, largest=False).values.median(dim=1).values
        vectors = encoded.quantized.vectors
        nearest = torch.cdist(vectors.flatten(0, 2), bank).square().topk(NEIGHBORS, dim=1, largest=False)
        own = nearest.values.median(dim=1, keepdim=True).values
        memory = (nearest.values / ((own + density[nearest.indices]) / 2 + 1e-8)).mean(dim=1)
        both = (memory.reshape(vectors.shape[:3]), encoded.quantized.error(encoded.embeddings))
        cover = coverage(length, scale.size, scale.stride)
        over = [slice(first, last + 1) for first, last in zip(cover.first, cover.last, strict=True)]
        scores.append(torch.stack([torch.stack([score[:, at].mean(dim=1) for at in over], dim=1) for score in both]))
    return torch.stack(scores).mean(dim=0)  # (score, window, time, variable)


def step(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def stream() -> None:
    """Print the speed of a stream: one reading at a time, all at once, and with adaptation every 128 windows."""
    series = np.random.default_rng(1).normal(size=(20_000, VARIABLES))
    detector = NetworkComet(adaptation=NoAdaptation(), codebook_size=CODES).fit(series[:4_000])
    live = detector.stream()
    times = []
    for reading in series[:12_000]:
        begun = time.perf_counter()
        live.update(reading)
        times.append(time.perf_counter() - begun)
    middle, high = 1e6 * np.quantile(times[1_000:], [0.5, 0.99])
    print(f"\nA stream (the default's patches, {CODES} codes): {1 / np.mean(times[1_000:]):,.0f} readings/s;", end=" ")
    print(f"one reading takes {middle:.0f} µs (median), and 99 % take less than {high:.0f} µs.")
    many, batch = best(lambda: detector.stream().update_many(series), lambda: detector.decision_function(series))
    speeds = [len(series) / seconds for seconds in (many, batch)]
    print(f"`update_many` reaches {speeds[0]:,.0f} readings/s and `decision_function` {speeds[1]:,.0f},", end=" ")
    print(f"so streaming takes {many / batch:.2f} times as long.")
    paper = Comet.paper("PSM").fit(series[:6_000])
    windows = series[: 128 * WINDOW]
    fixed, adapting = best(
        lambda: paper.stream(adaptation=NoAdaptation()).update_many(windows),
        lambda: paper.stream().update_many(windows),
    )
    print(f"A batch of 128 windows takes {1e3 * fixed:.0f} ms to score,", end=" ")
    print(f"or {1e3 * adapting:.0f} ms to score and learn from: {adapting / fixed:.1f} times.")


def fit(name: str) -> None:
    """Print the time of training on random readings, as many as in a dataset."""
    rows, variables = ROWS[name]
    series = np.random.default_rng(2).normal(size=(rows, variables)).astype(np.float32)
    detector = Comet.paper(name)
    starts = window_starts(training_rows(rows, detector.validation_share), detector.window, detector.window_stride)
    begun = time.perf_counter()
    detector._train(series, starts)
    trained = time.perf_counter() - begun
    print(f"\n{name} size, {rows:,} x {variables}: trained for {detector.schedule} in {trained:.1f} s.", flush=True)


def best(*works: Callable[[], object], repeats: tuple[int, ...] = (5, 20)) -> list[float]:
    """The shortest wall time of each function in seconds, after a warm-up call; they run in turns."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for turn in range(max(repeats)):
        for k, work in enumerate(works):
            if turn < repeats[min(k, len(repeats) - 1)]:
                begun = time.perf_counter()
                work()
                times[k].append(time.perf_counter() - begun)
    return [min(taken) for taken in times]


def row(what: str, plain: float, fast: float, count: int) -> None:
    print(f"| {what} | {count / plain:,.0f} | {count / fast:,.0f} | {plain / fast:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
