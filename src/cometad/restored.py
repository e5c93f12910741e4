"""Checks of what a saved file holds: each stage takes its arrays and facts through these when it is restored.

A file may come from anyone. An array of another shape would crash a kernel or make it read other memory, and a value
that is not finite would make scores NaN.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cometad.arrays import Array
from cometad.errors import ModelFileError

LARGEST = {4: 1e18, 8: 1e150}  # bytes of a float: a value whose square still fits


class InvalidState(ModelFileError):
    """A part of a saved state is not what its stage can work with; `cometad.checkpoint.restoring` adds the source."""


def taken(
    state: Mapping[str, Array],
    name: str,
    shape: tuple[int | str, ...],
    dtype: Any = np.float64,
    *,
    unknown: bool = False,
) -> Array:
    """A saved array, if it has this dtype and shape; a length that may vary is named, and "length?" may be 0.

    Values must be finite, unless some may be `unknown`: NaN or infinite.
    """
    require_state(name in state, f"it has no array {name!r}")
    array = state[name]
    fits = array.ndim == len(shape) and all(
        _fits(size, wanted) for size, wanted in zip(array.shape, shape, strict=True)
    )
    comma = "," if len(shape) == 1 else ""
    wanted = f"({', '.join(str(size).rstrip('?') for size in shape)}{comma})"
    require_state(fits, f"its array {name!r} has the shape {array.shape} instead of {wanted}")
    require_state(array.dtype == dtype, f"its array {name!r} holds {array.dtype} instead of {np.dtype(dtype)}")
    if not unknown and array.dtype.kind == "f":
        check_finite(name, array)
    return array


def _fits(size: int, wanted: int | str) -> bool:
    return size == wanted if isinstance(wanted, int) else size > 0 or wanted.endswith("?")


def check_finite(name: str, array: Array) -> None:
    """Refuse an array with values that are NaN, infinite or too large to compute with."""
    finite = bool((np.abs(array) <= LARGEST[array.itemsize]).all())  # False for NaN
    require_state(finite, f"its array {name!r} has values that are not finite")


def counted(value: object, name: str, least: int = 0, most: int = 2**53) -> int:
    """A saved fact, if it is an integer from `least` to `most`."""
    fits = type(value) is int and least <= value <= most
    require_state(fits, f"its {name!r} is not an integer from {least} to {most:,}")
    return value  # type: ignore[return-value]


def of_type(value: object, kind: type, name: str) -> Any:
    """A saved fact, if it has this type."""
    require_state(type(value) is kind, f"its {name!r} is not a {kind.__name__}")
    return value


def texts(value: object, name: str) -> tuple[str, ...]:
    """A saved list of texts."""
    fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
    require_state(fits, f"its {name!r} is not a list of texts")
    return tuple(value)  # type: ignore[arg-type]


def require_state(holds: bool, problem: str) -> None:
    """Refuse a saved state unless a condition holds; `problem` completes "The file is not valid: "."""
    if not holds:
        raise InvalidState(f"{problem}.")
