"""The gain of each departure of `Comet()` from the paper on development data: mean AUC-PR, one seed.

    python bench/scripts/default.py [--data-dir DIR]

Development data are the entities below and synthetic plants; docs/deviations.md lists every entity whose labels were
seen. Figures reported elsewhere should exclude them or say so. Each arm changes one thing.
"""

import argparse
import time

import numpy as np

from cometad import NetworkComet
from cometad.datasets.synthetic import synthetic_plant
from cometad.metrics import auc_pr
from cometad.network import NoAdaptation, OneCycle, OnlineAdaptation
from cometad.scoring import AllVariables, HighestVariables, NoCalibration
from cometad_bench.datasets.readers import load

DEVELOPMENT = {"ASD": ("omi-1", "omi-7")}
PLANTS = (101,)

ARMS = {
    "default": {},
    "no adaptation": {"adaptation": NoAdaptation()},
    "the paper's adaptation": {"adaptation": OnlineAdaptation()},
    "no refit": {"refit": 0},
    "no training": {"schedule": OneCycle(1)},
    "no calibration": {"calibration": NoCalibration()},
    "both scores": {"score_weight": 0.5},
    "highest variable": {"selection": HighestVariables(1)},
    "all variables": {"selection": AllVariables()},
    "the paper's patches": {"patch_sizes": (2, 4, 6), "patch_strides": (1, 2, 3)},
    "128 codes": {"codebook_size": 128},
    "core of 64": {"core_dim": 64},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    arguments = parser.parse_args()
    series = [d for name, wanted in DEVELOPMENT.items() for d in load(name, arguments.data_dir) if d.entity in wanted]
    series += [synthetic_plant(seed=seed).as_dataset() for seed in PLANTS]
    groups = list(dict.fromkeys(dataset.name for dataset in series))
    print("| arm | " + " | ".join(groups) + " | seconds |")
    print("|---|" + "---|" * (len(groups) + 1))
    for arm in arguments.arms:
        begun = time.monotonic()
        found: dict[str, list[float]] = {group: [] for group in groups}
        for dataset in series:
            detector = NetworkComet(**ARMS[arm]).fit(dataset.train)
            found[dataset.name].append(auc_pr(dataset.labels, detector.decision_function(dataset.test)))
        figures = " | ".join(f"{100 * np.mean(found[group]):.1f}" for group in groups)
        print(f"| {arm} | {figures} | {time.monotonic() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    main()
