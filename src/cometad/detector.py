"""The base class of every detector: checks, scaling, thresholds, events, saving and loading."""

import copy
import hashlib
import json
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Event, Judge
from cometad.alerting.budget import Budget
from cometad.alerting.severity import ScoreTail
from cometad.alerting.watch import Threshold
from cometad.arrays import Array, Flags, Floats, Floats32, Integers
from cometad.checkpoint import Checkpoint, from_bytes, read, restoring, to_bytes, write
from cometad.data.gaps import Gaps, complete, fill
from cometad.data.prepare import SCALERS, Scaling, Trends, fit_scaling
from cometad.data.quality import QUANTILES, Statistics
from cometad.errors import InputError, NotFittedError, ParameterError
from cometad.parameters import Parameters, Rule, choice, device, integer, number, share_or_count, strategy, with_field
from cometad.registry import describe, from_json, to_json
from cometad.saving import Table, array, arrays, load_state, of_type, require_state, saved_state, texts, value
from cometad.scoring.scores import StepScores
from cometad.series import Series, as_series, check_length, check_like

if TYPE_CHECKING:
    from cometad.explain.reasons import Explanation
    from cometad.live.stream import Stream


_log = logging.getLogger("cometad")

# Valid values of the parameters that detectors share.
RULES: dict[str, Rule] = {
    "scaler": choice(SCALERS),
    "gaps": strategy("allowed", "settle"),
    "threshold": strategy("rate", "fit", "watch"),
    "schedule": strategy("steps", "rate"),
    "window": integer(1),
    "window_stride": integer(1),
    "batch_size": integer(1),
    "neighbors": integer(1),
    "validation_share": share_or_count,
    "weight_decay": number(0, math.inf),
    "seed": integer(0, 2**32 - 1),
    "device": device,
}

_NEEDS = ("parameters", "names", "named")  # facts of every saved detector
# What every detector saves: for the scores of its training series, and what scoring reads.
_TRAINING: Table = {
    "decision_scores": array("decision_scores_", "time"),
    "imputed": array("imputed_", "time", dtype=np.bool_),
    "alert_scores": array("alert_scores_", "time", optional=True),  # only if they are others
}
_SCORING: Table = {
    "scaling": value("scaling_", arrays(center=("variable",), unit=("variable",)), Scaling, Scaling.check_state),
    "statistics": value(
        "statistics_",
        {
            "quantiles": array("quantiles", len(QUANTILES), "variable", unknown=True),
            "longest": array("longest", "variable", dtype=np.int64),
            "period": array("period", 1, unknown=True, pack=np.atleast_1d, make=lambda period: float(period[0])),
        },
        partial(Statistics, ()),
    ),
    "threshold": array("threshold_state_", "number"),
    "tail": array("tail_", len(ScoreTail._fields), pack=np.array, make=ScoreTail.of),
}


