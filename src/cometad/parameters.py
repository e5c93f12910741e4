"""Parameters by name, as scikit-learn expects them, without importing scikit-learn: that takes more than a second."""

import dataclasses
import inspect
from typing import Any, Self

from cometad.errors import ParameterError, unknown

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
        """The class with the parameters that differ from their defaults."""
        defaults = _defaults(type(self))
        shown = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={text}" for name, text in shown.items() if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """The tags that scikit-learn asks an estimator for: the default ones."""
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
    """The default of each argument of `__init__`."""
    arguments = list(inspect.signature(cls).parameters.values())
    return {one.name: one.default for one in arguments if one.kind is not one.VAR_KEYWORD}
