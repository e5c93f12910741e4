"""Trials under the protocol of TSB-AD: the whole series is scored, and VUS uses a window found in its readings."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from cometad.datasets.dataset import Dataset
from cometad.metrics import evaluate, sliding_window, tsb_ad, vus
from cometad_bench.datasets.stored import StoredDataset, opened
from cometad_bench.experiments import Arm
from cometad_bench.results import Record
from cometad_bench.trial import Fitting, attempt, learned_numbers, untied


def tsb_ad_trials(
    arms: Sequence[Arm], entity: Dataset | StoredDataset, device: str, plans: Sequence[Record]
) -> Iterator[Record]:
    """Yield the results of arms that share one training run; the series is read here, so an unreadable one fails."""
    fittings: list[Fitting] = []

    def measure(arm: Arm, seed: int) -> dict[str, Any]:
        dataset = opened(entity)
        if not fittings:
            fittings.append(Fitting(dataset, device))
        return _measured(fittings[0], arm, seed, dataset)

    by_name = {arm.name: arm for arm in arms}
    for plan in plans:
        yield plan | attempt(partial(measure, by_name[plan["arm"]], plan["seed"]), device)


def _measured(fitting: Fitting, arm: Arm, seed: int, dataset: Dataset) -> dict[str, Any]:
    detector, fit_seconds = fitting(arm, seed)
    started = time.monotonic()
    scores = detector.decision_function(dataset.test)
    score_seconds = time.monotonic() - started
    # TSB-AD scales scores to [0, 1] first, which changes none of these: they depend only on the order of the scores.
    protocol = tsb_ad(sliding_window(dataset.test[:, 0]))
    settings = protocol.max_window, protocol.flavor, protocol.ranks
    return {
        "parameters": learned_numbers(detector),
        "fit_seconds": round(fit_seconds, 3),
        "score_seconds": round(score_seconds, 3),
        "window": protocol.max_window,
        "metrics": evaluate(dataset.labels, scores, protocol),
        "untied": {"vus_pr": vus(dataset.labels, untied(scores), *settings).pr},
    }