class Detector(Parameters, ABC):
    """The base class of detectors; a subclass adds the method: `_learn`, `_score` and the table `saved`.

    >>> from cometad import BASELINES, Comet, Detector
    >>> [issubclass(kind, Detector) for kind in (Comet, *BASELINES.values())] == [True] * 19
    True
    >>> Comet.can_stream, BASELINES["knn"].can_stream
    (True, False)
    """

    can_stream: ClassVar[bool] = False  # scores readings one by one
    can_explain: ClassVar[bool] = False  # attributes a score to variables
    can_adapt: ClassVar[bool] = False  # learns from the readings it scores
    can_take_verdicts: ClassVar[bool] = False  # no longer alerts about what a person called normal
    can_export: ClassVar[bool] = False  # can be written as an ONNX file
    saved: ClassVar[Table] = {}  # the learned arrays, besides those of every detector
    saved_facts: ClassVar[Table] = {}  # what was learned and is not an array
    _training_need: ClassVar[str] = "a window"  # what `_least_training_rows` is the length of
    _identity_name: ClassVar[str] = ""  # in the identity that snapshots carry; the name of the class if empty

    scaler: str
    gaps: Gaps
    threshold: Threshold
    _parameters: dict[str, Any]  # at the time of `fit`
    names_: tuple[str, ...]
    named_: bool
    n_features_in_: int
    statistics_: Statistics
    trends_: Trends  # what is scored of each variable
    scaling_: Scaling
    decision_scores_: Floats  # (time,)  ranking scores of the training series
    alert_scores_: Floats  # (time,)  alert scores of the training series, for the threshold
    imputed_: Flags  # (time,)  training steps that depend on imputed readings
    threshold_: float  # applies to the first score of a series
    threshold_state_: Floats  # fitted state of the threshold rule
    tail_: ScoreTail  # of the scores the threshold was fitted on
    _digest: bytes | None = None  # of the fitted state, computed when a stream first needs it

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored."""
        series = self._begin(X)
        rows = self._training_rows(len(series))
        self.scaling_ = fit_scaling(self.scaler, series.values[:rows])  # ignores missing readings
        series = self._filled(series)
        scaled = self.scaling_(series.values)
        self._learn(scaled, series)
        self._settle(scaled, series)
        return self

    @abstractmethod
    def check_parameters(self) -> None:
        """Refuse invalid parameters, as `fit` does first.

        Parameters can be set to anything, as in scikit-learn; so call it where you want to know before you read data.

        >>> from cometad import Comet
        >>> Comet(pooling=0).check_parameters()
        Traceback (most recent call last):
        ...
        cometad.errors.ParameterError: The 'pooling' parameter must be an integer from 1 to 1000. Got 0 instead.
        """

    def _begin(self, X: object) -> Series:
        """Check the parameters and a training series, and take its names and statistics."""
        self.check_parameters()
        if hasattr(self, "threshold_"):
            del self.threshold_  # an interrupted fit must not look fitted
        series = as_series(X, missing=self.gaps.allowed)
        check_length(len(series), self._least_training_rows(), self._training_need)
        rows = self._training_rows(len(series))
        if rows < self._least_rows():
            raise InputError(
                f"Without its validation share the series has {rows} readings, fewer than a window "
                f"({self._least_rows()}). Pass a longer series or a shorter window."
            )
        _check_measured(series, rows)
        self._remember(series.names, series.named)
        self.statistics_, self.trends_ = Statistics.fit(series), Trends.none(len(series.names))
        self._say_reduced()  # refuses a budget without a period before any work is done
        return series

    def _say_reduced(self) -> None:
        rule = self.threshold
        if isinstance(rule, Budget) and (reduced := rule.reduced(self.statistics_.period)):
            _log.warning("%s", reduced)

    def decision_function(self, X: object) -> Floats:
        """The ranking score of each time step of a series (time, variable); higher is more anomalous.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> int(BASELINES["squared-norm"]().fit(normal).decision_function([[0.1, 0.2], [9.0, 9.0]]).argmax())
        1
        """
        return self.step_scores(X).scores

    def step_scores(self, X: object) -> StepScores:
        """The ranking and alert scores of a series (time, variable), and which time steps are imputed.

        >>> import numpy as np
        >>> from cometad.data import ForwardFill
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> detector = BASELINES["squared-norm"](gaps=ForwardFill(limit=2)).fit(normal)
        >>> detector.step_scores([[0.0, 0.0], [9.0, np.nan], [9.0, 9.0]]).imputed
        array([False,  True, False])
        """
        series = self._checked(X)
        return self._step_scores(self._scaled(series), series)

    def predict(self, X: object) -> NDArray[np.int64]:
        """1 for each time step whose alert score is above the threshold, else 0; 0 where imputed.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> BASELINES["squared-norm"]().fit(normal).predict([[0.1, 0.2], [9.0, 9.0]])
        array([0, 1])
        """
        scored = self.step_scores(X)
        return self.judge().push(scored.alerts, scored.imputed).flags

    def fit_predict(self, X: object, y: object = None) -> NDArray[np.int64]:
        """Fit a series (time, variable) and return its own flags, `labels_`; `y` is ignored.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> int(BASELINES["squared-norm"]().fit_predict(normal).sum())  # a budget of 0.01 of the readings
        5
        """
        return self.fit(X).labels_

    @property
    def labels_(self) -> NDArray[np.int64]:
        """The flags (time,) of the training series: 1 if its alert score is above the threshold, 0 where imputed.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> BASELINES["squared-norm"]().fit(normal).labels_.shape
        (500,)
        """
        return self.judge().push(self.alert_scores_, self.imputed_).flags

    @property
    def contamination(self) -> float | None:
        """The rate of the threshold, under the name that PyOD and scikit-learn use; None if it limits alerts instead.

        It is no parameter of its own: `get_params` and `clone` have the threshold. Set it before `fit`.

        >>> from cometad import Comet
        >>> detector = Comet()
        >>> detector.contamination = 0.001
        >>> detector.threshold.rate, detector.contamination
        (0.001, 0.001)
        """
        RULES["threshold"]("threshold", self.threshold)
        return self.threshold.rate

    @contamination.setter
    def contamination(self, rate: float) -> None:
        self.threshold = with_field(self.threshold, "rate", rate, "contamination")

    def events(self, X: object, alerts: Alerts | None = None) -> list[Event]:
        """The events of a series (time, variable) in time order: flagged time steps that belong together.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> fresh = normal[:100].copy()
        >>> fresh[40:43] = 9.0
        >>> [(event.start, event.stop) for event in BASELINES["squared-norm"]().fit(normal).events(fresh)]
        [(40, 43)]
        """
        judge, series = self.judge(alerts), self._checked(X)
        scored = self._step_scores(self._scaled(series), series)
        changes = judge.push(scored.alerts, scored.imputed, series.micros).changes + judge.finish()
        return [change.event for change in changes if change.kind == "closed"]

    def judge(self, alerts: Alerts | None = None) -> Judge:
        """A judge that turns alert scores of this detector into flags and events.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> normal = np.random.default_rng(0).normal(size=(500, 2))
        >>> BASELINES["squared-norm"]().fit(normal).judge().push([0.1, 99.0]).flags
        array([0, 1])
        """
        self._check_fitted()
        period = getattr(self.threshold, "period", None) or self.statistics_.period  # a stream may say its own
        return Judge(self.threshold, self.threshold_state_, alerts or Alerts(), self.tail_, period)

    @property
    def min_readings(self) -> int:
        """Minimum number of readings in a series."""
        self.check_parameters()
        return self._least_rows()

    @property
    def min_training_readings(self) -> int:
        """Minimum number of readings to fit on."""
        self.check_parameters()
        return self._least_training_rows()

    def with_threshold(self, threshold: Threshold) -> Self:
        """A copy of the fitted detector with another threshold rule, fitted on the same scores.

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
        other.check_parameters()
        other._say_reduced()
        other._fit_threshold()
        return other

    def with_gaps(self, gaps: Gaps) -> Self:
        """A copy of the fitted detector with another gap rule for the readings it scores.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> from cometad.data import ForwardFill
        >>> detector = BASELINES["squared-norm"]().fit(np.random.default_rng(0).normal(size=(500, 2)))
        >>> detector.with_gaps(ForwardFill(limit=5)).predict([[0.1, 0.2], [np.nan, 0.2]])
        array([0, 0])
        """
        self._check_fitted()
        other = copy.copy(self)
        other.gaps = gaps
        other.check_parameters()
        other._parameters, other._digest = other.get_params(deep=False), None
        return other

    def stream(self, snapshot: bytes | None = None, *, alerts: Alerts | None = None) -> "Stream":
        """Open a stream from the fitted state or from a snapshot; see `can_stream`."""
        raise self._cannot("score a stream", "decision_function")

    def explain(self, X: object, event: object, *, context: int = 32) -> "Explanation":
        """Attribute the score of an event, a time, a time step or a pair (start, stop) to variables; see `can_explain`.

        A time is a text such as "2026-11-18T09:30Z" or a datetime.
        """
        series = self._checked(X)
        return self.explainer(series)(series.located(event), context)

    def explainer(self, X: object) -> Callable[[Event | int | Sequence[int], int], "Explanation"]:
        """A function that explains events of one series, which is checked only once; see `can_explain`."""
        raise self._cannot("explain its scores", "decision_function")

    def learn_normal(self, X: object, event: object) -> Self:
        """A copy that no longer alerts about what looks like an event of a series; see `can_take_verdicts`."""
        raise self._cannot("take verdicts", "fit it on readings like those of the event")

    def _cannot(self, what: str, instead: str) -> ParameterError:
        return ParameterError(f"{type(self).__name__} cannot {what}. Use a Comet for that, or {instead}.")

    def code_usage(self, X: object) -> list[tuple[int, Integers, Integers]]:
        """Patch size and patches per code (code,) in training and in a series, per scale; empty without a codebook."""
        return []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector to one file, completely or not at all; replaces any file that is there.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> kind = BASELINES["squared-norm"]
        >>> detector = kind().fit(np.random.default_rng(0).normal(size=(500, 2)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     detector.save(Path(folder) / "plant.comet")
        ...     kind.load(Path(folder) / "plant.comet").threshold_ == detector.threshold_
        True
        """
        self._check_fitted()
        write(path, self._checkpoint())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """Load a detector that `save` wrote, onto its original device or another; `cometad.load` finds the class."""
        if device is not None:
            RULES["device"]("device", device)
        return cls._loaded(read(path, cls.__name__, needs=_NEEDS), f"'{path}'", device)

    def to_bytes(self) -> bytes:
        """The bytes of the file that `save` writes; equal detectors have equal bytes.

        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> kind = BASELINES["squared-norm"]
        >>> detector = kind().fit(np.random.default_rng(0).normal(size=(500, 2)))
        >>> kind.from_bytes(detector.to_bytes()).threshold_ == detector.threshold_
        True
        """
        self._check_fitted()
        return to_bytes(self._checkpoint())

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "This") -> Self:
        """The detector that `to_bytes` wrote; `source` names the bytes in an error."""
        return cls._loaded(from_bytes(content, cls.__name__, source, _NEEDS), source, None)

    @classmethod
    def _loaded(cls, saved: Checkpoint, source: str, device: str | None) -> Self:
        _, facts, arrays = saved
        with restoring(cls.__name__, source):
            parameters = {name: from_json(value) for name, value in facts["parameters"].items()}
            for name in parameters:
                require_state(name in cls._get_param_names(), f"a {cls.__name__} has no parameter {name!r}")
        parameters = cls._on_device(parameters, device)
        with restoring(cls.__name__, source):
            detector = cls(**parameters)
            detector.check_parameters()
            detector._restore(facts, arrays)
        return detector

    @classmethod
    def _on_device(cls, parameters: dict[str, Any], device: str | None) -> dict[str, Any]:
        """Parameters with another device, if one is given."""
        if device is None:
            return parameters
        if "device" in parameters:
            return {**parameters, "device": device}
        if device != "cpu":
            raise ParameterError(f"{cls.__name__} runs on the CPU only. Leave out the device.")
        return parameters

    def substituted(self, scaled: Floats32, doubtful: Flags | None) -> Floats32:
        """Scaled readings (time, variable) with better values for `doubtful` cells, if the detector knows any."""
        return scaled

    def _scaled(self, series: Series) -> Floats32:
        """What is scored: the movements of a series, scaled."""
        return self.substituted(self.scaling_(self.trends_(series.values, series.imputed)), series.doubtful)

    # -- what a detector adds ---------------------------------------------------------------------------------------

    def _learn(self, scaled: Floats32, series: Series) -> None:
        """Learn from a scaled series (time, variable). A detector that has its own `fit` does not need it."""
        raise NotImplementedError

    @abstractmethod
    def _score(self, scaled: Floats32, series: Series) -> Floats:
        """The score of each time step of a scaled series (time, variable)."""

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        """The scores; a time step with any imputed reading is imputed."""
        imputed = None if series.imputed is None else np.asarray(series.imputed.any(axis=1))
        scores = self._score(scaled, series)
        return StepScores(scores, scores, imputed)

    def _state(self) -> dict[str, Array]:
        """The learned arrays, by name."""
        return saved_state(self, self.saved)

    def _take_state(self, state: Mapping[str, Array]) -> None:
        """Restore what `_state` returned."""
        load_state(self, self.saved, state, self._lengths)

    def _check_state(self) -> None:
        """Refuse restored fields that are valid one by one but not together."""

    def _lengths(self) -> dict[str, Any]:
        """The lengths in tables that are known before a file is read: the parameters and the number of variables."""
        return {**self.get_params(deep=False), "variable": self.n_features_in_}

    def _least_rows(self) -> int:
        """Minimum number of readings in a series."""
        return 1

    def _least_training_rows(self) -> int:
        """Minimum number of readings in a training series."""
        return self._least_rows()

    def _training_rows(self, rows: int) -> int:
        """The number of readings used for training and scaling."""
        return rows

    def check_memory(self, variables: int) -> None:
        """Refuse a number of variables that needs more memory than the machine has; allocates nothing."""

    # -- state ------------------------------------------------------------------------------------------------------

    def _settle(self, scaled: Floats32, series: Series) -> None:
        """Score the training series and fit the threshold on the scores."""
        self.decision_scores_, self.alert_scores_, imputed = self._step_scores(scaled, series)
        self.imputed_ = np.zeros(len(series), bool) if imputed is None else imputed
        self._fit_threshold()

    def _fit_threshold(self) -> None:
        """Fit the threshold; the detector is fitted from here on.

        Training readings score lower than new ones, so their scores alone would give too low a threshold; held-out
        readings are few and may come from a quiet period. So fit on all scores and on the held-out ones, and keep the
        higher threshold. Imputed time steps are ignored.
        """
        rows, measured = self._training_rows(len(self.alert_scores_)), ~self.imputed_
        scores, held_out = self.alert_scores_[measured], self.alert_scores_[rows:][measured[rows:]]
        if not len(scores):
            raise InputError(
                "Every time step of the training series depends on imputed readings, so no threshold can be fitted. "
                "Pass a series with fewer gaps."
            )
        candidates = []
        for sample in (scores, held_out) if len(held_out) else (scores,):
            state = self._fitted_rule(sample)
            candidates.append((self.threshold.watch(state).threshold, state, sample))
        highest, state, sample = max(candidates, key=lambda candidate: candidate[0])
        self._set_threshold(state, ScoreTail.fit(sample, highest))

    def _fitted_rule(self, scores: Floats) -> Floats:
        """The state of the threshold rule; a budget of alerts per day needs to know how many readings a day has."""
        rule = self.threshold
        return rule.fit(scores, self.statistics_.period) if isinstance(rule, Budget) else rule.fit(scores)

    def _set_threshold(self, state: Floats, tail: ScoreTail) -> None:
        self._parameters, self._digest = self.get_params(deep=False), None
        self.tail_, self.threshold_state_ = tail, state
        self.threshold_ = self.threshold.watch(state).threshold

    def _remember(self, names: tuple[str, ...], named: bool) -> None:
        self.names_, self.named_, self.n_features_in_ = names, named, len(names)

    def _checked(self, X: object) -> Series:
        self._check_fitted()
        series = as_series(X, missing=self.gaps.allowed)
        if self.gaps.allowed and self.named_:
            series = complete(series, self.names_)
        check_like(series, self.names_, self.named_, type(self).__name__)
        check_length(len(series), self._least_rows(), "a window")
        return self._filled(series)

    def _filled(self, series: Series) -> Series:
        """Impute the gaps of a series by the gap rule, and by training medians where it has no value."""
        if not np.isnan(series.values).any():
            return series
        known = self.statistics_
        values, imputed, doubtful = fill(series.values, self.gaps, known.center, known.usual)
        return replace(series, values=values, imputed=imputed, doubtful=doubtful if doubtful.any() else None)

    def _identity(self) -> bytes:
        """A digest of everything scoring depends on, computed once: a fleet opens thousands of streams."""
        if self._digest is None:
            parameters = {name: describe(value) for name, value in self.get_params(deep=False).items()}
            digest = hashlib.sha256(
                json.dumps([self._identity_name or type(self).__name__, parameters, self.names_]).encode()
            )
            for name, array in sorted(self._scoring_state().items()):
                digest.update(name.encode() + array.tobytes())
            self._digest = digest.digest()
        return self._digest

    def _scoring_state(self) -> dict[str, Array]:
        """The fitted state that scoring reads, by name."""
        return saved_state(self, _SCORING) | self._state()

    def _checkpoint(self) -> Checkpoint:
        parameters = {name: to_json(value, name) for name, value in self.get_params(deep=False).items()}
        own = saved_state(self, self.saved_facts)
        facts = {"parameters": parameters, "names": list(self.names_), "named": self.named_, **own}
        training = saved_state(self, _TRAINING)
        if self.alert_scores_ is self.decision_scores_:
            del training["alert_scores"]
        return Checkpoint(type(self).__name__, facts, training | self._scoring_state())

    def _restore(self, facts: Mapping[str, Any], state: Mapping[str, Array]) -> None:
        names = texts(facts["names"], "names")
        require_state(len(names) == len(set(names)) >= 1, "its 'names' are not those of different variables")
        self._remember(names, of_type(facts["named"], bool, "named"))
        self.trends_ = Trends.none(len(names))
        load_state(self, {**_TRAINING, **_SCORING}, state, self._lengths)
        if "alert_scores" not in state:
            self.alert_scores_ = self.decision_scores_
        self.statistics_ = replace(self.statistics_, names=names)
        # Also keeps lengths in the parameters within what the training series had room for.
        enough = len(self.decision_scores_) >= self._least_training_rows()
        require_state(enough, "its training series is shorter than its parameters allow")
        load_state(self, self.saved_facts, facts, dict)
        self._take_state(state)
        self._check_state()
        self._set_threshold(self.threshold_state_, self.tail_)

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
        raise InputError(f"Variable {name!r} has no reading in the training part. Drop it.")
