"""The base classes of the baselines: parameters are dataclass fields, fitted state is a set of named arrays."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.alerting.thresholds import Quantile
from cometad.alerting.watch import Threshold
from cometad.arrays import Array, Floats, Floats32
from cometad.data.gaps import Gaps, RefuseGaps
from cometad.data.windows import learnable
from cometad.detector import RULES as SHARED_RULES
from cometad.detector import Detector
from cometad.restored import taken
from cometad.series import Series
from cometad.validation import Rule, check, choice, integer, number

READINGS_AT_ONCE = 8192

RULES: dict[str, Rule] = SHARED_RULES | {"patience": integer(0), "dropout": number(0, 1, below=True)}


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(Detector):
    """A detector whose parameters are its dataclass fields.

    Parameters are checked against their defaults: an integer must be at least 1, a float at least 0, and a string one
    of its `choices`. Every baseline accepts `seed`, `device` and `verbose`, even if it ignores them, so that the same
    arguments can be passed to all detectors in a comparison.
    """

    choices: ClassVar[dict[str, Collection[str]]] = {}
    learned: ClassVar[tuple[str, ...]] = ()  # the attributes set by `_learn`, all arrays
    # Their shapes, to check a saved file; "variable" is the number of variables. Without one, it is not checked.
    shapes: ClassVar[Mapping[str, tuple[int | str, ...]]] = {}
    dtypes: ClassVar[Mapping[str, type]] = {}  # of those that have a shape and are not float64

    scaler: str = "standard"
    gaps: Gaps = RefuseGaps()
    threshold: Threshold = Quantile(rate=0.01)
    seed: int = 42
    device: str = "cpu"
    verbose: bool = False

    def check_parameters(self) -> None:
        """Refuse invalid parameters, as `fit` does first."""
        signature = inspect.signature(type(self)).parameters
        defaults = {name: parameter.default for name, parameter in signature.items()}
        rules = {name: _rule_of(default) for name, default in defaults.items() if not isinstance(default, bool | str)}
        rules |= RULES | {name: choice(known) for name, known in self.choices.items()}
        check(self.get_params(deep=False), rules)

    def _state(self) -> Mapping[str, Array]:
        return {name: getattr(self, name) for name in self.learned}

    def _take_state(self, state: Mapping[str, Array]) -> None:
        width = self.n_features_in_
        for name in self.learned:
            array, dtype = state[name], self.dtypes.get(name, np.float64)
            if name in self.shapes:
                shape = tuple(width if size == "variable" else size for size in self.shapes[name])
                array = taken(state, name, shape, dtype)
            setattr(self, name, array)


@dataclass(kw_only=True, eq=False, repr=False)
class ReadingBaseline(Baseline):
    """A baseline that scores each reading on its own, in chunks, so that memory does not grow with the series."""

    def _learn(self, scaled: Floats32, series: Series) -> None:
        if series.doubtful is not None:
            scaled = scaled[learnable(np.arange(len(scaled)), 1, series)]
        self._learn_readings(scaled)

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        chunks = range(0, len(scaled), READINGS_AT_ONCE)
        return np.concatenate(
            [self._score_readings(scaled[begin : begin + READINGS_AT_ONCE].astype(np.float64)) for begin in chunks]
        )

    @abstractmethod
    def _learn_readings(self, readings: Floats32) -> None:
        """Learn from scaled readings (reading, variable)."""

    @abstractmethod
    def _score_readings(self, readings: Floats) -> Floats:
        """The scores of scaled readings (reading, variable)."""


@dataclass(kw_only=True, eq=False, repr=False)
class VariableBaseline(ReadingBaseline):
    """A baseline whose score is made from one error per variable.

    >>> from cometad.baselines import BASELINES
    >>> from cometad.baselines.baseline import VariableBaseline
    >>> [name for name, kind in BASELINES.items() if issubclass(kind, VariableBaseline)]
    ['sensor-range', 'squared-norm', 'pca', 'hbos']
    """

    def errors(self, X: object) -> Floats:
        """The errors (time, variable) behind the scores of a series (time, variable).

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> detector = BASELINES["squared-norm"]().fit(np.array([[-1.0, 0.0], [1.0, 0.0]]))
        >>> detector.errors(np.array([[3.0, -2.0]]))
        array([[3., 2.]])
        """
        scaled = self.scaling_(self._checked(X).values)
        return self._errors(scaled.astype(np.float64))

    def _score_readings(self, readings: Floats) -> Floats:
        return self._pool(self._errors(readings))

    @abstractmethod
    def _errors(self, readings: Floats) -> Floats:
        """The errors of scaled readings (reading, variable)."""

    @abstractmethod
    def _pool(self, errors: Floats) -> Floats:
        """The score (reading,) of errors (reading, variable)."""


def subsample(rows: int, limit: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indices of a random sample of at most `limit` rows, in ascending order.

    >>> from cometad.baselines.baseline import subsample
    >>> subsample(3, limit=5, seed=0)
    array([0, 1, 2])
    """
    if rows <= limit:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, size=limit, replace=False))


def _rule_of(default: object) -> Rule:
    """The rule for a parameter by the type of its default: an integer of at least 1, or a number of at least 0."""
    return integer(1) if isinstance(default, int) else number(0, math.inf)
