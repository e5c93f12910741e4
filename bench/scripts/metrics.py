"""Time and memory of the metrics, compared with a plain implementation and with public packages.

    python bench/scripts/metrics.py                   the full table (several minutes: the references are slow)
    python bench/scripts/metrics.py --quick           cometad only
    python bench/scripts/metrics.py --public PYTHON   run the public packages with another interpreter

Each row runs in a fresh process on one thread. "Cold" is the first call, which compiles or loads cached code; "warm" is
the best of three more calls. Both are CPU seconds. Memory is the peak increase during the calls.
The public packages (vus, aeon, TSB-AD) often require another version of numpy: install them in a separate environment
and pass its interpreter. Packages that cannot be imported are marked as skipped.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# case -> points, segments, share of anomalous points
CASES = {
    "10k": (10_000, 30, 0.1),
    "100k": (100_000, 30, 0.1),
    "450k": (450_000, 30, 0.1),
    "450k, 10k one-point anomalies": (450_000, 10_000, 10_000 / 450_000),
    "10M": (10_000_000, 30, 0.1),
}


def simulated(points: int, segments: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels with segments of equal length at random positions, and scores one standard deviation higher inside."""
    rng = np.random.default_rng(0)
    labels = np.zeros(points, dtype=bool)
    length, room = round(points * share / segments), points // segments
    for start in range(0, room * segments, room):
        offset = start + rng.integers(room - length)
        labels[offset : offset + length] = True
    return labels, rng.normal(size=points) + labels


def plain_classic_vus(labels: np.ndarray, scores: np.ndarray, max_window: int) -> tuple[float, float]:
    """VUS as the classic references compute it: a loop over windows, and within it a loop over 250 thresholds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], labels.astype(int), [0]])))
    cuts = np.sort(scores)[::-1][np.linspace(0, len(scores) - 1, 250).astype(int)]
    volumes = np.zeros(2)
    for window in range(max_window + 1):
        extended = labels.astype(float)
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            before = np.arange(max(start - window // 2, 0), start)
            after = np.arange(stop, min(stop - 1 + window // 2, len(labels)))
            extended[before] += np.sqrt(1 - (start - before) / max(window, 1))
            extended[after] += np.sqrt(1 - (after - stop + 1) / max(window, 1))
        extended = np.minimum(extended, 1)
        runs = np.flatnonzero(np.diff(np.concatenate([[0], (extended > 0).astype(int), [0]])))
        positives = (labels.sum() + extended.sum()) / 2
        rates, precisions = [(0.0, 0.0)], [1.0]
        for cut in cuts:
            flags = scores >= cut
            product = extended * flags
            found, detected = product.sum(), flags.sum()
            hit = sum(product[a:b].sum() > 0 for a, b in zip(runs[::2], runs[1::2], strict=True))
            recall = min(found / positives, 1) * hit / (len(runs) // 2)
            rates.append(((detected - found) / (len(labels) - positives), recall))
            precisions.append(found / detected)
        false_rates, recalls = np.array([*rates, (1.0, 1.0)]).T
        volumes += np.trapezoid(recalls, false_rates), np.trapezoid(precisions, recalls[:-1])
    roc, pr = volumes / (max_window + 1)
    return float(roc), float(pr)


def with_ours(name: str, labels: np.ndarray, scores: np.ndarray, window: int) -> Callable[[], Any]:
    from cometad import metrics
    from cometad.metrics.protocol import Protocol

    metrics.PROTOCOLS["benchmark"] = Protocol("classic", window, window, ranks=None)
    calls: dict[str, Callable[[], Any]] = {
        "all nine": lambda: metrics.evaluate(labels, scores, "benchmark"),
        "point-wise (3)": lambda: [
            metric(labels, scores) for metric in (metrics.auc_roc, metrics.auc_pr, metrics.best_f1)
        ],
        "F1 (K=0)": lambda: metrics.best_adjusted_f1(labels, scores),
        "F1 for 101 K": lambda: metrics.adjusted_f1_area(labels, scores),
        "Aff-F1": lambda: metrics.best_affiliation(labels, scores),
        "VUS classic": lambda: metrics.vus(labels, scores, window, "classic"),
        "VUS symmetric": lambda: metrics.vus(labels, scores, window, "symmetric"),
        "VUS vus": lambda: metrics.vus(labels, scores, window, "vus"),
        "VUS classic, 250 ranks": lambda: metrics.vus(labels, scores, window, "classic", ranks=250),
    }
    return calls[name]


def with_aeon(labels: np.ndarray, scores: np.ndarray, window: int) -> Callable[[], Any]:
    from aeon.benchmarking.metrics.anomaly_detection import range_pr_vus_score

    return lambda: range_pr_vus_score(labels.astype(int), scores, max_buffer_size=window)


def with_vus(labels: np.ndarray, scores: np.ndarray, window: int) -> Callable[[], Any]:
    from vus.utils.metrics import metricor

    return lambda: metricor().RangeAUC_volume_opt(labels.astype(int), scores, window)


def with_tsb_ad(labels: np.ndarray, scores: np.ndarray, window: int) -> Callable[[], Any]:
    from TSB_AD.evaluation.basic_metrics import basic_metricor

    return lambda: basic_metricor().RangeAUC_volume_opt(labels.astype(int), scores, window)


PUBLIC = {
    "aeon": ("aeon", "VUS-PR alone", with_aeon),
    "vus": ("vus", "VUS", with_vus),
    "TSB-AD": ("TSB-AD", "VUS", with_tsb_ad),
}


def measured(who: str, what: str, case: str, window: int) -> dict[str, float]:
    """Time and memory of one case, in this process."""
    labels, scores = simulated(*CASES[case])
    if who == "cometad":
        call = with_ours(what, labels, scores, window)
    elif who == "plain":
        call = lambda: plain_classic_vus(labels, scores, window)  # noqa: E731
    else:
        call = PUBLIC[who][2](labels, scores, window)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = [timed(call)]
    more = 3 if who == "cometad" else 0  # the others compile nothing and are slow
    seconds += [timed(call) for _ in range(more)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    return {"cold": seconds[0], "warm": min(seconds[1:] or seconds), "mib": peak / 1024}


def timed(call: Callable[[], Any]) -> float:
    start = time.process_time()  # CPU time, so that other load on the machine does not count
    call()
    return time.process_time() - start


def in_new_process(python: str, who: str, what: str, case: str, window: int) -> dict[str, float] | str:
    """The measurement from a fresh process, or the error that prevented it."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    command = [python, str(Path(__file__).resolve()), "--one", who, what, case, str(window)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba"))
    return f"{model}, one thread; Python {platform.python_version()}, {versions}"


