"""The paper's own tables as data, only shown next to our figures."""

import json
from importlib.resources import files

from cometad_bench.results import Record

# Arms of our own experiments that the paper has in other tables: (experiment, arm) there, and the arm here.
_SAME = {
    "unit": {
        ("main", "comet-paper"): "windows 128",
        ("ablation", "w/o quant score"): "windows 128 w/o quant score",
        ("ablation", "w/o memory score"): "windows 128 w/o memory score",
    }
}


def published(experiment: str) -> list[Record]:
    """Return the paper's figures for an experiment, as fractions; empty if the paper has no such table."""
    lines = (files("cometad_bench") / "published.jsonl").read_text(encoding="utf-8").splitlines()
    same = _SAME.get(experiment, {})
    return [
        record | {"arm": same.get((record["experiment"], record["arm"]), record["arm"])}
        for record in map(json.loads, lines)
        if record["experiment"] == experiment or (record["experiment"], record["arm"]) in same
    ]
