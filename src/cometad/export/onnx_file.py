"""Write a detector as an ONNX file and check it against the detector."""

import json
import os
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, cast

from onnx import ModelProto, helper

from cometad.comet import Comet
from cometad.detector import Detector
from cometad.errors import ParameterError
from cometad.export.agreement import Agreement, checked
from cometad.export.graph import DOUBLE, Graph
from cometad.export.rules import RULE_GRAPHS
from cometad.export.step import (
    ALERT_SCORE,
    FLAG,
    NEXT_STATE,
    READING,
    STATE,
    THRESHOLD,
    TIME,
    VARIABLE_SCORES,
    needs_time,
    step_of,
)
from cometad.export.views import VIEW_GRAPHS
from cometad.files import write_whole

OPSET, IR_VERSION = 17, 8  # old enough for older runtimes; tried with onnxruntime 1.15
PRODUCER = "cometad"
DOCUMENTED = {
    READING: "one reading (1, variable), in sensor units and in the order of the variables",
    TIME: "local time (1,) of the reading, in seconds since 1970: what its clock shows, read as if it were UTC",
    STATE: "next_state of the previous reading; zeros for the first one",
    ALERT_SCORE: "the alert score (1,), as in a cometad stream; NaN if a value of the reading is not finite",
    VARIABLE_SCORES: "each variable's calibrated score (1, variable)",
    THRESHOLD: "the threshold (1,) that applies to this alert score",
    FLAG: "1 if the alert score is above the threshold, else 0",
    NEXT_STATE: "the state for the next reading; unchanged if a value of the reading is not finite",
}


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
    for view, fitted in zip(comet.kept_, comet.views_, strict=True):
        if type(fitted) not in VIEW_GRAPHS:
            raise ParameterError(
                f"The view {type(view).__name__} cannot be exported to ONNX. Fit the detector with other views."
            )
    if type(comet.threshold) not in RULE_GRAPHS:
        raise ParameterError(
            f"The threshold {comet.threshold!r} cannot be exported to ONNX.", advice="exportable threshold"
        )
    return comet


@dataclass(frozen=True)
class Exported:
    """A description of an exported file: its variables, its state, and its agreement with the detector."""

    variables: tuple[str, ...]
    delay: int  # readings by which a score lags
    warm_up: int  # readings before all views contribute to the score
    threshold: str
    timezone: str | None  # of the input `time`; None without it
    state: list[dict[str, object]]  # name, offset, shape and meaning of each part
    state_size: int  # numbers
    agreement: Agreement
    file_bytes: int

    @property
    def state_bytes(self) -> int:
        """Size of the state."""
        return 8 * self.state_size

    def as_json(self) -> dict[str, Any]:
        """The description as JSON values, as in the metadata of the file."""
        return {
            "variables": list(self.variables),
            "delay": self.delay,
            "warm_up": self.warm_up,
            "threshold": self.threshold,
            "timezone": self.timezone,
            "state": {"size": self.state_size, "bytes": self.state_bytes, "initial": "zeros", "parts": self.state},
            "checked": self.agreement._asdict(),
        }


def to_onnx(detector: Detector, path: str | os.PathLike[str]) -> Exported:
    """Export the live scoring of a fitted detector as an ONNX file, and return its description.

    The graph takes one reading and a state, and returns the alert score, the variable scores, the threshold, the flag
    and the next state. The file is first checked on generated series in onnxruntime; if its scores or flags differ from
    the detector's, nothing is written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cometad import Comet
    >>> from cometad.export import to_onnx
    >>> detector = Comet().fit(np.random.default_rng(0).normal(size=(600, 3)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = to_onnx(detector, Path(folder) / "plant.onnx")
    >>> written.delay, written.state_size, written.agreement.difference < 1e-9
    (0, 105, True)
    """
    comet = exportable(detector)
    graph, layout = step_of(comet)
    model = _model(graph, layout.size, comet)
    agreement = checked(comet, model.SerializeToString())
    found = Exported(
        variables=comet.names_,
        delay=0,
        warm_up=comet.panel_.context,
        threshold=repr(comet.threshold),
        timezone=comet.timezone if needs_time(comet) else None,
        state=layout.described(),
        state_size=layout.size,
        agreement=agreement,
        file_bytes=0,
    )
    for name, value in found.as_json().items():
        model.metadata_props.add(key=f"{PRODUCER}.{name}", value=json.dumps(value))
    written = model.SerializeToString()
    write_whole(path, lambda temporary: temporary.write_bytes(written))
    return replace(found, file_bytes=len(written))


def _model(graph: Graph, state_size: int, comet: Comet) -> ModelProto:
    row, state, times = (1, len(comet.names_)), (state_size,), [_info(TIME, (1,))] if needs_time(comet) else []
    inputs = [_info(READING, row), _info(STATE, state), *times]
    numbers = [_info(name, (1,)) for name in (ALERT_SCORE, THRESHOLD, FLAG)]
    outputs = [*numbers, _info(VARIABLE_SCORES, row), _info(NEXT_STATE, state)]
    body = helper.make_graph(graph.nodes, PRODUCER, inputs, outputs, graph.initializers)
    return helper.make_model(
        body,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=version("cometad"),
    )


def _info(name: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, DOUBLE, shape, DOCUMENTED[name])
