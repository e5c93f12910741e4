"""Parameter checks: an invalid value gets an error of one sentence.

A detector lists its rules in a table (`{"window": integer(1), "scaler": choice(SCALERS)}`) and calls `check` in `fit`,
not in its constructor, as scikit-learn asks. A strategy such as `Quantile` checks its own few numbers when it is
created.
"""

import math
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

from cometad.errors import ParameterError, imported_for, unknown

Rule = Callable[[str, Any], None]  # takes the name and value of a parameter; raises if the value is invalid


def check(values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Refuse the first parameter that breaks its rule; parameters without a rule pass."""
    for name, value in values.items():
        if name in rules:
            rules[name](name, value)


def integer(least: int, most: int | None = None) -> Rule:
    """The rule for an integer of at least `least` and, if given, at most `most`."""
    return lambda name, value: check_integer(name, value, least, most)


def number(low: float, high: float, *, above: bool = False, below: bool = False, optional: bool = False) -> Rule:
    """The rule for a number from `low` to `high`: strictly `above` low, `below` high, or None where `optional`."""

    def rule(name: str, value: Any) -> None:
        if value is not None or not optional:
            check_number(name, value, low, high)
            require(value > low or not above, name, f"above {low}", value)
            require(value < high or not below, name, f"below {high}", value)

    return rule


def share_or_count(name: str, value: Any) -> None:
    """The rule for a part of a series: a share below 1, or a number of readings."""
    fits = (is_integer(value) and value >= 0) or (_is_finite(value) and 0 <= value < 1)
    require(fits, name, "a share from 0 to below 1 or a number of readings", value)


def choice(known: Collection[str]) -> Rule:
    """The rule for a name that must be one of those known."""

    def rule(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in known:
            raise unknown(name.replace("_", " "), value, known)

    return rule


def strategy(*members: str) -> Rule:
    """The rule for any object with these methods and attributes: built in or the user's own."""
    *others, last = members
    wanted = f"an object with {', '.join(others)} and {last}" if others else f"an object with {last}"

    def rule(name: str, value: Any) -> None:
        fits = not isinstance(value, type) and all(hasattr(value, member) for member in members)
        require(fits, name, wanted, value)

    return rule


def device(name: str, value: Any) -> None:
    """The rule for a device: "cpu", "cuda" or "cuda:1"."""
    kind, _, place = str(value).partition(":")
    if not isinstance(value, str) or kind not in ("cpu", "cuda") or (place and not place.isdecimal()):
        raise unknown("device", value, ["cpu", "cuda"])
    if kind == "cuda" and not imported_for(f"The device {value!r}", "torch").cuda.is_available():
        raise ParameterError("The device 'cuda' is not available on this machine. Use 'cpu'.")


def is_integer(value: object) -> bool:
    """Whether a value is a Python or numpy integer; booleans do not count."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse a parameter unless it is an integer of at least `least` and, if given, at most `most`."""
    fits = is_integer(value) and value >= least and (most is None or value <= most)
    wanted = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
    require(fits, name, wanted, value)


def check_number(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a parameter unless it is a finite number from `low` to `high`, both included."""
    fits = _is_finite(value) and low <= value <= high
    require(fits, name, f"a number between {low} and {high}", value)


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a parameter unless it is a number strictly between `low` and `high`."""
    fits = _is_finite(value) and low < value < high
    require(fits, name, f"a number above {low} and below {high}", value)


def require(holds: bool, name: str, wanted: str, got: object) -> None:
    """Refuse a parameter unless a condition holds."""
    if not holds:
        raise ParameterError(f"The '{name}' parameter must be {wanted}. Got {got!r} instead.")


def is_number(text: str) -> bool:
    """Whether Python reads this text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
