"""The published method on all of MSL and of SMAP, with and without adaptation, beside the paper's own rows.

    python benchmarks/paper_tables.py [--datasets MSL SMAP] [--seeds 0 1 2 3 4] [--data-dir FOLDER]
    python benchmarks/paper_tables.py --show

Every trial is a line appended to results/paper_tables.jsonl; trials that stand there already are not run again, so an
interrupted run goes on where it stopped. The table is made from the file.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cometad import Comet, NoAdaptation
from cometad.data.dataset import Dataset, concatenate
from cometad.data.readers import load
from cometad.metrics import METRICS, evaluate

RESULTS = Path("results/paper_tables.jsonl")
# The paper's main table, in percent, in the order of METRICS.
PAPER = {
    ("MSL", "adapting"): (87.44, 26.28, 71.04, 65.40, 16.56, 69.90, 22.67, 68.87, 22.25),
    ("MSL", "fixed"): (87.27, 26.44, 69.40, 65.49, 16.63, 69.27, 22.67, 68.39, 22.27),
    ("SMAP", "adapting"): (82.30, 25.28, 68.24, 59.17, 16.20, 59.43, 17.59, 59.20, 17.54),
    ("SMAP", "fixed"): (82.46, 25.40, 68.01, 59.06, 16.17, 58.69, 17.51, 58.52, 17.46),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", default=["MSL", "SMAP"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--data-dir")
    parser.add_argument("--show", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    if not arguments.show:
        for name in arguments.datasets:
            dataset = concatenate(load(name, arguments.data_dir))
            for seed in arguments.seeds:
                if (name, seed) not in {(result["dataset"], result["seed"]) for result in _results()}:
                    _append(trials(dataset, seed))
    print(table(_results()))


def trials(dataset: Dataset, seed: int) -> list[dict[str, Any]]:
    """Fit once, score twice: adaptation changes nothing in training."""
    begun = time.monotonic()
    detector = Comet.paper(dataset.name, seed=seed).fit(dataset.train)
    fitted = time.monotonic()
    found = []
    for name, stream in (("adapting", detector.stream()), ("fixed", detector.stream(adaptation=NoAdaptation()))):
        began = time.monotonic()
        scores = np.concatenate([stream.update_many(dataset.test), stream.finish()])
        scored = time.monotonic()
        steps, rolled_back = stream.adaptation_steps
        found.append(
            {
                "dataset": dataset.name,
                "fingerprint": dataset.fingerprint,
                "arm": name,
                "seed": seed,
                "adaptation_steps": steps,
                "rolled_back": rolled_back,
                "active_codes": [int(active.sum()) for active in detector.active_],
                "fit_seconds": round(fitted - begun, 2),
                "score_seconds": round(scored - began, 2),
                "threads": torch.get_num_threads(),
                "machine": platform.machine(),
                "versions": {"torch": torch.__version__, "numpy": np.__version__},
                "metrics": evaluate(dataset.labels, scores),
            }
        )
    return found


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| dataset | | seeds | " + " | ".join(metric.title for metric in METRICS.values()) + " |"]
    lines.append("|---" * (3 + len(METRICS)) + "|")
    for (name, arm), published in PAPER.items():
        ours = [result["metrics"] for result in results if (result["dataset"], result["arm"]) == (name, arm)]
        if not ours:
            continue
        values = 100 * np.array([[metrics[key] for key in METRICS] for metrics in ours])
        cells = [f"{mean:.1f} ± {std:.1f}" for mean, std in zip(values.mean(axis=0), values.std(axis=0), strict=True)]
        lines.append(f"| {name} | {arm} | {len(ours)} | " + " | ".join(cells) + " |")
        lines.append(f"| {name} | paper | | " + " | ".join(f"{value:.1f}" for value in published) + " |")
    return "\n".join(lines)


def _results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def _append(results: list[dict[str, Any]]) -> None:
    with RESULTS.open("a") as file:
        file.write("".join(json.dumps(result) + "\n" for result in results))
    print(f"{results[0]['dataset']} seed {results[0]['seed']}: fitted in {results[0]['fit_seconds']} s", flush=True)


if __name__ == "__main__":
    main()
