"""The paper's values for Comet, and the arms of its ablation."""

from typing import Any

from cometad.alerting.thresholds import Quantile
from cometad.data.gaps import RefuseGaps
from cometad.errors import unknown
from cometad.network.adaptation import NoAdaptation, OnlineAdaptation
from cometad.network.schedules import Epochs
from cometad.scoring.calibrate import NoCalibration
from cometad.scoring.normalize import EmaMinMax, NoNormalization
from cometad.scoring.select import AllVariables, PercentileSelection

# The paper's sizes per dataset: codebook size, model dimension.
PAPER_SIZES = {"PSM": (128, 256), "SWaT": (256, 256), "SMAP": (128, 128), "MSL": (256, 128), "WADI": (32, 64)}

# The arms of the paper's ablation, as changes to `Comet.paper()`.
ABLATIONS: dict[str, dict[str, Any]] = {
    "w/o multi-scale": {"patch_sizes": (6,), "patch_strides": (3,)},
    "w/o quant score": {"score_weight": 0.0},
    "w/o memory score": {"score_weight": 1.0},
    "w/o local scaling": {"memory_distance": "plain"},
    "w/o variable selection": {"selection": AllVariables()},
    "w/o normalization": {"normalization": NoNormalization()},
    "w/o TTA": {"adaptation": NoAdaptation()},
    "w/o contrastive": {"adaptation": OnlineAdaptation(contrastive_weight=0.0)},
}


def paper_parameters(dataset: str | None = None) -> dict[str, Any]:
    """Every parameter of the published method, with the paper's sizes for a dataset (PSM if none is given).

    The paper has no threshold; ours is the 99 % quantile of the training scores.
    """
    if dataset is not None and dataset not in PAPER_SIZES:
        raise unknown("paper dataset", dataset, PAPER_SIZES)
    codebook_size, dim = PAPER_SIZES[dataset or "PSM"]
    return {
        "window": 100,
        "window_stride": 50,
        "patch_sizes": (2, 4, 6),
        "patch_strides": (1, 2, 3),
        "dim": dim,
        "core_dim": 64,
        "codebook_size": codebook_size,
        "initialization": "normal",
        "refit": 0,
        "schedule": Epochs(20, learning_rate=1e-4),
        "batch_size": 128,
        "weight_decay": 5e-4,
        "codebook_weight": 1.0,
        "commitment_weight": 1.0,
        "validation_share": 0.1,
        "scaler": "standard",
        "neighbors": 10,
        "memory_distance": "local",
        "score_weight": 0.5,
        "calibration": NoCalibration(),
        "selection": PercentileSelection(50),
        "normalization": EmaMinMax(0.75),
        "adaptation": OnlineAdaptation(),
        "test_batch": 128,
        "gaps": RefuseGaps(),
        "threshold": Quantile(rate=0.01),
    }
