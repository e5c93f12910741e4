"""One trial: fit a detector, score the test part, and say what came out and what it cost."""

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.baselines.footprint import parameter_count
from cometad.bench.experiments import Arm
from cometad.bench.results import Record
from cometad.bench.threshold import common_threshold
from cometad.comet import Comet
from cometad.datasets.dataset import Dataset
from cometad.datasets.readers import PERIODS
from cometad.detector import Detector
from cometad.errors import CometadError
from cometad.metrics import evaluate, events_at, f1_at
from cometad.registry import describe

DAY = 86_400  # seconds
PACKAGES = ("cometad", "torch", "numpy", "scikit-learn")


def beginning(
    experiment: str, dataset: Dataset, arm: Arm, seed: int, device: str, setting: dict[str, Any] | None = None
) -> Record:
    """What is known of a trial before it runs: all that its identity needs."""
    detector = arm.build(dataset.name, seed, device)
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


def trials(beginnings: Sequence[Record], arms: Sequence[Arm], dataset: Dataset, device: str) -> Iterator[Record]:
    """The results of arms that one training serves; a failed one has its error in place of figures."""
    fitting = Fitting(dataset, device)
    for begun, arm in zip(beginnings, arms, strict=True):
        yield begun | attempt(partial(_measured, fitting, arm, begun["seed"], dataset), device)


def attempt(measure: Callable[[], dict[str, Any]], device: str) -> dict[str, Any]:
    """What was measured, with the machine's facts; or the error, in one line.

    >>> from cometad.bench.trial import attempt
    >>> attempt(lambda: {"fit_seconds": 1.0}, "cpu")["fit_seconds"]
    1.0
    >>> attempt(lambda: [][0], "cpu")["error"]
    'IndexError: list index out of range'
    """
    nothing = dict.fromkeys(("parameters", "fit_seconds", "score_seconds", "metrics", "at_threshold", "error"))
    peak = Peak(device)
    try:
        found = measure()
        json.dumps(found, allow_nan=False)  # a figure that is not a number is a failure too
    except Exception as error:  # kept in the results: a table must say who failed, and the others go on
        first = (str(error) or "no message").splitlines()[0]
        found = {"error": first if isinstance(error, CometadError) else f"{type(error).__name__}: {first}"}
    return nothing | facts(device) | {"peak_bytes": peak.bytes} | found


def facts(device: str) -> dict[str, Any]:
    """What was run on, with what, and when."""
    return {
        "device": _processor(device),
        "threads": torch.get_num_threads(),
        "source": source_fingerprint(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Fitting:
    """Detectors fitted on one series. What was trained once is not trained again for other ways to score."""

    def __init__(self, dataset: Dataset, device: str) -> None:
        self._dataset, self._device = dataset, device
        self._trained: tuple[Arm, int, Comet, float] | None = None

    def __call__(self, arm: Arm, seed: int) -> tuple[Detector, float]:
        """A fitted detector, and the seconds that fitting it takes, training included even where it was shared."""
        begun = time.monotonic()
        if self._trained is not None and self._trained[1] == seed and arm.trained_like(self._trained[0]):
            first, _, trained, seconds = self._trained
            wanted = arm.build(self._dataset.name, seed, self._device).get_params(deep=False)
            changes = {name: wanted[name] for name in {**first.scoring, **arm.scoring}}
            return trained.with_scoring(self._dataset.train, **changes), seconds + time.monotonic() - begun
        detector = arm.build(self._dataset.name, seed, self._device).fit(self._dataset.train)
        seconds = time.monotonic() - begun
        if isinstance(detector, Comet):
            self._trained = (arm, seed, detector, seconds)
        return detector, seconds


def _measured(fitting: Fitting, arm: Arm, seed: int, dataset: Dataset) -> dict[str, Any]:
    detector, fit_seconds = fitting(arm, seed)
    begun = time.monotonic()
    scores = detector.decision_function(dataset.test)
    score_seconds = time.monotonic() - begun
    return {
        "parameters": learned_numbers(detector),
        "fit_seconds": round(fit_seconds, 3),
        "score_seconds": round(score_seconds, 3),
        "metrics": evaluate(dataset.labels, scores),
        "at_threshold": at_threshold(dataset.labels, scores, common_threshold(detector), PERIODS.get(dataset.name, 60)),
    }


def at_threshold(labels: NDArray[np.bool_], scores: NDArray[np.float64], threshold: float, period: float) -> Record:
    """Figures at a threshold that knows no labels; `period` is the seconds from one reading to the next.

    >>> import numpy as np
    >>> from cometad.bench.trial import at_threshold
    >>> figures = at_threshold(np.array([0, 0, 1, 1], bool), np.array([9.0, 0.0, 0.0, 9.0]), 5.0, period=21_600)
    >>> figures["precision"], figures["anomalies_found"], figures["false_alarms_per_day"]
    (0.5, 1, 1.0)
    """
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


def learned_numbers(detector: Detector) -> int | None:
    """How many parameters a detector's network has; None without one."""
    network = getattr(detector, "network_", None)
    return None if network is None else parameter_count(network)


class Peak:
    """The most memory that the process, or its part of a graphics card, took since this was made."""

    def __init__(self, device: str) -> None:
        self._cuda = device if device.startswith("cuda") else None
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._cuda)
        elif (clear := Path("/proc/self/clear_refs")).exists() and os.access(clear, os.W_OK):
            clear.write_text("5")  # Linux: the peak so far is forgotten

    @property
    def bytes(self) -> int | None:
        """The peak; where the system cannot forget an earlier one, that of the whole process; on Windows none."""
        if self._cuda:
            return torch.cuda.max_memory_allocated(self._cuda)
        status = Path("/proc/self/status")
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        if sys.platform == "win32":
            return None
        import resource  # there is none on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cpu = Path("/proc/cpuinfo")
    models = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.partition(":")[2].strip() for line in models if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def source_fingerprint() -> str:
    """A name for the state of this package's code: two trials with the same name ran the same code.

    >>> from cometad.bench.trial import source_fingerprint
    >>> len(source_fingerprint())
    12
    """
    package = Path(__file__).parents[1]
    content = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
