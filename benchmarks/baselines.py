"""A sanity run of the baselines: two MSL channels and two SMD machines, or all of MSL at once.

    python benchmarks/baselines.py                                    every baseline, one model per entity
    python benchmarks/baselines.py --baselines pca knn --steps 200    some, trained for 200 steps
    python benchmarks/baselines.py --concatenated --device cuda       the deep ones on all channels of MSL

Every trial is a line appended to results/baselines.jsonl, with all that is needed to repeat it; the table is printed.
The entities are development data (docs/deviations.md): their labels have been looked at before.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from cometad.baselines import BASELINES
from cometad.baselines.deep import DeepBaseline
from cometad.baselines.memory import parameter_count
from cometad.data.dataset import Dataset, concatenate
from cometad.data.readers import load
from cometad.metrics import METRICS, evaluate
from cometad.parameters import as_json
from cometad.training import OneCycle

ENTITIES = {"MSL": ("C-1", "P-10"), "SMD": ("machine-1-2", "machine-2-4")}
DEEP = [name for name, kind in BASELINES.items() if issubclass(kind, DeepBaseline)]


def main() -> None:
    arguments = _arguments()
    print("| dataset | entity | baseline | parameters | fit s | score s | GiB | " + _row(_titles()))
    print("|---" * (7 + len(METRICS)) + "|")
    for dataset in _datasets(arguments):
        for name in arguments.baselines or (DEEP if arguments.concatenated else list(BASELINES)):
            result = trial(name, dataset, arguments)
            with arguments.results.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(_line(result), flush=True)


def trial(name: str, dataset: Dataset, arguments: argparse.Namespace) -> dict[str, Any]:
    """What one baseline does on one series."""
    detector = BASELINES[name](seed=arguments.seed, device=arguments.device)
    if arguments.steps and name in DEEP:
        detector.set_params(schedule=OneCycle(arguments.steps, detector.schedule.learning_rate))
    cuda = arguments.device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    begun = time.monotonic()
    detector.fit(dataset.train)
    fitted = time.monotonic()
    scores = detector.decision_function(dataset.test)
    done = time.monotonic()
    return {
        "dataset": dataset.name,
        "entity": dataset.entity,
        "fingerprint": dataset.fingerprint,
        "baseline": name,
        "hyper_parameters": {key: as_json(value) for key, value in detector.get_params(deep=False).items()},
        "parameters": parameter_count(detector.network_) if name in DEEP else None,
        "fit_seconds": round(fitted - begun, 2),
        "score_seconds": round(done - fitted, 2),
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "predicted_share": float((scores > detector.threshold_).mean()),
        "metrics": evaluate(dataset.labels, scores),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baselines", nargs="*", choices=list(BASELINES))
    parser.add_argument("--datasets", nargs="*", choices=list(ENTITIES), default=list(ENTITIES))
    parser.add_argument("--concatenated", action="store_true", help="all channels of MSL one after the other")
    parser.add_argument("--steps", type=int, help="train for so many steps, not by the protocol's schedule")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--data-dir")
    parser.add_argument("--results", type=Path, default=Path("results/baselines.jsonl"))
    arguments = parser.parse_args()
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    return arguments


def _datasets(arguments: argparse.Namespace) -> Iterator[Dataset]:
    if arguments.concatenated:
        yield concatenate(load("MSL", arguments.data_dir))
        return
    for name in arguments.datasets:
        yield from (dataset for dataset in load(name, arguments.data_dir) if dataset.entity in ENTITIES[name])


def _titles() -> list[str]:
    return [metric.title for metric in METRICS.values()]


def _line(result: dict[str, Any]) -> str:
    count, peak = result["parameters"], result["peak_bytes"]
    facts = [
        *(result[key] for key in ("dataset", "entity", "baseline")),
        "" if count is None else f"{count:,}",
        *(f"{result[key]:.1f}" for key in ("fit_seconds", "score_seconds")),
        "" if peak is None else f"{peak / 2**30:.1f}",
        *(f"{100 * result['metrics'][key]:.1f}" for key in METRICS),
    ]
    return "| " + _row(facts)


def _row(cells: list[str]) -> str:
    return " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
