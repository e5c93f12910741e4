"""Parameters in JSON."""

import dataclasses
from typing import Any

import numpy as np

from cometad.validation import VARIANTS


def as_json(value: Any) -> Any:
    """A parameter as JSON can hold it.

    >>> from cometad.network import Epochs
    >>> from cometad.registry import as_json, from_json
    >>> as_json(Epochs(3)), from_json(as_json((2, 4)))
    ({'kind': 'Epochs', 'epochs': 3, 'learning_rate': 0.0001}, (2, 4))
    """
    if type(value).__name__ in VARIANTS:
        fields = {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, np.generic):
        return value.item()
    return [as_json(item) for item in value] if isinstance(value, tuple | list) else value


def from_json(value: Any) -> Any:
    """A parameter as `as_json` gave it."""
    if isinstance(value, dict):
        fields = dict(value)
        return VARIANTS[fields.pop("kind")](**fields)
    return tuple(value) if isinstance(value, list) else value
