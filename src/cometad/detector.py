"""What Comet and every baseline share: checks, scaling, names, the threshold, saving and loading."""

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.judge import Judge
from cometad.alerting.severity import ScoreTail
from cometad.alerting.watch import Threshold
from cometad.arrays import Array, Flags, Floats, Floats32
from cometad.checkpoint import Checkpoint, read, write
from cometad.data.gaps import Gaps, complete, fill
from cometad.data.quality import Statistics
from cometad.data.scale import Scaling, fit_scaling
from cometad.errors import InputError, ModelFileError, NotFittedError, ParameterError
from cometad.registry import as_json, from_json
from cometad.series import Series, as_series, check_length, check_like

if TYPE_CHECKING:
    from cometad.explain.reasons import Explanation
    from cometad.live.stream import Stream


class StepScores(NamedTuple):
    """What a detector says of a series; each field has the shape (time,)."""

    scores: Floats  # higher is more anomalous
    imputed: Flags | None  # cannot be judged, because its readings were filled in; None where nothing was


class Detector(BaseEstimator, ABC):
    """A detector but for its method: `_learn` from a scaled series, `_score` one, and tell or take the `_state`."""

    can_stream: ClassVar[bool] = False  # `stream` works
    can_explain: ClassVar[bool] = False  # `explain` works
    can_adapt: ClassVar[bool] = False  # scores may depend on readings scored before

    scaler: str
    gaps: Gaps
    threshold: Threshold
    _parameters: dict[str, Any]  # that it was fitted with
    names_: tuple[str, ...]
    named_: bool
    n_features_in_: int
    statistics_: Statistics
    scaling_: Scaling
    decision_scores_: Floats
    imputed_: Flags  # (time,)  which of these rest on readings that were filled in
    threshold_: float  # that the first score of a series is held against
    threshold_state_: Floats  # what the threshold rule learned
    tail_: ScoreTail  # of the scores that the threshold was fitted on

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
        return self.step_scores(X).scores

    def step_scores(self, X: object) -> StepScores:
        """The score of each time step of a series (time, variable), and which of them cannot be judged.

        >>> import numpy as np
        >>> from cometad.data import ForwardFill
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> detector = BASELINES["squared-norm"](gaps=ForwardFill(limit=2)).fit(normal)
        >>> detector.step_scores([[0.0, 0.0], [9.0, np.nan], [9.0, 9.0]]).imputed
        array([False,  True, False])
        """
        series = self._checked(X)
        return self._step_scores(self.scaling_(series.values), series)

    def predict(self, X: object) -> NDArray[np.int64]:
        """1 for each time step whose score is above the threshold, else 0; 0 where it cannot be judged."""
        return self.judge().push(*self.step_scores(X)).flags

    def events(self, X: object, alerts: Alerts | None = None) -> list[Event]:
        """The events of a series (time, variable): flagged time steps that belong together, in the order of time.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> fresh = normal[:100].copy()
        >>> fresh[40:43] = 9.0
        >>> [(event.start, event.stop) for event in BASELINES["squared-norm"]().fit(normal).events(fresh)]
        [(40, 43)]
        """
        judge = self.judge(alerts)
        changes = judge.push(*self.step_scores(X)).changes + judge.finish()
        return [change.event for change in changes if change.kind == "closed"]

    def judge(self, alerts: Alerts | None = None) -> Judge:
        """What turns scores of this detector into flags and events, from the fitted state on.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> BASELINES["squared-norm"]().fit(normal).judge().push([0.1, 99.0]).flags
        array([0, 1])
        """
        self._check_fitted()
        return Judge(self.threshold, self.threshold_state_, alerts or Alerts(), self.tail_)

    def with_threshold(self, threshold: Threshold) -> Self:
        """The same fitted detector with another threshold rule, fitted on the same scores.

        >>> import numpy as np
        >>> from cometad import Quantile
        >>> from cometad.alerting import Spot
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(5000, 2))
        >>> detector = BASELINES["squared-norm"](threshold=Quantile(rate=0.01)).fit(normal)
        >>> detector.with_threshold(Spot(rate=1e-4)).threshold_ > detector.threshold_
        True
        """
        self._check_fitted()
        other = copy.copy(self)
        other.threshold = threshold
        other._check_parameters()
        other._draw_line()
        return other

    def stream(self, snapshot: bytes | None = None, *, alerts: Alerts | None = None) -> "Stream":
        """A stream that starts from the fitted state, or goes on from a snapshot; see `can_stream`."""
        raise self._cannot("score a stream", "decision_function")

    def explain(self, X: object, event: Event | int | Sequence[int], *, context: int = 32) -> "Explanation":
        """Which variables are behind an event, and what was expected; see `can_explain`."""
        raise self._cannot("explain its scores", "decision_function")

    def _cannot(self, what: str, instead: str) -> ParameterError:
        return ParameterError(f"{type(self).__name__} cannot {what}. Use a Comet for that, or {instead}.")

    def code_usage(self, X: object) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Patch size and patches per code (code,) in training and in a series, per scale; empty without a codebook."""
        return []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector to one file, whole or not at all."""
        self._check_fitted()
        write(path, self._checkpoint())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """The detector in a file written by `save`, on the device it was saved from or on another."""
        _, facts, arrays = read(path, cls.__name__, needs=("parameters", "names", "named"))
        parameters = {name: from_json(value) for name, value in facts["parameters"].items()}
        detector = cls(**{**parameters, "device": device or parameters["device"]})
        try:
            detector._restore(facts, arrays)
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
    def _learn(self, scaled: Floats32, series: Series) -> None:
        """Learn from a scaled series (time, variable)."""

    @abstractmethod
    def _score(self, scaled: Floats32, series: Series) -> Floats:
        """One score per time step of a scaled series (time, variable)."""

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        """The scores; imputed is a time step with any filled in reading."""
        imputed = None if series.imputed is None else np.asarray(series.imputed.any(axis=1))
        return StepScores(self._score(scaled, series), imputed)

    def _state(self) -> Mapping[str, Array]:
        """What was learned, by name."""
        return {}

    def _take_state(self, state: Mapping[str, Array]) -> None:
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

    def _settle(self, scaled: Floats32, series: Series) -> None:
        """Score what was learned from, and take the threshold from these scores."""
        self.decision_scores_, imputed = self._step_scores(scaled, series)
        self.imputed_ = np.zeros(len(series), bool) if imputed is None else imputed
        self._draw_line()

    def _draw_line(self) -> None:
        """Fit the threshold: fitted from here on.

        What was trained on fits better than what is to come, so its scores alone would give too low a threshold; the
        readings kept from training are few, and may be of a quiet time. Fitted on all scores and on those of readings
        kept from training, the higher threshold stands. Imputed time steps do not count.
        """
        rows, measured = self._training_rows(len(self.decision_scores_)), ~self.imputed_
        scores, kept = self.decision_scores_[measured], self.decision_scores_[rows:][measured[rows:]]
        if not len(scores):
            raise InputError(
                "Every time step of the training series rests on readings that were filled in, so it shows no "
                "threshold. Pass a series with fewer gaps."
            )
        lines = []
        for some in (scores, kept) if len(kept) else (scores,):
            state = self.threshold.fit(some)
            lines.append((self.threshold.watch(state).threshold, state, some))
        highest, state, some = max(lines, key=lambda line: line[0])
        self._take_line(state, ScoreTail.fit(some, highest))

    def _take_line(self, state: Floats, tail: ScoreTail) -> None:
        self._parameters = self.get_params(deep=False)
        self.tail_, self.threshold_state_ = tail, state
        self.threshold_ = self.threshold.watch(state).threshold

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
            "imputed": self.imputed_,
            "threshold": self.threshold_state_,
            "tail": np.array(self.tail_),
            "statistics.quantiles": self.statistics_.quantiles,
            "statistics.longest": self.statistics_.longest,
            "statistics.period": np.array([self.statistics_.period]),
        }
        return Checkpoint(type(self).__name__, facts, arrays | dict(self._state()))

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._remember(tuple(facts["names"]), facts["named"])
        self.scaling_ = Scaling(arrays["scaling.center"], arrays["scaling.unit"])
        quantiles, longest, period = (arrays[f"statistics.{name}"] for name in ("quantiles", "longest", "period"))
        self.statistics_ = Statistics(self.names_, quantiles, longest, float(period[0]))
        self._take_state(arrays)
        self.decision_scores_, self.imputed_ = arrays["decision_scores"], arrays["imputed"]
        self._take_line(arrays["threshold"], ScoreTail(*arrays["tail"].tolist()))

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
