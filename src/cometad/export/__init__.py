"""Export detectors to ONNX, for devices without Python or cometad."""

from cometad.errors import imported_for

imported_for("cometad.export", "onnx")  # first, so that its absence is reported in one sentence
imported_for("cometad.export", "onnxruntime")

from cometad.export.onnx_file import Exported as Exported
from cometad.export.onnx_file import to_onnx as to_onnx
