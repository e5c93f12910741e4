#!/usr/bin/env bash
# Build the wheel and use it in empty environments, without torch and without this checkout: with the versions of
# constraints.txt, and with the service and the lowest versions that pyproject.toml allows.
#
#     tests/wheel.sh PYTHON    of an environment with uv
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset PYTHONPATH

"$python" -m pip wheel --quiet --no-deps --wheel-dir . "$root"
install() { "$python" -m uv pip install --quiet --python "$1/bin/python" "${@:2}"; }
for versions in pinned lowest; do "$python" -m venv $versions; done
install pinned --constraints "$root/constraints.txt" cometad-*.whl
install lowest --resolution lowest-direct --requirements "$root/pyproject.toml" --extra serve
install lowest --no-deps cometad-*.whl

"$python" - <<'PYTHON'
import math

with open("normal.csv", "w") as normal, open("today.csv", "w") as today:
    for file, fault in ((normal, 0), (today, 9)):
        file.write("flow,level,heat\n")
        for t in range(600):
            readings = [math.sin(t / 7), math.cos(t / 7), math.sin(t / 7) * math.cos(t / 7)]
            readings[1] += fault * (300 <= t < 310)
            file.write(",".join(f"{value + 0.01 * math.sin(t * t):.4f}" for value in readings) + "\n")
PYTHON

for versions in pinned lowest; do
  if $versions/bin/python -c 'import torch' 2>/dev/null; then
    echo "torch was installed, but cometad must not depend on it." >&2
    exit 1
  fi
  cometad="$versions/bin/cometad"
  $cometad fit normal.csv -o $versions.comet
  $cometad score $versions.comet today.csv -o $versions.csv
  $cometad stream $versions.comet < today.csv > stream.jsonl
  test "$(wc -l < stream.jsonl)" -ge 600
  $cometad explain $versions.comet today.csv --step 305 > why.txt
  grep -q level why.txt
  "$python" - $versions.csv <<'PYTHON'
import csv
import sys

with open(sys.argv[1]) as file:
    flagged = {int(row["step"]) for row in csv.DictReader(file) if row["anomaly"] == "1"}
if not flagged & set(range(300, 310)):
    sys.exit("The planted fault was not flagged.")
PYTHON
done

# What needs an extra says so and exits with code 2.
refuses() {
  local extra="$1" code=0
  pinned/bin/cometad "${@:2}" 2> said.txt || code=$?
  if [ "$code" -ne 2 ] || ! grep -q "needs $extra. Install it with pip install 'cometad\[$extra\]'" said.txt; then
    cat said.txt >&2
    exit 1
  fi
}
refuses torch fit normal.csv -o never.comet --preset paper
refuses onnx export pinned.comet -o plant.onnx

# The service takes a detector and a reading, and ends in order.
port="$("$python" -c 'import socket; one = socket.create_server(("127.0.0.1", 0)); print(one.getsockname()[1])')"
lowest/bin/cometad serve --port "$port" --data-dir data 2> serve.log &
at="http://127.0.0.1:$port"
asks() { curl --silent --show-error --fail --output /dev/null --max-time 30 "$@" || { cat serve.log >&2; exit 1; }; }
asks --retry 60 --retry-delay 1 --retry-connrefused "$at/readyz"
asks --upload-file lowest.comet --header 'Content-Type: application/octet-stream' "$at/v1/detectors/pump"
asks --request PUT --json '{"detector": "pump"}' "$at/v1/streams/one"
asks --json '[{"time": 0, "flow": 1, "level": 2, "heat": 0}]' "$at/v1/streams/one/readings"
asks "$at/v1/streams/one"
kill %1
wait %1
echo "The wheel works without torch, and with the lowest versions."
