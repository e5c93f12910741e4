"""Trials of the drift experiment: one fitted detector scores many controlled series, adapting and as fitted."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import synthetic_plant
from cometad.detector import Detector
from cometad_bench.datasets.drift import controlled_series, split_normal
from cometad_bench.drift.experiment import SETTINGS, AdaptiveStreaming, Setting, compare, measure, outcome
from cometad_bench.experiments import PLANT, Arm
from cometad_bench.results import Record
from cometad_bench.trial import Fitting, attempts, common_threshold, costs

READINGS = {"short": 8_000, "long": 60_000}  # normal readings that a plant's controlled series is built from
LONG = tuple(Setting(drift, contamination=share) for drift in ("none", "offset") for share in (0.0, 0.3))


def plants() -> list[Dataset]:
    """Return synthetic plants without drift or faults, for a short and for a long stream."""
    both = []
    for entity, rows in READINGS.items():
        plant = synthetic_plant(train_rows=12_000, test_rows=rows, drift=0.0, faults_per_kind=0)
        both.append(replace(plant.as_dataset(), name=PLANT, entity=entity))
    return both


def settings_of(entity: str) -> list[dict[str, Any]]:
    """Return the settings for a series: all of them, or the four most basic ones for the long stream."""
    return [asdict(setting) for setting in (LONG if entity == "long" else SETTINGS)]


def drift_trials(arms: Sequence[Arm], dataset: Dataset, device: str, plans: Sequence[Record]) -> Iterator[Record]:
    parts = normal_parts(dataset)
    fitting = Fitting(replace(dataset, train=parts[0]), device)
    fitted: dict[str, tuple[Detector, float]] = {}  # a detector serves all settings

    def measure(arm: Arm, plan: Record) -> dict[str, Any]:
        if arm.name not in fitted:
            fitted[arm.name] = fitting(arm, plan["seed"])
        return _trial(*fitted[arm.name], plan, parts)

    return attempts(arms, device, plans, measure)


def normal_parts(dataset: Dataset) -> tuple[Any, Any]:
    """Return the readings to fit on, and those that controlled series are built from; both are normal.

    For a benchmark dataset both come from its training part; a plant was generated with both.
    """
    return (dataset.train, dataset.test) if dataset.name == PLANT else split_normal(dataset.train)


def _trial(detector: Detector, seconds: float, plan: Record, parts: tuple[Any, Any]) -> dict[str, Any]:
    streaming = cast(AdaptiveStreaming, detector) if detector.can_stream and detector.can_adapt else None
    window = getattr(detector, "window", 1)
    series = controlled_series(*parts, **plan["setting"], align=window, seed=plan["seed"])
    started = time.monotonic()
    if streaming:
        adapting, fixed = measure(streaming, series), measure(streaming, series, streaming.without_adaptation)
    else:
        threshold = common_threshold(detector.decision_scores_)
        adapting = fixed = outcome(series, detector.decision_function(series.values), threshold)
    return costs(detector, seconds, time.monotonic() - started) | {
        "adapting": adapting,
        "fixed": fixed,
        "moved": compare(adapting, fixed),
    }
