"""One trial: fit a detector, score the test part, and record the metrics and the cost."""

import hashlib
import json
import os
import platform
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import cometad
from cometad.arrays import Floats
from cometad.compute import thread_count
from cometad.datasets.dataset import Dataset
from cometad.detector import Detector
from cometad.errors import CometadError
from cometad.metrics import METRICS, evaluate, events_at, f1_at, sliding_window, tsb_ad, vus
from cometad.network_comet import NetworkComet
from cometad.registry import describe
from cometad_bench.baselines.deep import parameter_count
from cometad_bench.datasets.readers import period
from cometad_bench.datasets.stored import StoredDataset, opened
from cometad_bench.experiments import Arm
from cometad_bench.results import Record

DAY = 86_400  # seconds
QUANTILE = 0.99  # of the training scores
PACKAGES = ("cometad", "torch", "numpy", "scikit-learn")
EMPTY = dict.fromkeys(("parameters", "fit_seconds", "score_seconds", "metrics", "at_threshold", "error"))


def planned(
    experiment: str,
    dataset: Dataset | StoredDataset,
    arm: Arm,
    seed: int,
    device: str,
    setting: dict[str, Any] | None = None,
) -> Record:
    """Return the fields of a result that are known before the trial runs: everything its identity needs."""
    detector = built(arm, dataset, seed, device)
    return {
        "experiment": experiment,
        "dataset": dataset.name,
        "entity": dataset.entity,
        "fingerprint": dataset.fingerprint,
        "arm": arm.name,
        "seed": seed,
        "setting": setting or {},
        "detector": arm.detector,
        "hyper_parameters": {name: describe(value) for name, value in detector.get_params(deep=False).items()},
    }


def built(arm: Arm, dataset: Dataset | StoredDataset, seed: int, device: str) -> Detector:
    """Return the unfitted detector of an arm; where entities are joined, it holds out the end of each.

    `training_series` has these readings at its end.
    """
    detector = arm.build(dataset.name, seed, device)
    share = detector.get_params(deep=False).get("validation_share")
    if share is None or isinstance(dataset, StoredDataset) or len(dataset.train_seams) == 1:
        return detector
    return detector.set_params(validation_share=dataset.held_out_last(share)[1])


def training_series(arm: Arm, dataset: Dataset) -> Floats:
    share = arm.build(dataset.name, 0, "cpu").get_params(deep=False).get("validation_share")
    joined = len(dataset.train_seams) > 1
    return dataset.held_out_last(share)[0] if joined and share is not None else dataset.train


Measured = dict[str, Any]  # the fields of a result that a trial adds to its plan
Measure = Callable[[Arm, Record], Measured]


def attempts(
    protocol: Callable[[Any, str], Measure],
    arms: Sequence[Arm],
    entity: Dataset | StoredDataset,
    device: str,
    plans: Sequence[Record],
) -> Iterator[Record]:
    """Yield the results of arms that share one training run; a failed trial has its error instead of figures."""
    measure, by_name = protocol(entity, device), {arm.name: arm for arm in arms}
    for plan in plans:
        yield plan | attempt(partial(measure, by_name[plan["arm"]], plan), device)


def attempt(measure: Callable[[], Measured], device: str) -> Measured:
    """Return the measured figures, or the error in one line, with facts about the machine."""
    peak = Peak(device)
    try:
        figures = measure()
        json.dumps(figures, allow_nan=False)  # NaN is a failure too
    except Exception as error:  # recorded, because a report must name what failed; the other trials go on
        first = (str(error) or "no message").splitlines()[0]
        figures = {"error": first if isinstance(error, CometadError) else f"{type(error).__name__}: {first}"}
    return EMPTY | facts(device) | {"start_bytes": peak.start, "peak_bytes": peak.bytes} | figures


def failure(device: str, error: str) -> Measured:
    """Return the fields of a trial whose process died, without touching the GPU."""
    hardware = {} if device == "cpu" else {"device": device}
    return EMPTY | facts("cpu") | hardware | {"start_bytes": None, "peak_bytes": None, "error": error}


