"""Finds anomalies in multivariate time series, live, and says which variables caused them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometad.baselines import BASELINES as BASELINES
    from cometad.comet import Comet as Comet
    from cometad.data.gaps import ForwardFill as ForwardFill
    from cometad.data.gaps import Interpolate as Interpolate
    from cometad.data.gaps import RefuseGaps as RefuseGaps
    from cometad.data.gaps import ScoreMeasured as ScoreMeasured
    from cometad.data.resample import resample as resample
    from cometad.decision.alerts import Alerts as Alerts
    from cometad.decision.alerts import Event as Event
    from cometad.decision.normalize import (
        EmaMinMax as EmaMinMax,
    )
    from cometad.decision.normalize import (
        NoCalibration as NoCalibration,
    )
    from cometad.decision.normalize import (
        NoNormalization as NoNormalization,
    )
    from cometad.decision.normalize import (
        TrainingCalibration as TrainingCalibration,
    )
    from cometad.decision.normalize import (
        TrainingNormalization as TrainingNormalization,
    )
    from cometad.decision.select import AllVariables as AllVariables
    from cometad.decision.select import BudgetSelection as BudgetSelection
    from cometad.decision.select import HighestVariables as HighestVariables
    from cometad.decision.select import PercentileSelection as PercentileSelection
    from cometad.decision.spot import DriftingSpot as DriftingSpot
    from cometad.decision.spot import Spot as Spot
    from cometad.decision.threshold import Conformal as Conformal
    from cometad.decision.threshold import Quantile as Quantile
    from cometad.errors import CometadError as CometadError
    from cometad.model.adapt import NoAdaptation as NoAdaptation
    from cometad.model.adapt import OnlineAdaptation as OnlineAdaptation
    from cometad.parameters import ABLATIONS as ABLATIONS
    from cometad.stream import Scored as Scored
    from cometad.stream import Stream as Stream
    from cometad.training import Epochs as Epochs
    from cometad.training import Halving as Halving
    from cometad.training import OneCycle as OneCycle

# name: where it lives. Loaded on first use: torch takes seconds to import, and `cometad --help` must not wait for it.
_SHOP = {
    "Comet": "comet",
    "ABLATIONS": "parameters",
    "BASELINES": "baselines",
    "Stream": "stream",
    "Scored": "stream",
    "Epochs": "training",
    "Halving": "training",
    "OneCycle": "training",
    "NoAdaptation": "model.adapt",
    "OnlineAdaptation": "model.adapt",
    "NoCalibration": "decision.normalize",
    "TrainingCalibration": "decision.normalize",
    "NoNormalization": "decision.normalize",
    "TrainingNormalization": "decision.normalize",
    "EmaMinMax": "decision.normalize",
    "AllVariables": "decision.select",
    "HighestVariables": "decision.select",
    "PercentileSelection": "decision.select",
    "BudgetSelection": "decision.select",
    "Quantile": "decision.threshold",
    "Conformal": "decision.threshold",
    "Spot": "decision.spot",
    "DriftingSpot": "decision.spot",
    "Alerts": "decision.alerts",
    "Event": "decision.alerts",
    "RefuseGaps": "data.gaps",
    "ForwardFill": "data.gaps",
    "Interpolate": "data.gaps",
    "ScoreMeasured": "data.gaps",
    "resample": "data.resample",
    "CometadError": "errors",
}
__all__ = sorted(_SHOP)


def __getattr__(name: str) -> Any:
    if name not in _SHOP:
        raise AttributeError(f"module 'cometad' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"cometad.{_SHOP[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "data", "metrics"]
