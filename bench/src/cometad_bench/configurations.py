"""The configurations of Comet that are compared on `select`: listed in `configurations.toml` before they run."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from cometad.views import VIEWS
from cometad.views.view import View

MOST = 24  # so that the choice stays honest


@cache
def configurations() -> dict[str, dict[str, Any]]:
    content = tomllib.loads((files("cometad_bench") / "configurations.toml").read_text(encoding="utf-8"))
    rows = content.pop("configuration")
    return {row["name"]: _parameters(content | row) for row in rows}


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: tuple(value) if name == "smoothing" else value for name, value in row.items() if name != "name"}
    return own | {"views": tuple(_view(**view) for view in row["views"])}


def _view(kind: str, **fields: Any) -> View:
    view: View = VIEWS[kind](**fields)
    return view


def labels(views: Sequence[View]) -> list[str]:
    """Return a short name for each view: its kind, and its first field if there are several of that kind."""
    kinds = [type(view).__name__.lower() for view in views]
    return [
        f"{kind} {next(iter(vars(view).values()))}" if kinds.count(kind) > 1 else kind
        for kind, view in zip(kinds, views, strict=True)
    ]
