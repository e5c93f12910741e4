"""Rules given as text: NAME or NAME:VALUE."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cometad.errors import ParameterError, unknown

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
