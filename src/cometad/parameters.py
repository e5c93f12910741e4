"""Parameters: checks, by name as scikit-learn expects them, and from text such as NAME or NAME:VALUE."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, ParamSpec, Self, TypeVar

from cometad.errors import ParameterError, imported_for, unknown

# Checks of scikit-learn's `check_estimator` that a detector does not pass, and why: its `expected_failed_checks`.
_ORDER = "A score depends on the readings before it, so their order matters, and one alone may have no score."
_FROZEN = (
    "Defaults such as Budget(rate=0.01) are frozen dataclasses: they are as safe to share as the numbers, text and "
    "tuples that the check allows, and say more in a signature than None."
)
EXPECTED_FAILED_CHECKS = {
    "check_methods_sample_order_invariance": _ORDER,
    "check_methods_subset_invariance": _ORDER,
    "check_parameters_default_constructible": _FROZEN,
}


class Parameters:
    """A base class whose parameters are the arguments of `__init__`, each stored under its own name.

    scikit-learn's `clone`, `Pipeline` and `check_is_fitted` accept it.
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(_defaults(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, in alphabetical order; `deep` makes no difference, because none is a detector."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def set_params(self, **changes: Any) -> Self:
        """Change parameters or, as in `threshold__rate`, one field of a parameter; return the object itself."""
        for name, value in sorted(changes.items(), key=lambda change: "__" in change[0]):  # whole parameters first
            own, _, field = name.partition("__")
            if own not in _defaults(type(self)):
                raise unknown("parameter", own, self._get_param_names())
            setattr(self, own, with_field(getattr(self, own), field, value, name) if field else value)
        return self

    def __repr__(self) -> str:
        defaults = _defaults(type(self))
        shown = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={text}" for name, text in shown.items() if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()


def with_field(value: Any, field: str, to: Any, name: str) -> Any:
    """A copy of a dataclass with another value of a field; `name` is the parameter that an error is about."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise ParameterError(f"Cannot set {name!r}: {value!r} has no fields. Pass a new object instead.")
    known = [own.name for own in dataclasses.fields(value)]
    if field not in known:
        raise unknown("parameter", name, [f"{name.partition('__')[0]}__{own}" for own in known])
    return dataclasses.replace(value, **{field: to})


def _defaults(cls: type) -> dict[str, Any]:
    arguments = list(inspect.signature(cls).parameters.values())
    return {one.name: one.default for one in arguments if one.kind is not one.VAR_KEYWORD}


P = ParamSpec("P")


def refusing(removed: Mapping[str, str]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A decorator of `__init__`: the error for a removed parameter says where it is now; the signature stays."""

    def wrap(init: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(init)
        def checked(*args: P.args, **parameters: P.kwargs) -> None:
            for name in parameters:
                if name in removed:
                    kind, now = init.__qualname__.partition(".")[0], removed[name].format(name=name)
                    raise ParameterError(f"{kind} no longer has the parameter {name!r}. {now}")
            init(*args, **parameters)

        return checked

    return wrap


Made = TypeVar("Made")


def split(text: str) -> tuple[str, str | None]:
    """Split a text at its first colon; without a colon the second part is None."""
    name, colon, value = text.partition(":")
    return name, value if colon else None


def parse(
    text: str, rules: Mapping[str, Callable[..., Made]], *, kind: str, value: str, convert: Callable[[str], Any]
) -> Made:
    """Parse a rule: the dataclass or function of that name, called with the value if there is one.

    `kind` and `value` name the rule and its value in errors.
    """
    name, given = split(text)
    if name not in rules:
        raise unknown(kind, name, rules)
    if given is None:
        return rules[name]()
    rule: Any = rules[name]
    takes_value = not dataclasses.is_dataclass(rule) or bool(dataclasses.fields(rule))
    try:
        if not takes_value:
            raise ValueError
        converted = convert(given)
    except ValueError as error:
        forms = f"{name} or {name}:{value}" if takes_value else name
        raise ParameterError(f"Cannot read the {kind} {text!r}. Write it as {forms}.") from error
    try:
        return rules[name](converted)
    except ParameterError as error:
        raise ParameterError(f"Cannot use the {kind} {text!r}. {error}") from error


Rule = Callable[[str, Any], None]  # takes the name and value of a parameter; raises if the value is invalid


def check(values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Refuse the first parameter that breaks its rule; parameters without a rule pass."""
    for name, value in values.items():
        if name in rules:
            rules[name](name, value)


def integer(least: int, most: int | None = None, *, optional: bool = False) -> Rule:
    """The rule for an integer of at least `least` and, if given, at most `most`, or None where `optional`."""
    return lambda name, value: None if optional and value is None else check_integer(name, value, least, most)


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
    if not holds:
        raise ParameterError(f"The '{name}' parameter must be {wanted}. Got {got!r} instead.")


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
