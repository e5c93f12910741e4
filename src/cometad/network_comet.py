"""NetworkComet, the detector with the trained COMET network: puts its stages together."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.thresholds import Quantile
from cometad.alerting.watch import Threshold
from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.checkpoint import to_bytes_0_1
from cometad.data.gaps import Gaps, RefuseGaps
from cometad.data.network_windows import cut, learnable, training_rows, window_starts
from cometad.detector import RULES as SHARED_RULES
from cometad.detector import Detector
from cometad.errors import ParameterError, imported_for
from cometad.scoring.scores import StepScores

imported_for("NetworkComet", "torch")  # first, so that its absence is reported in one sentence

from cometad.explain.explainer import Explainer
from cometad.explain.reasons import Explanation
from cometad.live.stream import Stream
from cometad.network.adaptation import Adaptation, NoAdaptation, OnlineAdaptation
from cometad.network.fast.torch_threads import torch_alone
from cometad.network.network import Network
from cometad.network.patches import check_patches
from cometad.network.pipeline import Pipeline
from cometad.network.run import FittedNetwork, RawRun, Run
from cometad.network.schedules import OneCycle, Schedule
from cometad.network.score import DISTANCES, Scorer
from cometad.network.state import weights
from cometad.network.training import INITIALIZATIONS, Objective, Training, fit_network, new_network
from cometad.parameters import check, choice, integer, number, require, strategy
from cometad.presets import paper_parameters
from cometad.progress import show_progress
from cometad.saved_detector import short_digest
from cometad.saving import Table, array, require_state
from cometad.scoring.calibrate import Calibration, TrainingCalibration
from cometad.scoring.normalize import Normalization, TrainingNormalization
from cometad.scoring.select import HighestVariables, Selection
from cometad.series import Series

# Parameters that do not affect training.
SCORING = (
    *("neighbors", "memory_distance", "score_weight", "calibration", "selection", "normalization"),
    *("adaptation", "test_batch", "threshold", "verbose"),
)
CALIBRATION_WINDOWS = 512  # spread evenly over the training series, for the statistics of its scores


# Valid parameter values.
RULES = SHARED_RULES | {
    **dict.fromkeys(("dim", "core_dim", "codebook_size", "test_batch"), integer(1)),
    "refit": integer(0),
    "initialization": choice(INITIALIZATIONS),
    "memory_distance": choice(DISTANCES),
    "codebook_weight": number(0, math.inf),
    "commitment_weight": number(0, math.inf),
    "score_weight": number(0, 1),
    "calibration": strategy("fit"),
    "selection": strategy("release", "__call__"),
    "normalization": strategy("release", "fit", "gain", "__call__"),
    "adaptation": strategy("start"),
}


class ScoreMap(NamedTuple):
    """Both raw scores, each (scale, time, variable)."""

    memory: Floats
    quantization: Floats


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkComet(Detector):
    """The detector with the trained COMET network: how badly do patches of readings fit a codebook of normal patterns?

    `NetworkComet()` has the defaults of cometad 0.1 and `NetworkComet.paper()` the published ones: the same parts with
    other values.

    >>> import numpy as np
    >>> from cometad import NetworkComet
    >>> from cometad.network import OneCycle
    >>> rng = np.random.default_rng(0)
    >>> normal, fresh = rng.normal(size=(2, 1000, 3))
    >>> fresh[500, 1] = 12.0
    >>> detector = NetworkComet(schedule=OneCycle(50)).fit(normal)
    >>> int(detector.decision_function(fresh).argmax())
    500

    Parameters
    ----------
    window, window_stride
        Readings per window, and between the starts of consecutive training windows.
    patch_sizes, patch_strides
        One scale per pair; a stride is at most its patch size.
    dim, core_dim, codebook_size
        Length of an embedding, length of the part shared by all variables, and codes per scale.
    initialization
        Initial codes: "k-means" (spread over the first embeddings) or "normal".
    refit
        Rounds of k-means that move the codes onto the trained embeddings; 0 leaves them as trained.
    schedule, batch_size, weight_decay, codebook_weight, commitment_weight
        Training: how long and how fast, windows per step, and the weights of the loss terms.
    validation_share
        Share of the series, at its end, that is held out from training, or the number of its readings. A threshold is
        fitted on all readings and one on the held-out part alone; the higher one counts.
    scaler
        "standard" or "min-max", fitted on the training part only.
    neighbors, memory_distance
        For the memory score: the number of neighbors, and the distance, "local" (locally scaled) or "plain".
    score_weight
        Weight of the quantization score; the memory score has the rest.
    calibration, selection, normalization
        How scores are rescaled per variable, aggregated over variables, and rescaled before the two are mixed.
    adaptation, test_batch
        Whether and how the codebook follows drift, and the number of windows between updates.
    gaps
        How missing readings are handled: refused, or imputed and never flagged.
    threshold
        Which scores are anomalous: `Quantile`, `Conformal`, `Spot` or `DriftingSpot`, each with the share of normal
        readings it may flag.
    seed, device, verbose
        Random seed (equal seeds give equal bytes on the same device and thread count); "cpu" or "cuda"; whether `fit`
        shows progress.
    """

    can_stream = can_explain = can_adapt = True
    without_adaptation = NoAdaptation()
    saved: ClassVar[Table] = {
        "network": weights("network_", lambda own: own._built(own.n_features_in_)),
        "code_counts": array("code_counts_", "scale", "codebook_size", dtype=np.int64, pack=np.stack, make=list),
        "error_limits": array("error_limits_", "scale", "variable", unknown=True, pack=np.stack, make=list),
        "levels": array("levels_", 2, "scale", "variable"),
        "typical": array("typical_", "variable", dtype=np.float32),
        "calibration": array("calibration_", 2, 2, "variable"),
        "normalization": array("normalization_", 2, 2, unknown=True),
    }
    _identity_name = "Comet"  # its name in 0.1: snapshots written then must still resume

    window: int = 128
    window_stride: int = 16
    patch_sizes: Sequence[int] = (4, 8, 16)
    patch_strides: Sequence[int] = (2, 4, 8)
    dim: int = 64
    core_dim: int = 8
    codebook_size: int = 512
    initialization: str = "k-means"
    refit: int = 10
    schedule: Schedule = OneCycle(400)
    batch_size: int = 32
    weight_decay: float = 5e-4
    codebook_weight: float = 1.0
    commitment_weight: float = 1.0
    validation_share: float = 0.1
    scaler: str = "standard"
    neighbors: int = 10
    memory_distance: str = "local"
    score_weight: float = 1.0
    calibration: Calibration = TrainingCalibration()
    selection: Selection = HighestVariables(3)
    normalization: Normalization = TrainingNormalization()
    adaptation: Adaptation = OnlineAdaptation(contrastive_weight=0.0, error_limit=0.99, max_drift=0.5)
    test_batch: int = 8
    gaps: Gaps = RefuseGaps()
    threshold: Threshold = Quantile(rate=0.01)
    seed: int = 42
    device: str = "cpu"
    verbose: bool = False

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> Self:
        """The published method, with the paper's codebook size and dimension for a dataset.

        >>> from cometad import NetworkComet
        >>> detector = NetworkComet.paper("WADI", seed=1)
        >>> detector.codebook_size, detector.dim, detector.patch_sizes
        (32, 64, (2, 4, 6))
        """
        return cls(**{**paper_parameters(dataset), **changes})

    def with_scoring(self, X: object, **changes: Any) -> Self:
        """A detector with other scoring parameters, as if fitted on the same series X, without training again.

        >>> import numpy as np
        >>> from cometad import NetworkComet
        >>> from cometad.network import NoAdaptation, OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = NetworkComet(schedule=OneCycle(5)).fit(normal)
        >>> other = detector.with_scoring(normal, adaptation=NoAdaptation(), score_weight=0.5)
        >>> again = NetworkComet(schedule=OneCycle(5), adaptation=NoAdaptation(), score_weight=0.5).fit(normal)
        >>> np.array_equal(other.decision_scores_, again.decision_scores_)
        True
        """
        series = self._checked(X)
        for name in changes:
            if name not in SCORING:
                raise ParameterError(
                    f"The parameter {name!r} affects training. Fit a new NetworkComet with it. Without training you "
                    f"can change {', '.join(SCORING)}."
                )
        other = type(self)(**(self.get_params(deep=False) | changes))
        other.check_parameters()
        other.names_, other.named_, other.n_features_in_ = self.names_, self.named_, self.n_features_in_
        other.scaling_, other.statistics_, other.trends_ = self.scaling_, self.statistics_, self.trends_
        other.network_, other.code_counts_ = self.network_, self.code_counts_
        scaled = other.scaling_(series.values)
        other._calibrate(scaled, series, other._new_scorer(other.active_))
        other._settle(scaled, series)
        return other

    def score_map(self, X: object) -> ScoreMap:
        """Both raw scores of a series, each (scale, time, variable); NaN where they depend on imputed readings.

        >>> import numpy as np
        >>> from cometad import NetworkComet
        >>> from cometad.network import OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> NetworkComet(schedule=OneCycle(5)).fit(normal).score_map(normal).quantization.shape
        (3, 600, 2)
        """
        series = self._checked(X)
        raw = RawRun(self._fitted, self.adaptation, apart=True)
        releases = (*raw.push(self.scaling_(series.values), series.imputed), *raw.finish())
        return ScoreMap(*np.concatenate([block.apart() for release in releases for block in release], axis=2))

    def explainer(self, X: object) -> Callable[[Event | int | Sequence[int], int], Explanation]:
        """A function that explains events of one series, which is checked only once.

        Expected are reconstructions from normal codes. Only the windows of an event are rescored, with the fitted
        state: later adaptation has no effect.
        """
        series = replace(self._checked(X), names=self.names_)
        return Explainer(self._fitted, self.scaling_, self.code_counts_, self.levels_, self.typical_, series)

    def code_counts(self, X: object) -> list[Integers]:
        """How many patches of a series take each code (code,), per scale, with the fitted codebook.

        >>> import numpy as np
        >>> from cometad import NetworkComet
        >>> from cometad.network import OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(640, 2))
        >>> detector = NetworkComet(schedule=OneCycle(5)).fit(normal)
        >>> [int(counts.sum()) for counts in detector.code_counts(normal)]  # 5 windows of 2 variables
        [630, 310, 150]
        """
        scaled = self.scaling_(self._checked(X).values)
        starts = window_starts(len(scaled), self.window, self.window)
        return self._fitted.scorer.code_counts(scaled, starts, self.window)

    def code_usage(self, X: object) -> list[tuple[int, Integers, Integers]]:
        """Patch size and patches per code (code,) in training and in a series, for each scale."""
        return list(zip(self.patch_sizes, self.code_counts_, self.code_counts(X), strict=True))

    def _stream(self, adaptation: Adaptation | None, alerts: Alerts, late: str) -> Stream:
        adaptation = adaptation or self.adaptation
        check({"adaptation": adaptation}, RULES)
        return Stream(self, adaptation, alerts, late)

    # -- fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored. Threads that fit take turns."""
        with torch_alone():
            return super().fit(X, y)

    def check_parameters(self) -> None:
        check(self.get_params(deep=False), RULES)
        require(self.dim % 2 == 0, "dim", "even: one half embeds each variable on its own", self.dim)
        check_patches(self.patch_sizes, self.patch_strides, self.window)

    def _least_rows(self) -> int:
        return self.window

    def _training_rows(self, rows: int) -> int:
        return training_rows(rows, self.validation_share)

    def _learn(self, scaled: Floats32, series: Series) -> None:
        starts = window_starts(self._training_rows(len(scaled)), self.window, self.window_stride)
        starts = learnable(starts, self.window, series)
        self.network_ = self._train(scaled, starts)
        scorer = self._new_scorer()
        self.code_counts_ = scorer.code_counts(scaled, starts, self.window)
        scorer.remember(self.active_)
        self._calibrate(scaled, series, scorer)

    def _train(self, scaled: Floats32, starts: Integers) -> Network:
        network = new_network(lambda: self._built(scaled.shape[1]), self.seed, self.device)
        training = Training(self.initialization, self.refit, self.schedule, self._objective, self.batch_size, self.seed)
        with show_progress("epoch", self.verbose) as report:
            return fit_network(
                network,
                scaled,
                starts,
                self.window,
                training,
                report=lambda epoch: report(epoch.epoch, epoch.epochs, str(epoch)),
            )

    @property
    def active_(self) -> list[Flags]:
        """The codes (code,) that training activated, per scale. Paper: Eq. 12, 21."""
        return [counts > 0 for counts in self.code_counts_]

    def _new_scorer(self, active: list[Flags] | None = None) -> Scorer:
        return Scorer(self.network_, active, self.neighbors, self.memory_distance, self.device)

    def _calibrate(self, scaled: Floats32, series: Series, scorer: Scorer) -> None:
        """Fit the pipeline and everything else that depends on the training scores."""
        starts = learnable(window_starts(len(scaled), self.window, self.window), self.window, series)
        chosen = np.linspace(0, len(starts) - 1, min(len(starts), CALIBRATION_WINDOWS)).astype(int)
        windows = cut(scaled, starts[chosen], self.window)
        patches = [scorer.whole(windows, k) for k in range(len(self.patch_sizes))]
        self.error_limits_ = [self._limit(scored.errors) for scored in patches]
        self.typical_ = np.median(windows, axis=(0, 1))
        self.levels_ = scorer.levels(patches)
        raw = scorer.steps(patches, self.window, 0, self.window)
        self._prepare(
            scorer, Pipeline.fit(raw, self.calibration, self.selection, self.normalization, self.score_weight)
        )

    def _limit(self, errors: Floats32) -> Floats:
        quantile, width = getattr(self.adaptation, "error_limit", None), errors.shape[2]
        if quantile is None:
            return np.full(width, np.inf)
        return np.asarray(np.quantile(errors.reshape(-1, width), quantile, axis=0), dtype=np.float64)

    # -- scoring ----------------------------------------------------------------------------------------------------

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return self._step_scores(scaled, series).scores

    def _settle(self, scaled: Floats32, series: Series) -> None:
        self.decision_scores_, self.alert_scores_, imputed = self._step_scores(scaled, series)
        if self.adaptation != self.without_adaptation:
            # A run that has adapted to the training series scores it lower than a new stream would.
            self.alert_scores_ = self._run_scores(self.without_adaptation, scaled, series).alerts
        self.imputed_ = np.zeros(len(series), bool) if imputed is None else imputed
        self._fit_threshold()

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        return self._run_scores(self.adaptation, scaled, series)

    def _run_scores(self, adaptation: Adaptation, scaled: Floats32, series: Series) -> StepScores:
        run, _ = self.open_run(adaptation)
        decided = [*run.push(scaled, series.imputed), *run.finish()]
        scores = np.concatenate([part.alerts for part in decided])
        imputed = None if series.imputed is None else np.concatenate([part.imputed for part in decided])
        return StepScores(scores, scores, imputed)

    def open_run(self, adaptation: Adaptation) -> tuple[Run, None]:
        limit, own = (getattr(kind, "error_limit", None) for kind in (adaptation, self.adaptation))
        if limit not in (None, own):
            raise ParameterError(
                f"This NetworkComet was fitted with error_limit={own!r}, not {limit!r}. Fit one with that adaptation."
            )
        limits = self.error_limits_ if limit else [np.full_like(bound, np.inf) for bound in self.error_limits_]
        return Run(replace(self._fitted, limits=limits), adaptation), None

    def _prepare(self, scorer: Scorer, pipeline: Pipeline) -> None:
        self.calibration_, self.normalization_ = pipeline.calibration, pipeline.start
        self._fitted = FittedNetwork(
            network=self.network_,
            scorer=scorer,
            pipeline=pipeline,
            limits=self.error_limits_,
            window=self.window,
            test_batch=self.test_batch,
            objective=self._objective,
            seed=self.seed,
        )

    # -- state ------------------------------------------------------------------------------------------------------

    def _built(self, variables: int) -> Network:
        sizes = (self.patch_sizes, self.patch_strides, self.dim, self.core_dim, self.codebook_size)
        return Network(variables, *sizes)

    @property
    def _objective(self) -> Objective:
        return Objective(self.codebook_weight, self.commitment_weight, self.weight_decay)

    def _lengths(self) -> dict[str, Any]:
        return {**super()._lengths(), "scale": len(self.patch_sizes)}

    def _check_state(self) -> None:
        require_state(all((counts > 0).any() for counts in self.code_counts_), "its array 'code_counts' is empty")
        require_state(bool((self.calibration_[:, 1] > 0).all()), "its array 'calibration' has no positive units")
        fitted = self.calibration_, self.normalization_
        pipeline = Pipeline(self.selection, self.normalization, self.score_weight, *fitted)
        self._prepare(self._new_scorer(self.active_), pipeline)

    def earlier_fingerprint(self, *settings: object) -> str:
        try:
            return short_digest(to_bytes_0_1(self._checkpoint()._replace(kind=self._identity_name)), settings)
        except ParameterError:
            return ""
