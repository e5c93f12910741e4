"""Checks of parameters."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch

from cometad.alerting.thresholds import THRESHOLDS
from cometad.data.gaps import ForwardFill, Interpolate, RefuseGaps, ScoreMeasured
from cometad.data.scale import SCALERS
from cometad.errors import ParameterError, unknown
from cometad.network.adaptation import NoAdaptation, OnlineAdaptation
from cometad.network.memory import DISTANCES
from cometad.network.schedules import Epochs, Halving, OneCycle
from cometad.network.training import INITIALIZATIONS
from cometad.scoring.calibrate import NoCalibration, TrainingCalibration
from cometad.scoring.normalize import EmaMinMax, NoNormalization, TrainingNormalization
from cometad.scoring.select import AllVariables, BudgetSelection, HighestVariables, PercentileSelection

# What each number may be, also inside the variants: whole or real, at least, at most.
_WHOLE = {
    **dict.fromkeys(("window", "window_stride", "dim", "core_dim", "codebook_size", "batch_size"), 1),
    **dict.fromkeys(("neighbors", "test_batch", "epochs", "total", "count", "budget", "limit"), 1),
    **dict.fromkeys(("pairs",), 4),
    **dict.fromkeys(("seed", "refit", "patience"), 0),
}
_REAL = {
    **dict.fromkeys(("score_weight", "validation_share", "quantile", "momentum", "dropout"), (0, 1)),
    **dict.fromkeys(("weight_decay", "codebook_weight", "commitment_weight", "contrastive_weight"), (0, math.inf)),
    **dict.fromkeys(("learning_rate", "temperature", "max_drift", "least"), (0, math.inf)),
    "percentile": (0, 100),
    "error_limit": (0, 1),
}
_OPTIONAL = ("error_limit", "max_drift")
_POSITIVE = ("learning_rate", "temperature")
_BELOW_ONE = ("validation_share", "dropout")
_NAMES: dict[str, Collection[str]] = {
    "scaler": SCALERS,
    "initialization": INITIALIZATIONS,
    "memory_distance": DISTANCES,
}
_KINDS: dict[str, tuple[type[Any], ...]] = {
    "schedule": (Epochs, Halving, OneCycle),
    "calibration": (NoCalibration, TrainingCalibration),
    "selection": (AllVariables, HighestVariables, PercentileSelection, BudgetSelection),
    "normalization": (NoNormalization, TrainingNormalization, EmaMinMax),
    "adaptation": (NoAdaptation, OnlineAdaptation),
    "gaps": (RefuseGaps, ForwardFill, Interpolate, ScoreMeasured),
    "threshold": tuple(THRESHOLDS.values()),
}
_RULED = {*_WHOLE, *_REAL, *_NAMES, *_KINDS, "device"}
VARIANTS = {kind.__name__: kind for kinds in _KINDS.values() for kind in kinds}


def check_parameters(values: Mapping[str, Any]) -> None:
    """Refuse parameters of Comet that make no sense, alone or together.

    >>> from cometad import Comet
    >>> Comet(score_weight=2)
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The 'score_weight' parameter must be a number between 0 and 1. Got 2 instead.
    """
    for name, value in values.items():
        _check_one(name, value)
    require(values["dim"] % 2 == 0, "dim", "even: half of it is each variable's own", values["dim"])
    _check_patches(values["patch_sizes"], values["patch_strides"], values["window"])
    _check_device(values["device"])


def check_alike(values: Mapping[str, Any], defaults: Mapping[str, Any], choices: Mapping[str, Collection[str]]) -> None:
    """Refuse parameters of a baseline that make no sense: one that no rule is known for must be like its default.

    >>> from cometad.baselines import BASELINES
    >>> BASELINES["knn"](neighbors=0)
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The 'neighbors' parameter must be an integer from 1 up. Got 0 instead.
    """
    for name, value in values.items():
        if name in choices and value not in choices[name]:
            raise unknown(name.replace("_", " "), value, choices[name])
        _check_one(name, value)
        if name not in _RULED and not isinstance(defaults[name], bool | str):
            _check_like(name, value, defaults[name])
    _check_device(values["device"])


def _check_like(name: str, value: Any, default: int | float) -> None:
    if isinstance(default, int):
        _check_whole(name, value, 1)
    else:
        _check_real(name, value, 0, math.inf)


def _check_whole(name: str, value: Any, least: int) -> None:
    holds = type(value) is not bool and isinstance(value, Integral) and int(value) >= least
    require(holds, name, f"an integer from {least} up", value)


def _check_real(name: str, value: Any, low: float, high: float) -> None:
    holds = isinstance(value, Real) and low <= float(value) <= high and math.isfinite(value)
    require(holds, name, f"a number between {low} and {high}", value)


def _check_one(name: str, value: Any) -> None:
    if name in _NAMES and (not isinstance(value, str) or value not in _NAMES[name]):
        raise unknown(name.replace("_", " "), value, _NAMES[name])
    if name in _WHOLE:
        _check_whole(name, value, _WHOLE[name])
    if name == "seed":
        require(value < 2**32, name, "below 2**32", value)
    if name in _REAL and not (value is None and name in _OPTIONAL):
        _check_real(name, value, *_REAL[name])
        require(value > 0 or name not in _POSITIVE, name, "above 0", value)
        require(value < 1 or name not in _BELOW_ONE, name, "below 1", value)
    if name in _KINDS:
        known = " or ".join(kind.__name__ for kind in _KINDS[name])
        require(isinstance(value, _KINDS[name]), name, f"an object of the kind {known}", value)
        for field in dataclasses.fields(value):
            _check_one(field.name, getattr(value, field.name))


def _check_patches(sizes: Sequence[int], strides: Sequence[int], window: int) -> None:
    for name, given in (("patch_sizes", sizes), ("patch_strides", strides)):
        whole = isinstance(given, Sequence) and all(isinstance(value, Integral) for value in given)
        require(whole and len(given) >= 1, name, "a sequence of at least one integer", given)
    require(len(sizes) == len(strides), "patch_strides", "as long as patch_sizes", strides)
    for size, stride in zip(sizes, strides, strict=True):
        require(1 <= size <= window, "patch_sizes", f"between 1 and the window ({window})", size)
        require(1 <= stride <= size, "patch_strides", f"between 1 and its patch ({size})", stride)


def require(holds: bool, name: str, wanted: str, got: object) -> None:
    """Refuse a parameter unless something holds.

    >>> from cometad.validation import require
    >>> require(False, "dim", "even", 7)
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The 'dim' parameter must be even. Got 7 instead.
    """
    if not holds:
        raise ParameterError(f"The '{name}' parameter must be {wanted}. Got {got!r} instead.")


def _check_device(device: str) -> None:
    kind, _, number = str(device).partition(":")
    if not isinstance(device, str) or kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise unknown("device", device, ["cpu", "cuda"])
    if kind == "cuda" and not torch.cuda.is_available():
        raise ParameterError("The device 'cuda' is not available on this machine. Pass device='cpu'.")
