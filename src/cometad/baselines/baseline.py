"""The base classes of the baselines: parameters are dataclass fields, fitted state is a set of named arrays."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cometad.alerting.thresholds import Quantile
from cometad.alerting.watch import Threshold
from cometad.arrays import Floats, Floats32
from cometad.data.gaps import Gaps, RefuseGaps
from cometad.data.network_windows import learnable
from cometad.detector import RULES as SHARED_RULES
from cometad.detector import Detector
from cometad.parameters import Rule, check, choice, integer, number
from cometad.saving import array
from cometad.scoring.scores import StepScores
from cometad.series import Series

READINGS_AT_ONCE = 8192
ROWS_AT_ONCE = 1024  # of moments
LARGEST_COPY = 2**28  # values of windows copied for learning, 1 GiB

RULES: dict[str, Rule] = SHARED_RULES | {"patience": integer(0), "dropout": number(0, 1, below=True)}


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(Detector):
    """A detector whose parameters are its dataclass fields.

    Parameters are checked against their defaults: an integer must be at least 1, a float at least 0, and a string one
    of its `choices`. Every baseline accepts `seed`, `device` and `verbose`, even if it ignores them, so that the same
    arguments can be passed to all detectors in a comparison.
    """

    choices: ClassVar[dict[str, Collection[str]]] = {}
    # A short form of `saved`: the arrays set by `_learn`, and the shapes of those to check when a file is loaded.
    learned: ClassVar[tuple[str, ...]] = ()
    shapes: ClassVar[Mapping[str, tuple[int | str, ...]]] = {}

    scaler: str = "standard"
    gaps: Gaps = RefuseGaps()
    threshold: Threshold = Quantile(rate=0.01)
    seed: int = 42
    device: str = "cpu"
    verbose: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.learned:
            cls.saved = {name: array(name, *cls.shapes.get(name, (...,))) for name in cls.learned}

    def check_parameters(self) -> None:
        signature = inspect.signature(type(self)).parameters
        defaults = {name: parameter.default for name, parameter in signature.items()}
        rules = {name: _rule_of(default) for name, default in defaults.items() if not isinstance(default, bool | str)}
        rules |= RULES | {name: choice(known) for name, known in self.choices.items()}
        check(self.get_params(deep=False), rules)


@dataclass(kw_only=True, eq=False, repr=False)
class ReadingBaseline(Baseline):
    """A baseline that scores each reading, alone or with those before it, in chunks: memory does not grow with time.

    One that needs the readings before overrides `_span` and gets windows (window, span * variable) in place of
    readings, each with its oldest reading first. An alert score uses no later reading, except at the start of a series:
    readings before the end of the first window get the score of that window. If a score is `about_windows` and not
    about their last reading, the ranking score of a reading is the mean over the windows that cover it.
    """

    about_windows: ClassVar[bool] = False

    def _span(self) -> int:
        """Readings in a window, the last of which is scored."""
        return 1

    def _least_rows(self) -> int:
        return self._span()

    def _lengths(self) -> dict[str, Any]:
        return {**super()._lengths(), "window * variable": self._span() * self.n_features_in_}

    def _learn(self, scaled: Floats32, series: Series) -> None:
        windows = stacked(scaled, self._span())
        if series.doubtful is not None:
            starts = learnable(np.arange(len(windows)), self._span(), series)
            windows = windows[starts[subsample(len(starts), max(1, LARGEST_COPY // windows.shape[1]), self.seed)]]
        self._learn_readings(windows)

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return self._in_chunks(self._score_readings, scaled)

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        found = super()._step_scores(scaled, series)
        return found._replace(scores=self._ranking(scaled, found.alerts)) if self.about_windows else found

    def _ranking(self, scaled: Floats32, alerts: Floats) -> Floats:
        """The ranking scores (time,) of scores that are about windows."""
        return self._spread(alerts)

    def _spread(self, ended: Floats) -> Floats:
        """The mean over the windows that cover a reading, from one value (time, ...) for the window that ends there."""
        return mean_of_covering(ended[self._span() - 1 :], self._span())

    def _in_chunks(self, function: Callable[[Floats], Floats], scaled: Floats32) -> Floats:
        """What a function of windows returns for each reading (time, ...) of a scaled series (time, variable)."""
        windows, at_once = stacked(scaled, self._span()), max(1, READINGS_AT_ONCE // self._span())
        chunks = range(0, len(windows), at_once)
        found = [function(windows[begin : begin + at_once].astype(np.float64)) for begin in chunks]
        return np.concatenate([np.repeat(found[0][:1], self._span() - 1, axis=0), *found])

    @abstractmethod
    def _learn_readings(self, readings: Floats32) -> None:
        """Learn from scaled readings (reading, variable), or from windows of them; must not change them."""

    @abstractmethod
    def _score_readings(self, readings: Floats) -> Floats:
        """The scores of scaled readings (reading, variable), or of the windows that end with them."""


@dataclass(kw_only=True, eq=False, repr=False)
class VariableBaseline(ReadingBaseline):
    """A baseline whose score is made from one error per variable.

    >>> from cometad.baselines import BASELINES
    >>> from cometad.baselines.baseline import VariableBaseline
    >>> [name for name, kind in BASELINES.items() if issubclass(kind, VariableBaseline)]
    ['sensor-range', 'squared-norm', 'pca', 'window-pca', 'forecast-error', 'hbos']
    """

    def errors(self, X: object) -> Floats:
        """The errors (time, variable) behind the ranking scores of a series (time, variable).

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> detector = BASELINES["squared-norm"]().fit(np.array([[-1.0, 0.0], [1.0, 0.0]]))
        >>> detector.errors(np.array([[3.0, -2.0]]))
        array([[3., 2.]])
        """
        return self._ranking_errors(self.scaling_(self._checked(X).values))

    def _ranking_errors(self, scaled: Floats32) -> Floats:
        errors = self._in_chunks(self._errors, scaled)
        return self._spread(errors) if self.about_windows else errors

    def _ranking(self, scaled: Floats32, alerts: Floats) -> Floats:
        return self._pool(self._ranking_errors(scaled))

    def _score_readings(self, readings: Floats) -> Floats:
        return self._pool(self._errors(readings))

    @abstractmethod
    def _errors(self, readings: Floats) -> Floats:
        """The errors (reading, variable) of scaled readings, or of the windows that end with them."""

    def _pool(self, errors: Floats) -> Floats:
        """The score (reading,) of errors (reading, variable): their mean square, unless a baseline says otherwise."""
        return np.asarray((errors**2).mean(axis=1))


class Moments(NamedTuple):
    """The mean and the covariance of rows (row, column); the covariance divides by their number."""

    rows: int
    mean: Floats  # (column,)
    covariance: Floats  # (column, column)

    @classmethod
    def of(cls, rows: Floats32) -> "Moments":
        """The moments of rows, which may be a view of windows that overlap."""
        mean: Floats = np.asarray(np.mean(rows, axis=0, dtype=np.float64))
        covariance = np.zeros((len(mean), len(mean)))
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            apart = rows[begin : begin + ROWS_AT_ONCE] - mean
            covariance += apart.T @ apart
        return cls(len(rows), mean, covariance / len(rows))


def stacked(readings: Floats32, span: int) -> Floats32:
    """The windows (window, span * variable) of consecutive readings (time, variable), without copying any."""
    variables = readings.shape[1]
    flat = np.ascontiguousarray(readings).reshape(-1)
    windows: Floats32 = np.lib.stride_tricks.sliding_window_view(flat, span * variables)[::variables]
    return windows


def mean_of_covering(values: Floats, span: int) -> Floats:
    """The mean over the windows that cover a reading (time, ...), from one value (window, ...) of each window."""
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    steps = np.arange(len(values) + span - 1)
    first, stop = np.maximum(steps - span + 1, 0), np.minimum(steps + 1, len(values))
    counts = (stop - first).reshape(-1, *([1] * (values.ndim - 1)))
    return np.asarray((sums[stop] - sums[first]) / counts)


def subsample(rows: int, limit: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indices of a random sample of at most `limit` rows, in ascending order."""
    if rows <= limit:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, size=limit, replace=False))


def _rule_of(default: object) -> Rule:
    """The rule for a parameter by the type of its default: an integer of at least 1, or a number of at least 0."""
    return integer(1) if isinstance(default, int) else number(0, math.inf)
