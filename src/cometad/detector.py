"""The base class of every detector: checks, scaling, thresholds and events."""

import copy
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Event, Judge
from cometad.alerting.budget import Budget
from cometad.alerting.thresholds import highest
from cometad.alerting.watch import Threshold
from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.data.gaps import Gaps, complete, fill
from cometad.data.prepare import SCALERS, Trends, fit_scaling
from cometad.data.quality import Statistics
from cometad.errors import InputError, ParameterError
from cometad.parameters import Rule, choice, device, integer, number, share_or_count, strategy, with_field
from cometad.saved_detector import SavedDetector
from cometad.scoring.scores import ScoringRun, StepScores
from cometad.series import Series, as_series, check_length, check_like

if TYPE_CHECKING:
    from cometad.explain.reasons import Explanation
    from cometad.live.event_verdicts import Verdicts
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


class Detector(SavedDetector):
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
    _training_need: ClassVar[str] = "a window"  # what `_least_training_rows` is the length of

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
        unknown = np.isnan(series.values[:rows]).all(axis=0)
        if unknown.any():
            name = series.names[int(unknown.argmax())]
            raise InputError(f"Variable {name!r} has no reading in the training part. Drop it.")
        self.names_, self.named_, self.n_features_in_ = series.names, series.named, len(series.names)
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
        """Fit a series (time, variable) and return its own flags, `labels_`; `y` is ignored."""
        return self.fit(X).labels_

    @property
    def labels_(self) -> NDArray[np.int64]:
        """The flags (time,) of the training series: 1 if its alert score is above the threshold, 0 where imputed."""
        return self.judge().push(self.alert_scores_, self.imputed_).flags

    @property
    def contamination(self) -> float | None:
        """The rate of the threshold, under the name that PyOD and scikit-learn use; None if it limits alerts instead.

        It is no parameter of its own: `get_params` and `clone` have the threshold. Set it before `fit`.
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
        """A judge that turns alert scores of this detector into flags and events."""
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
        """A copy of the fitted detector with another gap rule for the readings it scores."""
        self._check_fitted()
        other = copy.copy(self)
        other.gaps = gaps
        other.check_parameters()
        other._parameters, other._digest = other.get_params(deep=False), None
        return other

    def stream(
        self,
        snapshot: bytes | None = None,
        *,
        adaptation: Any = None,
        alerts: Alerts | None = None,
        late: str = "refuse",
    ) -> "Stream":
        """Open a stream from the fitted state or from a snapshot; see `can_stream`.

        `adaptation` replaces the detector's own: `KeepFitted()` keeps the fitted state of a `Comet` throughout,
        `NoAdaptation()` that of a `NetworkComet`. `alerts` defines what counts as one event. A reading that is not
        later than the one before is refused, or with `late="drop"` dropped and counted.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = Comet().fit(normal)
        >>> stream = detector.stream()
        >>> scored = [stream.update_many(normal[:300])]
        >>> resumed = detector.stream(stream.snapshot())
        >>> scored += [resumed.update_many(normal[300:]), resumed.finish()]
        >>> np.array_equal(np.concatenate(scored), detector.decision_function(normal))
        True
        """
        if self.can_stream:
            self._check_fitted()
        stream = self._stream(adaptation, alerts or Alerts(), late)
        if snapshot is not None:
            stream.restore(snapshot)
        return stream

    def _stream(self, adaptation: Any, alerts: Alerts, late: str) -> "Stream":
        raise self._cannot("score a stream", "decision_function")

    def open_run(self, adaptation: Any) -> "tuple[ScoringRun, Verdicts | None]":
        """What scores the readings of a stream, and the verdicts on its events, if the detector takes any."""
        raise NotImplementedError

    def explain(self, X: object, event: object, *, context: int = 32) -> "Explanation":
        """Attribute the score of an event, a time, a time step or a pair (start, stop) to variables; see `can_explain`.

        A time is a text such as "2026-11-18T09:30Z" or a datetime. Each reason of a `Comet` names the view that rose
        most above the 500 readings before, and what was expected instead. The explanation has the readings and
        expectations of `context` more time steps on either side. Imputed readings are NaN and have no share.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 1000, 3))
        >>> fresh[500, 1] = 12.0
        >>> reason = Comet().fit(normal).explain(fresh, 500).reasons[0]
        >>> reason.variable, bool(abs(reason.expected[0]) < 3), bool(reason.band < 4)
        ('v1', True, True)
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

    def substituted(self, scaled: Floats32, doubtful: Flags | None) -> Floats32:
        """Scaled readings (time, variable) with better values for `doubtful` cells, if the detector knows any."""
        return scaled

    def _scaled(self, series: Series) -> Floats32:
        """What is scored, scaled."""
        return self.substituted(self.scaling_(self._moved(series)), series.doubtful)

    def _moved(self, series: Series) -> Floats:
        """What is scored of a series: the readings, or their movements, less what is usual at their times."""
        moved = self.trends_(series.values, series.imputed)
        return moved if self.season_ is None else self.season_(series, moved)

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

    def _least_rows(self) -> int:
        return 1

    def _least_training_rows(self) -> int:
        return self._least_rows()

    def _training_rows(self, rows: int) -> int:
        """The number of readings used for training and scaling."""
        return rows

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
        samples = (scores, held_out) if len(held_out) else (scores,)
        self._set_threshold(*highest(self.threshold, samples, self.statistics_.period))

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
