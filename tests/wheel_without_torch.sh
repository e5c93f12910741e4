#!/usr/bin/env bash
# Build the wheel, install it alone into an empty environment, and use it there: without torch and without this checkout.
#
#     tests/wheel_without_torch.sh [PYTHON]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="${1:-python3}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" "$root"
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$folder"/cometad-*.whl

cd "$folder"
unset PYTHONPATH
if venv/bin/python -c 'import torch' 2>/dev/null; then
  echo "torch was installed, but cometad must not depend on it." >&2
  exit 1
fi
venv/bin/python - <<'PYTHON'
import math

with open("normal.csv", "w") as normal, open("today.csv", "w") as today:
    for file, fault in ((normal, 0), (today, 9)):
        file.write("flow,level,heat\n")
        for t in range(600):
            readings = [math.sin(t / 7), math.cos(t / 7), math.sin(t / 7) * math.cos(t / 7)]
            readings[1] += fault * (300 <= t < 310)
            file.write(",".join(f"{value + 0.01 * math.sin(t * t):.4f}" for value in readings) + "\n")
PYTHON
venv/bin/cometad fit normal.csv -o plant.comet
venv/bin/cometad score plant.comet today.csv -o scores.csv
venv/bin/cometad stream plant.comet < today.csv > stream.jsonl
test "$(wc -l < stream.jsonl)" -ge 600
venv/bin/cometad explain plant.comet today.csv --step 305 > why.txt
grep -q level why.txt
venv/bin/python - <<'PYTHON'
import csv
import sys

with open("scores.csv") as file:
    flagged = {int(row["step"]) for row in csv.DictReader(file) if row["anomaly"] == "1"}
if not flagged & set(range(300, 310)):
    sys.exit("The planted fault was not flagged.")
PYTHON
# What needs torch says so and exits with code 2.
code=0
venv/bin/cometad fit normal.csv -o never.comet --preset paper 2> said.txt || code=$?
if [ "$code" -ne 2 ] || ! grep -q "needs torch. Install it with pip install 'cometad\[torch\]'" said.txt; then
  cat said.txt >&2
  exit 1
fi
# So does what needs onnx.
code=0
venv/bin/cometad export plant.comet -o plant.onnx 2> said.txt || code=$?
if [ "$code" -ne 2 ] || ! grep -q "needs onnx. Install it with pip install 'cometad\[onnx\]'" said.txt; then
  cat said.txt >&2
  exit 1
fi
echo "The wheel works without torch."