def rows(quick: bool, public: str) -> list[tuple[str, str, str, str, int]]:
    """The rows of the table: interpreter, package, metric, case, window."""
    ours = [("all nine", case, 100) for case in ("10k", "100k", "450k", "10M")]
    ours += [(what, "450k", 100) for what in ("point-wise (3)", "F1 (K=0)", "F1 for 101 K", "Aff-F1")]
    ours += [("VUS classic", case, 100) for case in ("10k", "100k", "450k", "10M")]
    ours += [(what, "450k", 100) for what in ("VUS symmetric", "VUS vus", "VUS classic, 250 ranks")]
    ours += [("VUS classic", "450k", 3000), ("all nine", "450k", 3000)]
    many = "450k, 10k one-point anomalies"
    ours += [(what, many, window) for what in ("all nine", "VUS classic") for window in (100, 3000)]
    table = [(sys.executable, "cometad", *row) for row in ours]
    if not quick:
        table += [(sys.executable, "plain", "VUS classic, 250 ranks", case, 100) for case in ("10k", "100k", "450k")]
        table += [(public, who, PUBLIC[who][1], case, 100) for who in PUBLIC for case in ("10k", "450k")]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure cometad only")
    parser.add_argument("--public", default=sys.executable, help="an interpreter with the public packages installed")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        who, what, case, window = options.one
        print(json.dumps(measured(who, what, case, int(window))))
        return
    print(machine(), "\n")
    print("| package | metric | points | W | cold CPU s | warm CPU s | peak MiB | times as long as ours |")
    print("|---|---|---|---|---|---|---|---|")
    ours: dict[tuple[str, int], float] = {}
    for python, who, what, case, window in rows(options.quick, options.public):
        found = in_new_process(python, who, what, case, window)
        start = f"| {who} | {what} | {case} | {window} |"
        if isinstance(found, str):
            print(f"{start} skipped: {found} | | | |", flush=True)
            continue
        if (who, what) == ("cometad", "VUS classic"):
            ours[case, window] = found["warm"]
        ratio = "" if who == "cometad" else f"{found['warm'] / ours[case, window]:,.0f}"
        print(f"{start} {found['cold']:.3f} | {found['warm']:.4f} | {found['mib']:.0f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
