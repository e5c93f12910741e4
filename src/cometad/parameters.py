"""Parameters by name, as scikit-learn expects them, without importing scikit-learn: that takes more than a second."""

import inspect
from typing import Any, Self

from cometad.errors import unknown


class Parameters:
    """A base class whose parameters are the arguments of `__init__`, each stored under its own name.

    scikit-learn's `clone`, `Pipeline` and `check_is_fitted` accept it.

    >>> from cometad.parameters import Parameters
    >>> class Dial(Parameters):
    ...     def __init__(self, *, low=0, high=1):
    ...         self.low, self.high = low, high
    >>> Dial(high=5).get_params(), Dial().set_params(low=-1)
    ({'high': 5, 'low': 0}, Dial(low=-1))
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(_defaults(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, in alphabetical order; `deep` makes no difference, because none is a detector."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def set_params(self, **changes: Any) -> Self:
        """Change parameters, and return the object itself."""
        for name, value in changes.items():
            if name not in _defaults(type(self)):
                raise unknown("parameter", name, self._get_param_names())
            setattr(self, name, value)
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


def _defaults(cls: type) -> dict[str, Any]:
    """The default of each argument of `__init__`."""
    arguments = list(inspect.signature(cls).parameters.values())
    return {one.name: one.default for one in arguments if one.kind is not one.VAR_KEYWORD}
