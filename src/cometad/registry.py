"""Strategies by name: how a threshold, a selection, a gap rule or an adaptation is written to a file and read back.

A file holds the name a class was registered under and its fields. Loading looks the name up here; it never imports code
named by a file. To save a detector that uses your own class, make it a dataclass and register it:
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from cometad.errors import ModelFileError, ParameterError, imported_for

Kind = TypeVar("Kind", bound=type)

_KINDS: dict[str, Any] = {}
_LATER: dict[str, str] = {}  # name: the module that registers it
_EARLIER: dict[str, dict[str, Any]] = {}  # name: fields that a file of an earlier version lacks, and what they were


def register(name: str, **earlier: Any) -> Callable[[Kind], Kind]:
    """Decorate a dataclass to register it under this name, so that detectors that use it can be saved and loaded.

    `earlier` gives the values of fields that files saved before they existed do not have.
    """

    def add(kind: Kind) -> Kind:
        if not dataclasses.is_dataclass(kind):
            raise ParameterError(f"Only a dataclass can be registered. Decorate {kind.__name__} with @dataclass first.")
        taken = _KINDS.setdefault(name, kind)
        # Defining the same class again, as when a notebook cell runs twice, replaces the old one.
        if (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ParameterError(f"The name {name!r} is registered for {taken.__qualname__}. Choose another name.")
        _KINDS[name], _EARLIER[name] = kind, earlier
        return kind

    return add


def register_later(name: str, module: str) -> None:
    """Say which module registers a name; it is imported when a file uses the name."""
    _LATER[name] = module


def to_json(value: Any, parameter: str = "value") -> Any:
    """A parameter in types that JSON can hold: numbers, text and lists as they are, a strategy by its name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [to_json(item, parameter) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {"kind": "dict", "items": [[name, to_json(item, parameter)] for name, item in value.items()]}
    for name, kind in _KINDS.items():
        if type(value) is kind:
            fields = {field.name: to_json(getattr(value, field.name), parameter) for field in dataclasses.fields(value)}
            # As the earlier version wrote it: snapshots compare the parameters of their detector.
            return {"kind": name} | {
                field: part for field, part in fields.items() if not _is_earlier(name, field, part)
            }
    raise ParameterError(
        f"The '{parameter}' parameter is a {type(value).__name__}, a class without a registered name. "
        f'Decorate it with @cometad.registry.register("a-name-of-yours") before saving.'
    )


def _is_earlier(name: str, field: str, value: Any) -> bool:
    return field in _EARLIER[name] and bool(_EARLIER[name][field] == value)


def describe(value: Any) -> Any:
    """Like `to_json`, but an unregistered object becomes its repr: to show or compare a parameter, not to save it."""
    try:
        return to_json(value)
    except ParameterError:
        return repr(value)


def from_json(value: Any) -> Any:
    if isinstance(value, dict):
        fields = dict(value)
        name = fields.pop("kind", None)
        if name == "dict":
            return dict(from_json(fields["items"]))
        if name in _LATER:
            imported_for(name, _LATER[name])
        if name not in _KINDS:
            raise ModelFileError(
                f"The detector uses {name!r}, which is not registered here. Import the module that registers it, "
                "then load the file again."
            )
        return _KINDS[name](**_EARLIER[name] | {field: from_json(part) for field, part in fields.items()})
    return tuple(from_json(item) for item in value) if isinstance(value, list) else value