def facts(device: str) -> Measured:
    return {
        "device": _processor(device),
        "threads": thread_count(),
        "source": source_fingerprint(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Fitting:
    """Fits detectors on one series. Arms that differ only in scoring share one training run."""

    def __init__(self, dataset: Dataset, device: str) -> None:
        self._dataset, self._device = dataset, device
        self._trained: tuple[Arm, int, Detector, float] | None = None

    def __call__(self, arm: Arm, seed: int) -> tuple[Detector, float]:
        """Return a fitted detector and the seconds it takes to fit, including training even if that was shared."""
        started = time.monotonic()
        if self._trained is not None and self._trained[1] == seed and arm.trained_like(self._trained[0]):
            first, _, trained, seconds = self._trained
            wanted = arm.build(self._dataset.name, seed, self._device).get_params(deep=False)
            changes = {name: wanted[name] for name in {**first.scoring, **arm.scoring}}
            rescored = cast(NetworkComet, trained).with_scoring(training_series(arm, self._dataset), **changes)
            return rescored, seconds + time.monotonic() - started
        detector = built(arm, self._dataset, seed, self._device).fit(training_series(arm, self._dataset))
        seconds = time.monotonic() - started
        self._trained = (arm, seed, detector, seconds)
        return detector, seconds

    def scores(self, arm: Arm, seed: int) -> tuple[Detector, Floats, Measured]:
        detector, fit_seconds = self(arm, seed)
        started = time.monotonic()
        scores = detector.decision_function(self._dataset.test)
        return detector, scores, costs(detector, fit_seconds, time.monotonic() - started)


def costs(detector: Detector, fit_seconds: float, score_seconds: float) -> Measured:
    """Return what a detector took; `parameters` is None if it has no network."""
    network = getattr(detector, "network_", None)
    return {
        "parameters": None if network is None else parameter_count(network),
        "fit_seconds": round(fit_seconds, 3),
        "score_seconds": round(score_seconds, 3),
    }


def detection(entity: Dataset | StoredDataset, device: str) -> Measure:
    dataset = opened(entity)
    fitting = Fitting(dataset, device)

    def measure(arm: Arm, plan: Record) -> Measured:
        detector, scores, taken = fitting.scores(arm, plan["seed"])
        metrics, threshold = evaluate(dataset.labels, scores), common_threshold(detector.decision_scores_)
        return taken | {
            "metrics": metrics,
            "untied": {"vus_pr": untied_vus_pr(dataset.labels, scores, metrics)},
            "at_threshold": at_threshold(dataset.labels, scores, threshold, period(dataset.name)),
        }

    return measure


def whole_series(entity: Dataset | StoredDataset, device: str) -> Measure:
    """The protocol of TSB-AD: the whole series is scored, and VUS uses a window found in it."""
    fitting = cache(lambda: Fitting(opened(entity), device))  # in a trial, so that an unreadable series fails it

    def measure(arm: Arm, plan: Record) -> Measured:
        _, scores, taken = fitting().scores(arm, plan["seed"])
        dataset = opened(entity)
        # TSB-AD scales scores to [0, 1] first, which changes none of these: they depend only on the order of scores.
        protocol = tsb_ad(sliding_window(dataset.test[:, 0]))
        settings = protocol.max_window, protocol.flavor, protocol.ranks
        return taken | {
            "window": protocol.max_window,
            "metrics": evaluate(dataset.labels, scores, protocol),
            "untied": {"vus_pr": vus(dataset.labels, untied(scores), *settings).pr},
        }

    return measure


def common_threshold(training_scores: Floats) -> float:
    """Return the threshold at which the benchmark compares all detectors, whatever rule they use themselves."""
    return float(np.quantile(training_scores, QUANTILE))


def untied_vus_pr(labels: NDArray[np.bool_], scores: NDArray[np.float64], metrics: Mapping[str, float]) -> float:
    """Return VUS-PR with ties of scores broken at random: its classic form rewards constant scores."""
    if len(np.unique(scores)) == len(scores):
        return metrics["vus_pr"]
    return METRICS["vus_pr"].function(labels, untied(scores))


def untied(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of the scores, equal scores in an order that is random but always the same."""
    ranks = np.empty(len(scores))
    ranks[np.lexsort((np.random.default_rng(0).random(len(scores)), scores))] = np.arange(len(scores))
    return ranks


def at_threshold(labels: NDArray[np.bool_], scores: NDArray[np.float64], threshold: float, period: float) -> Record:
    """Return figures at a threshold set without labels; `period` is the seconds between two readings."""
    flags = (scores > threshold).astype(float)
    points, events = f1_at(labels, flags, 0.5), events_at(labels, flags, 0.5)
    false_alarms = events.alarms - round(events.precision * events.alarms) if events.alarms else 0
    return {
        "threshold": float(threshold),
        "precision": points.precision if flags.any() else None,
        "recall": points.recall,
        "f1": points.f1,
        "anomalies": events.anomalies,
        "anomalies_found": round(events.recall * events.anomalies),
        "alarms": events.alarms,
        "false_alarms": false_alarms,
        "false_alarms_per_day": false_alarms / (len(labels) * period / DAY),
    }


class Peak:
    """Peak memory of the process, or of its allocations on the GPU, since this object was created.

    `start` is what was in use then: on a CPU the interpreter, the libraries and the series; None where it is unknown.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device if device.startswith("cuda") else None
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._cuda)
        elif (clear := Path("/proc/self/clear_refs")).exists() and os.access(clear, os.W_OK):
            clear.write_text("5")  # Linux: resets the peak
        self.start = torch.cuda.memory_allocated(self._cuda) if self._cuda else _memory("VmRSS")

    @property
    def bytes(self) -> int | None:
        """The peak; since the process started if the system cannot reset it, and None on Windows."""
        if self._cuda:
            return torch.cuda.max_memory_allocated(self._cuda)
        peak = _memory("VmHWM")
        if peak is not None or sys.platform == "win32":
            return peak
        import resource  # not available on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _memory(field: str) -> int | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cpu = Path("/proc/cpuinfo")
    models = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.partition(":")[2].strip() for line in models if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def source_fingerprint() -> str:
    """Return a fingerprint of the source of both packages: trials with the same fingerprint ran the same code."""
    content = hashlib.sha256()
    for package in (Path(cometad.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            content.update(path.relative_to(package.parent).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # perhaps a run from a source tree, without installation
        project = Path(__file__).parents[3] / "pyproject.toml"
        if package != "cometad" or not project.exists():
            return "not installed"
        return f"{tomllib.loads(project.read_text(encoding='utf-8'))['project']['version']} (source tree)"


def limit_threads(threads: int) -> None:
    """Limit the threads of this process: those of torch, numpy, scikit-learn and the kernels."""
    os.environ["COMETAD_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)
