"""Score readings on a device that has onnxruntime and numpy, but not cometad.

    python stream.py plant.onnx [STATE] < today.csv > scores.jsonl

The header of the CSV names the variables, in any order. With a file STATE the stream goes on where it stopped.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort


def main(model: str, saved: str | None = None) -> None:
    """Print one line of JSON per reading."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # the graph is small: more threads would only wait for each other
    session = ort.InferenceSession(model, options)
    names = json.loads(session.get_modelmeta().custom_metadata_map["cometad.variables"])
    size = next(each.shape[0] for each in session.get_inputs() if each.name == "state")
    outputs = ["alert_score", "variable_scores", "threshold", "flag", "next_state"]

    state = np.zeros(size)  # zeros start a new stream
    if saved is not None and Path(saved).exists():
        state = np.fromfile(saved)
    for row in csv.DictReader(sys.stdin):
        reading = np.array([[float(row[name] or "nan") for name in names]])
        score, variables, threshold, flag, state = session.run(outputs, {"reading": reading, "state": state})
        judged = None if np.isnan(score[0]) else score[0]  # of a reading with an empty cell there is no score
        line = {"alert_score": judged, "threshold": threshold[0], "flag": int(flag[0])}
        print(json.dumps(line | {"variable": names[int(variables[0].argmax())]}))
    if saved is not None:
        state.tofile(saved)


if __name__ == "__main__":
    main(*sys.argv[1:])
