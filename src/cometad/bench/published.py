"""The paper's own tables as data, only shown next to our figures."""

import json
from importlib.resources import files

from cometad.bench.results import Record


def published(experiment: str) -> list[Record]:
    """Return the paper's figures for an experiment, as fractions; empty if the paper has no such table.

    >>> from cometad.bench.published import published
    >>> [line["metrics"]["auc_roc"] for line in published("main") if (line["dataset"], line["arm"]) == ("MSL", "vtt")]
    [0.5901]
    >>> published("entity")
    []
    """
    lines = (files("cometad.bench") / "published.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["experiment"] == experiment]
