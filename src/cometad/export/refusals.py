"""Checks whether a detector can be exported."""

from typing import cast

from cometad.comet import Comet
from cometad.detector import Detector
from cometad.errors import ParameterError
from cometad.export.rules import RULE_GRAPHS
from cometad.export.views import VIEW_GRAPHS


def exportable(detector: Detector) -> Comet:
    """The detector, if it can be exported; otherwise raises an error that says why not."""
    if not detector.can_export:
        raise ParameterError(f"{type(detector).__name__} cannot be exported to ONNX; only Comet() can.")
    comet = cast(Comet, detector)
    comet._check_fitted()
    if comet.gaps.allowed:
        raise ParameterError(
            f"A detector with the gap rule {comet.gaps!r} cannot be exported to ONNX, because the graph cannot impute "
            "missing values.",
            advice="refuse gaps",
        )
    if comet.adaptation.follow(comet.panel_) is not None:
        raise ParameterError(
            f"A detector with the adaptation {comet.adaptation!r} cannot be exported to ONNX, because the graph cannot "
            "learn. Fit one with adaptation=KeepFitted()."
        )
    for view, fitted in zip(comet.views, comet.panel_.views, strict=True):
        if type(fitted) not in VIEW_GRAPHS:
            raise ParameterError(
                f"The view {type(view).__name__} cannot be exported to ONNX. Fit the detector with other views."
            )
    if type(comet.threshold) not in RULE_GRAPHS:
        raise ParameterError(
            f"The threshold {comet.threshold!r} cannot be exported to ONNX.", advice="exportable threshold"
        )
    return comet
