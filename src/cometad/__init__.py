"""Finds anomalies in multivariate time series, live, and says which variables caused them."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometad.alerting.alerts import Alerts as Alerts
    from cometad.alerting.alerts import Event as Event
    from cometad.alerting.budget import Budget as Budget
    from cometad.alerting.thresholds import Quantile as Quantile
    from cometad.baselines import BASELINES as BASELINES
    from cometad.comet import Comet as Comet
    from cometad.detector import Detector as Detector
    from cometad.detectors import load as load
    from cometad.errors import CometadError as CometadError
    from cometad.fleet.fleet import Fleet as Fleet
    from cometad.live.stream import Scored as Scored
    from cometad.live.stream import Stream as Stream
    from cometad.network_comet import NetworkComet as NetworkComet

# name: its module. Imported on first use: `cometad --help` must not wait for torch, which is also optional.
_PUBLIC = {
    "Alerts": "alerting.alerts",
    "BASELINES": "baselines",
    "Budget": "alerting.budget",
    "Comet": "comet",
    "CometadError": "errors",
    "Detector": "detector",
    "Event": "alerting.alerts",
    "Fleet": "fleet.fleet",
    "NetworkComet": "network_comet",
    "Quantile": "alerting.thresholds",
    "Scored": "live.stream",
    "Stream": "live.stream",
    "load": "detectors",
}
# Root names of 0.1, and the package that has each of them now. The root aliases are removed in 0.3.
_MOVED = {
    "ABLATIONS": "presets",
    "AllVariables": "scoring",
    "BudgetSelection": "scoring",
    "Conformal": "alerting",
    "DriftingSpot": "alerting",
    "EmaMinMax": "scoring",
    "Epochs": "network",
    "ForwardFill": "data",
    "Halving": "network",
    "HighestVariables": "scoring",
    "Interpolate": "data",
    "NoAdaptation": "network",
    "NoCalibration": "scoring",
    "NoNormalization": "scoring",
    "OneCycle": "network",
    "OnlineAdaptation": "network",
    "PercentileSelection": "scoring",
    "RefuseGaps": "data",
    "ScoreMeasured": "data",
    "Spot": "alerting",
    "TrainingCalibration": "scoring",
    "TrainingNormalization": "scoring",
    "resample": "data",
}
_PACKAGES = ("alerting", "data", "datasets", "metrics", "network", "scoring")
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return _imported(name, f"cometad.{_PUBLIC[name]}")
    if name in _PACKAGES:
        return importlib.import_module(f"cometad.{name}")
    if name in _MOVED:
        home = f"cometad.{_MOVED[name]}"
        warnings.warn(
            f"cometad.{name} moved to {home}.{name}; the old name is removed in 0.3.", DeprecationWarning, stacklevel=2
        )
        return _imported(name, home)
    raise AttributeError(f"module 'cometad' has no attribute {name!r}")


def _imported(name: str, module: str) -> Any:
    from cometad.errors import imported_for

    return getattr(imported_for(name, module), name)


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
