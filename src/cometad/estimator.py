"""What Comet and every baseline share: checks, scaling, names, the threshold, saving and loading."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from cometad.checkpoint import Checkpoint, read, write
from cometad.data.gaps import Gaps, complete, fill
from cometad.data.quality import Statistics
from cometad.data.scale import Scaling, fit_scaling
from cometad.detector import Flags, Floats, Series, as_series, check_length, check_like
from cometad.errors import InputError, ModelFileError, NotFittedError
from cometad.parameters import as_json, from_json

Scaled = NDArray[np.float32]


class Judged(NamedTuple):
    """What a detector says of a series; each field has the shape (time,)."""

    scores: Floats  # higher is more anomalous
    flags: NDArray[np.int64]  # 1 where the score is above the threshold and the time step not imputed
    imputed: Flags  # cannot be judged, because its readings were filled in


class Estimator(BaseEstimator, ABC):
    """A detector but for its method: `_learn` from a scaled series, `_score` one, and tell or take the `_state`."""

    scaler: str
    gaps: Gaps
    threshold_quantile: float
    _parameters: dict[str, Any]  # that it was fitted with
    names_: tuple[str, ...]
    named_: bool
    n_features_in_: int
    statistics_: Statistics
    scaling_: Scaling
    decision_scores_: Floats
    threshold_: float

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored."""
        self._check_parameters()
        if hasattr(self, "threshold_"):
            del self.threshold_  # not fitted until the end: an interrupted fit leaves no half of one
        series = as_series(X, missing=self.gaps.allowed)
        check_length(len(series), self._least_rows(), "a window")
        rows = self._training_rows(len(series))
        if rows < self._least_rows():
            raise InputError(
                f"Without the share kept for validation the series has {rows} readings, fewer than a window "
                f"({self._least_rows()}). Pass a longer series or a shorter window."
            )
        _check_measured(series, rows)
        self._remember(series.names, series.named)
        self.statistics_ = Statistics.fit(series)
        self.scaling_ = fit_scaling(self.scaler, series.values[:rows])  # of what was measured
        series = self._filled(series)
        scaled = self.scaling_(series.values)
        self._learn(scaled, series)
        self._settle(scaled, series)
        return self

    def decision_function(self, X: object) -> Floats:
        """One score per time step of a series (time, variable); higher is more anomalous."""
        series = self._checked(X)
        return self._judged(self.scaling_(series.values), series)[0]

    def predict(self, X: object) -> NDArray[np.int64]:
        """1 for each time step whose score is above `threshold_`, else 0; 0 where the time step is imputed."""
        return self.judge(X).flags

    def judge(self, X: object) -> Judged:
        """The score of each time step of a series, whether it is flagged, and whether it could be judged at all.

        >>> import numpy as np
        >>> from cometad import BASELINES
        >>> from cometad.data.gaps import ForwardFill
        >>> detector = BASELINES["knn"](gaps=ForwardFill(2)).fit(np.random.default_rng(0).normal(size=(300, 2)))
        >>> detector.judge(np.array([[0.0, 0.0], [9.0, np.nan], [9.0, 9.0]]))[1:]
        (array([0, 0, 1]), array([False,  True, False]))
        """
        series = self._checked(X)
        scores, imputed = self._judged(self.scaling_(series.values), series)
        if imputed is None:
            imputed = np.zeros(len(scores), bool)
        return Judged(scores, ((scores > self.threshold_) & ~imputed).astype(np.int64), imputed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector to one file, whole or not at all."""
        self._check_fitted()
        write(path, self._checkpoint())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """The detector in a file written by `save`, on the device it was saved from or on another."""
        _, facts, tensors = read(path, cls.__name__, needs=("parameters", "names", "named"))
        parameters = {name: from_json(value) for name, value in facts["parameters"].items()}
        detector = cls(**{**parameters, "device": device or parameters["device"]})
        try:
            detector._restore(facts, tensors)
        except (KeyError, RuntimeError, IndexError) as error:
            raise ModelFileError(
                f"'{path}' does not hold what a saved {cls.__name__} needs. Pass a file written by save."
            ) from error
        return detector

    # -- what a detector adds ---------------------------------------------------------------------------------------

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense."""

    @abstractmethod
    def _learn(self, scaled: Scaled, series: Series) -> None:
        """Learn from a scaled series (time, variable)."""

    @abstractmethod
    def _score(self, scaled: Scaled, series: Series) -> Floats:
        """One score per time step of a scaled series (time, variable)."""

    def _judged(self, scaled: Scaled, series: Series) -> tuple[Floats, Flags | None]:
        """The scores, and which time steps are imputed: None where none is, else those with any filled in reading."""
        imputed = None if series.imputed is None else np.asarray(series.imputed.any(axis=1))
        return self._score(scaled, series), imputed

    def _state(self) -> Mapping[str, Tensor]:
        """What was learned, by name."""
        return {}

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what `_state` gave."""

    def _least_rows(self) -> int:
        """The readings that a series must have at least."""
        return 1

    def _training_rows(self, rows: int) -> int:
        """How many of the readings are trained on, and scaled by."""
        return rows

    def check_memory(self, variables: int) -> None:
        """Refuse to learn from so many variables where the machine's memory is too small; nothing is allocated."""

    # -- state ------------------------------------------------------------------------------------------------------

    def _settle(self, scaled: Scaled, series: Series) -> None:
        """Take the threshold from the scores of what was learned from: fitted from here on."""
        self._parameters = self.get_params(deep=False)
        self.decision_scores_, imputed = self._judged(scaled, series)
        measured = self.decision_scores_ if imputed is None else self.decision_scores_[~imputed]
        if not len(measured):
            raise InputError(
                "Every time step of the training series rests on readings that were filled in, so it shows no "
                "threshold. Pass a series with fewer gaps."
            )
        self.threshold_ = float(np.quantile(measured, self.threshold_quantile))

    def _remember(self, names: tuple[str, ...], named: bool) -> None:
        self.names_, self.named_, self.n_features_in_ = names, named, len(names)

    def _checked(self, X: object) -> Series:
        self._check_fitted()
        series = as_series(X, missing=self.gaps.allowed)
        if self.gaps.allowed and self.named_:
            series = complete(series, self.names_)
        check_like(series, self.names_, self.named_)
        check_length(len(series), self._least_rows(), "a window")
        return self._filled(series)

    def _filled(self, series: Series) -> Series:
        """The series with its gaps filled by the rule; the medians of training keep the place where it has nothing."""
        if not np.isnan(series.values).any():
            return series
        known = self.statistics_
        values, imputed, doubtful = fill(series.values, self.gaps, known.center, known.usual)
        return replace(series, values=values, imputed=imputed, doubtful=doubtful if doubtful.any() else None)

    def _checkpoint(self) -> Checkpoint:
        parameters = {name: as_json(value) for name, value in self.get_params(deep=False).items()}
        facts = {"parameters": parameters, "names": list(self.names_), "named": self.named_}
        arrays = {
            "scaling.center": self.scaling_.center,
            "scaling.unit": self.scaling_.unit,
            "decision_scores": self.decision_scores_,
            "threshold": np.array([self.threshold_]),
            "statistics.quantiles": self.statistics_.quantiles,
            "statistics.longest": self.statistics_.longest,
            "statistics.period": np.array([self.statistics_.period]),
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return Checkpoint(type(self).__name__, facts, tensors | dict(self._state()))

    def _restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self._remember(tuple(facts["names"]), facts["named"])
        self.scaling_ = Scaling(tensors["scaling.center"].numpy(), tensors["scaling.unit"].numpy())
        quantiles, longest, period = (tensors[f"statistics.{name}"] for name in ("quantiles", "longest", "period"))
        self.statistics_ = Statistics(self.names_, quantiles.numpy(), longest.numpy(), float(period[0]))
        self._take_state(tensors)
        self._parameters = self.get_params(deep=False)
        self.decision_scores_ = tensors["decision_scores"].numpy()
        self.threshold_ = float(tensors["threshold"][0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet. Call fit with a series of normal readings first."
            )
        now = self.get_params(deep=False)
        changed = [name for name, value in self._parameters.items() if name != "verbose" and now[name] != value]
        if changed:
            raise NotFittedError(f"The parameter {changed[0]!r} was changed after fit. Call fit again.")


def _check_measured(series: Series, rows: int) -> None:
    unknown = np.isnan(series.values[:rows]).all(axis=0)
    if unknown.any():
        name = series.names[int(unknown.argmax())]
        raise InputError(f"Variable {name!r} has no reading in the training part. Leave that variable out.")
