"""The configurations of Comet that are compared on `select`: listed in `configurations.toml` before they run."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from cometad.errors import InputError, unknown
from cometad.views import VIEWS
from cometad.views.view import View

MOST = 24
FIELDS = ("name", "views", "pooling", "smoothing")


@cache
def configurations() -> dict[str, dict[str, Any]]:
    """Return the listed parameters of Comet by the name of the configuration."""
    return parsed((files("cometad_bench") / "configurations.toml").read_text(encoding="utf-8"))


def parsed(text: str) -> dict[str, dict[str, Any]]:
    """Return the configurations in a TOML text."""
    content = tomllib.loads(text)
    rows = content.pop("configuration")
    if len(rows) > MOST:
        raise InputError(f"There are {len(rows)} configurations; list at most {MOST}, so that the choice stays honest.")
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["name"] in found:
            raise InputError(f"Two configurations are named {row['name']!r}. Rename one of them.")
        found[row["name"]] = _parameters(content | row)
    return found


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    for name in row:
        if name not in FIELDS:
            raise unknown("field of a configuration", name, FIELDS)
    parameters: dict[str, Any] = {"views": tuple(_view(view) for view in row["views"])}
    parameters |= {"pooling": row["pooling"]} if "pooling" in row else {}
    return parameters | ({"smoothing": tuple(row["smoothing"])} if "smoothing" in row else {})


def _view(row: Mapping[str, Any]) -> View:
    fields = dict(row)
    kind = fields.pop("kind")
    if kind not in VIEWS:
        raise unknown("view", kind, VIEWS)
    view: View = VIEWS[kind](**fields)
    return view


def labels(views: Sequence[View]) -> list[str]:
    """Return a short name for each view: its kind, and its first field if there are several of that kind."""
    kinds = [type(view).__name__.lower() for view in views]
    return [
        f"{kind} {next(iter(vars(view).values()))}" if kinds.count(kind) > 1 else kind
        for kind, view in zip(kinds, views, strict=True)
    ]
