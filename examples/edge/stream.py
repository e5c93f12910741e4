"""Score readings on a device that has onnxruntime and numpy, but not cometad.

    python stream.py plant.onnx [STATE] < today.csv > scores.jsonl

The header of the CSV names the variables, in any order. A reading with a cell that is not a finite number gets no
score. If MODEL has a season, the column 'time' has local times like 2026-03-01 12:00:00. With a file STATE, a stream
continues where the last one ended.
"""

import csv
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime as ort


def main(model: str, saved: str | None = None) -> None:
    """Print one line of JSON per reading."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # the graph is small: more threads would only wait for each other
    session = ort.InferenceSession(model, options)
    names = json.loads(session.get_modelmeta().custom_metadata_map["cometad.variables"])
    shapes = {each.name: each.shape for each in session.get_inputs()}
    (size,) = shapes["state"]
    outputs = ["alert_score", "variable_scores", "threshold", "flag", "next_state"]

    state = np.zeros(size)  # zeros start a new stream
    if saved is not None and Path(saved).exists():
        state = np.fromfile(saved)
        if state.size != size:
            sys.exit(f"'{saved}' is not a state of '{model}'. Delete it to start anew.")
    sys.stdin.reconfigure(encoding="utf-8-sig")  # which may begin with a byte order mark
    rows = csv.DictReader(sys.stdin)
    missing = {*names, *shapes.keys() & {"time"}} - set(rows.fieldnames or [])
    if missing:
        sys.exit(f"The header has no column '{min(missing)}'.")
    for row in rows:
        reading = np.array([[number(row[name]) for name in names]])
        given = {"reading": reading, "state": state}
        if "time" in shapes:
            given["time"] = np.array([seconds(row["time"])])
        score, variables, threshold, flag, state = session.run(outputs, given)
        judged = bool(np.isfinite(score[0]))
        line = {
            "alert_score": score[0] if judged else None,
            "threshold": threshold[0],
            "flag": int(flag[0]),
            "variable": names[int(variables[0].argmax())] if judged else None,
        }
        print(json.dumps(line))
    if saved is not None:
        state.tofile(f"{saved}.new")
        Path(f"{saved}.new").replace(saved)  # so that a program killed here leaves a whole state


def number(cell: str | None) -> float:
    """The value of a cell; NaN if it is not a number."""
    try:
        return float(cell or "nan")
    except ValueError:
        return float("nan")


def seconds(cell: str | None) -> float:
    """A local time as seconds since 1970; NaN if it is not a time."""
    try:
        return datetime.fromisoformat(cell or "").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("nan")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("Usage: python stream.py MODEL.onnx [STATE] < READINGS.csv")
    main(*sys.argv[1:])
