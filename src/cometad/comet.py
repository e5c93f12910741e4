"""Comet: the one place that knows all stages and puts them together."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.thresholds import Quantile
from cometad.alerting.watch import Threshold
from cometad.arrays import Array, Floats, Floats32
from cometad.checkpoint import to_bytes
from cometad.data.gaps import GapRun, Gaps, RefuseGaps
from cometad.data.windows import cut, learnable, training_rows, window_starts
from cometad.detector import Detector, StepScores
from cometad.errors import ParameterError
from cometad.explain.explainer import Explainer
from cometad.explain.reasons import Explanation
from cometad.live.stream import Stream
from cometad.network.adaptation import Adaptation, OnlineAdaptation
from cometad.network.network import Network
from cometad.network.run import Fitted, RawRun, Run
from cometad.network.schedules import OneCycle, Schedule
from cometad.network.score import WINDOWS_AT_ONCE, PatchScores, Scorer
from cometad.network.training import Objective, initialize, place_codes, train
from cometad.presets import paper_parameters
from cometad.progress import shown
from cometad.scoring.calibrate import NoCalibration, TrainingCalibration
from cometad.scoring.normalize import Normalization, TrainingNormalization
from cometad.scoring.pipeline import Block, Decision
from cometad.scoring.select import HighestVariables, Selection
from cometad.series import Series
from cometad.validation import check_parameters

# Parameters that training does not look at.
SCORING = (
    *("neighbors", "memory_distance", "score_weight", "calibration", "selection", "normalization"),
    *("adaptation", "test_batch", "threshold", "verbose"),
)
CALIBRATION_WINDOWS = 512  # evenly spread over the training series: the statistics of the training scores


class ScoreMap(NamedTuple):
    """Both raw scores of every time step, each (scale, time, variable)."""

    memory: Floats
    quantization: Floats


class Comet(Detector):
    """Finds anomalies by how badly patches of readings fit a codebook of normal patterns.

    `Comet()` is our default, `Comet.paper()` the published method; both are the same parts with other values.

    >>> import numpy as np
    >>> from cometad import Comet
    >>> from cometad.network import OneCycle
    >>> chance = np.random.default_rng(0)
    >>> normal, fresh = chance.normal(size=(2, 1000, 3))
    >>> fresh[500, 1] = 12.0
    >>> detector = Comet(schedule=OneCycle(50)).fit(normal)
    >>> int(detector.decision_function(fresh).argmax())
    500

    Parameters
    ----------
    window, window_stride
        Readings per window, and between the starts of two training windows.
    patch_sizes, patch_strides
        One scale each; a stride is at most its patch.
    dim, core_dim, codebook_size
        Length of an embedding, of the part shared by all variables, and codes per scale.
    initialization
        How codes begin: "k-means" (spread over the first embeddings) or "normal".
    refit
        Rounds of k-means that place the codes anew on the trained embeddings; 0 leaves them as trained.
    schedule, batch_size, weight_decay, codebook_weight, commitment_weight
        Training: how long and how fast, windows per step, and the weights of the objective's parts.
    validation_share
        The last share of the series given to `fit`, which is never trained on; the threshold looks at its scores apart.
    scaler
        "standard" or "min-max", fitted on the training part only.
    neighbors, memory_distance
        The memory score: neighbors in the memory, and "local" scaling or "plain" distance.
    score_weight
        The quantization score's weight in the mix; the memory score has the rest.
    calibration, selection, normalization
        What happens to scores per variable, from variables to time steps, and before the two scores are mixed.
    adaptation, test_batch
        Whether and how the codebook follows drift, and after how many windows.
    gaps
        What happens to missing readings: they are refused, or filled in and never flagged.
    threshold
        The rule that says which scores are anomalous: `Quantile`, `Conformal`, `Spot` or `DriftingSpot`, each with the
        share of normal readings that it may flag.
    seed, device, verbose
        Same seed, same bytes, on one device and thread count; "cpu" or "cuda"; whether `fit` shows its progress.
    """

    can_stream = can_explain = can_adapt = True

    # Built by `_prepare` from the fitted state.
    _fitted: Fitted
    _scorer: Scorer
    _decision: Decision

    def __init__(
        self,
        *,
        window: int = 128,
        window_stride: int = 16,
        patch_sizes: Sequence[int] = (4, 8, 16),
        patch_strides: Sequence[int] = (2, 4, 8),
        dim: int = 64,
        core_dim: int = 8,
        codebook_size: int = 512,
        initialization: str = "k-means",
        refit: int = 10,
        schedule: Schedule = OneCycle(400),
        batch_size: int = 32,
        weight_decay: float = 5e-4,
        codebook_weight: float = 1.0,
        commitment_weight: float = 1.0,
        validation_share: float = 0.1,
        scaler: str = "standard",
        neighbors: int = 10,
        memory_distance: str = "local",
        score_weight: float = 1.0,
        calibration: NoCalibration | TrainingCalibration = TrainingCalibration(),
        selection: Selection = HighestVariables(3),
        normalization: Normalization = TrainingNormalization(),
        adaptation: Adaptation = OnlineAdaptation(contrastive_weight=0.0, error_limit=0.99, max_drift=0.5),
        test_batch: int = 8,
        gaps: Gaps = RefuseGaps(),
        threshold: Threshold = Quantile(rate=0.01),
        seed: int = 42,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.window = window
        self.window_stride = window_stride
        self.patch_sizes = patch_sizes
        self.patch_strides = patch_strides
        self.dim = dim
        self.core_dim = core_dim
        self.codebook_size = codebook_size
        self.initialization = initialization
        self.refit = refit
        self.schedule = schedule
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.codebook_weight = codebook_weight
        self.commitment_weight = commitment_weight
        self.validation_share = validation_share
        self.scaler = scaler
        self.neighbors = neighbors
        self.memory_distance = memory_distance
        self.score_weight = score_weight
        self.calibration = calibration
        self.selection = selection
        self.normalization = normalization
        self.adaptation = adaptation
        self.test_batch = test_batch
        self.gaps = gaps
        self.threshold = threshold
        self.seed = seed
        self.device = device
        self.verbose = verbose
        self._check_parameters()

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> Self:
        """The published method, with the codebook size and dimension that the paper uses on a dataset.

        >>> from cometad import Comet
        >>> detector = Comet.paper("WADI", seed=1)
        >>> detector.codebook_size, detector.dim, detector.patch_sizes
        (32, 64, (2, 4, 6))
        """
        return cls(**{**paper_parameters(dataset), **changes})

    def with_scoring(self, X: object, **changes: Any) -> Self:
        """A detector with other parameters of scoring, as if fitted on the same series X, without training again.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> from cometad.network import NoAdaptation, OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = Comet(schedule=OneCycle(5)).fit(normal)
        >>> other = detector.with_scoring(normal, adaptation=NoAdaptation(), score_weight=0.5)
        >>> again = Comet(schedule=OneCycle(5), adaptation=NoAdaptation(), score_weight=0.5).fit(normal)
        >>> np.array_equal(other.decision_scores_, again.decision_scores_)
        True
        """
        series = self._checked(X)
        for name in changes:
            if name not in SCORING:
                raise ParameterError(
                    f"The parameter {name!r} takes part in training. Fit a new Comet with it; without training "
                    f"change {', '.join(SCORING)}."
                )
        other = type(self)(**(self.get_params(deep=False) | changes))
        other._remember(self.names_, self.named_)
        other.scaling_, other.statistics_ = self.scaling_, self.statistics_
        other.network_, other.code_counts_ = self.network_, self.code_counts_
        scaled = other.scaling_(series.values)
        other._calibrate(scaled, series)
        other._settle(scaled, series)
        return other

    def score_map(self, X: object) -> ScoreMap:
        """Both raw scores of every time step, each (scale, time, variable); NaN where they rest on filled in readings.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> from cometad.network import OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> Comet(schedule=OneCycle(5)).fit(normal).score_map(normal).quantization.shape
        (3, 600, 2)
        """
        series = self._checked(X)
        raw = RawRun(self._fitted, self._scorer, self._decision.release, apart=True)
        releases = (*raw.push(self.scaling_(series.values), series.imputed), *raw.finish())
        blocks = [block for release in releases for block in release]
        return ScoreMap(*np.concatenate([_flat(block) for block in blocks], axis=2))

    def explain(self, X: object, event: Event | int | Sequence[int], *, context: int = 32) -> Explanation:
        """Which variables are behind the score of an event, a time step or a pair (start, stop) of a series, and why.

        With the readings and what normal codes make of them, from `context` time steps before to as many after. Only
        the windows there are looked at, with the fitted state: what adaptation learned up to then plays no part.
        Readings that were filled in are nan, and have no share where they were.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> from cometad.network import OneCycle
        >>> chance = np.random.default_rng(0)
        >>> normal, fresh = chance.normal(size=(2, 1000, 3))
        >>> fresh[500, 1] = 12.0
        >>> reason = Comet(schedule=OneCycle(50)).fit(normal).explain(fresh, 500).reasons[0]
        >>> reason.variable, bool(12.0 in reason.observed)
        ('v1', True)
        """
        series = self._checked(X)
        explain = Explainer(
            self.network_,
            self._scorer,
            self._decision,
            self.normalization_,
            self.window,
            self.test_batch,
            self.scaling_,
            self.code_counts_,
            self.levels_,
            self.typical_,
        )
        return explain(series.values, self.names_, event, context, series.imputed)

    def code_counts(self, X: object) -> list[NDArray[np.int64]]:
        """How many patches of a series take each code (code,), for each scale, with the codebook as fitted.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> from cometad.network import OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(640, 2))
        >>> detector = Comet(schedule=OneCycle(5)).fit(normal)
        >>> [int(counts.sum()) for counts in detector.code_counts(normal)]  # 5 windows of 2 variables
        [630, 310, 150]
        """
        scaled = self.scaling_(self._checked(X).values)
        return self._count_codes(scaled, window_starts(len(scaled), self.window, self.window))

    def code_usage(self, X: object) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Patch size and patches per code (code,) in training and in a series, for each scale."""
        return list(zip(self.patch_sizes, self.code_counts_, self.code_counts(X), strict=True))

    def stream(
        self,
        snapshot: bytes | None = None,
        *,
        adaptation: Adaptation | None = None,
        alerts: Alerts | None = None,
        late: str = "refuse",
    ) -> Stream:
        """A stream that starts from the fitted state, or goes on from a snapshot.

        `adaptation` stands in for the detector's own: `NoAdaptation()` keeps the fitted state throughout. `alerts` says
        what counts as one event. A reading whose time is not after that of the reading before is refused with an error,
        or with `late="drop"` dropped and counted.
        """
        self._check_fitted()
        adaptation, alerts = adaptation or self.adaptation, alerts or Alerts()
        check_parameters({**self.get_params(deep=False), "adaptation": adaptation})
        fingerprint = self._fingerprint(adaptation, alerts)
        stream = Stream(
            lambda: self._open(adaptation),
            self.scaling_.__call__,
            self.names_,
            self.named_,
            lambda: self.judge(alerts),
            fingerprint,
            self._start_filling if self.gaps.allowed else None,
            late,
        )
        if snapshot is not None:
            stream.restore(snapshot)
        return stream

    def _start_filling(self) -> GapRun:
        return GapRun(self.gaps, self.statistics_.center, self.statistics_.usual)

    # -- fitting ----------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False))

    def _least_rows(self) -> int:
        return self.window

    def _training_rows(self, rows: int) -> int:
        return training_rows(rows, self.validation_share)

    def _learn(self, scaled: Floats32, series: Series) -> None:
        starts = window_starts(self._training_rows(len(scaled)), self.window, self.window_stride)
        starts = learnable(starts, self.window, series)
        self.network_ = self._train(scaled, starts)
        self.code_counts_ = self._count_codes(scaled, starts)
        self._calibrate(scaled, series)

    def _train(self, scaled: NDArray[np.float32], starts: NDArray[np.int64]) -> Network:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.seed))
            network = self._network(scaled.shape[1])

        values, steps = torch.as_tensor(scaled, device=self.device), torch.arange(self.window, device=self.device)
        begins = torch.as_tensor(starts, device=self.device)

        def windows(chosen: NDArray[np.int64]) -> torch.Tensor:
            return values[begins[torch.as_tensor(chosen, device=self.device), None] + steps]

        few = np.linspace(0, len(starts) - 1, min(len(starts), CALIBRATION_WINDOWS)).astype(int)
        initialize(network, self.initialization, windows(few), self.seed)
        with shown("epoch", self.verbose) as report:
            train(
                network,
                windows,
                len(starts),
                schedule=self.schedule,
                objective=self._objective,
                batch_size=self.batch_size,
                seed=self.seed,
                report=lambda epoch: report(epoch.epoch, epoch.epochs, str(epoch)),
            )
        if self.refit:
            place_codes(network, windows(few), self.refit, self.seed)
        return network

    @property
    def active_(self) -> list[NDArray[np.bool_]]:
        """Which codes of each scale the training windows activate. Paper: Eq. 12, 21."""
        return [counts > 0 for counts in self.code_counts_]

    def _count_codes(self, scaled: NDArray[np.float32], starts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """How many patches of the training windows take each code, for each scale."""
        everything = [np.ones(self.codebook_size, bool) for _ in self.patch_sizes]  # the table plays no part here
        scorer = Scorer(self.network_, everything, self.neighbors, self.memory_distance, self.device)
        counts = [np.zeros(self.codebook_size, np.int64) for _ in self.patch_sizes]
        for begin in range(0, len(starts), WINDOWS_AT_ONCE):
            windows = cut(scaled, starts[begin : begin + WINDOWS_AT_ONCE], self.window)
            for k, count in enumerate(counts):
                count += np.bincount(scorer.whole(windows, k).codes.ravel(), minlength=self.codebook_size)
        return counts

    def _calibrate(self, scaled: NDArray[np.float32], series: Series) -> None:
        """Learn the statistics of the training scores."""
        starts = learnable(window_starts(len(scaled), self.window, self.window), self.window, series)
        chosen = np.linspace(0, len(starts) - 1, min(len(starts), CALIBRATION_WINDOWS)).astype(int)
        windows = cut(scaled, starts[chosen], self.window)
        width = scaled.shape[1]
        scorer = Scorer(self.network_, self.active_, self.neighbors, self.memory_distance, self.device)
        patches = [scorer.whole(windows, k) for k in range(len(self.patch_sizes))]
        self.error_limits_ = [self._limit(scored.errors) for scored in patches]
        self.typical_ = np.median(windows, axis=(0, 1))
        self.levels_ = np.stack([self._levels(scorer.memory[k], scored) for k, scored in enumerate(patches)], axis=1)
        self.calibration_ = np.stack([NoCalibration().fit(np.empty((0, width)))] * 2)
        self.normalization_ = np.zeros((2, 2))
        self._prepare()
        raw = scorer.steps(patches, self.window, 0, self.window)
        self.calibration_ = np.stack([self.calibration.fit(scores.reshape(-1, width)) for scores in raw])
        self._prepare()
        selected = self._decision.select(self._decision.calibrated(raw), skip=0)
        self.normalization_ = np.stack([self.normalization.fit(scores) for scores in selected])

    def _limit(self, errors: NDArray[np.float32]) -> Floats:
        """The largest error (variable,) that adaptation takes for normal at one scale."""
        quantile, width = getattr(self.adaptation, "error_limit", None), errors.shape[2]
        if quantile is None:
            return np.full(width, np.inf)
        return np.asarray(np.quantile(errors.reshape(-1, width), quantile, axis=0), dtype=np.float64)

    def _levels(self, memory: Floats, scored: PatchScores) -> Floats:
        """The median of each raw score (score, variable) over the training patches of one scale."""
        return np.stack([np.median(scores, axis=(0, 1)) for scores in (memory[scored.codes], scored.errors)])

    # -- scoring ----------------------------------------------------------------------------------------------------

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return self._step_scores(scaled, series).scores

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        run = self._open(self.adaptation)
        decided = [*run.push(scaled, series.imputed), *run.finish()]
        scores = np.concatenate([some.scores for some in decided])
        imputed = None if series.imputed is None else np.concatenate([some.imputed for some in decided])
        return StepScores(scores, imputed)

    def _open(self, adaptation: Adaptation) -> Run:
        limit, own = (getattr(kind, "error_limit", None) for kind in (adaptation, self.adaptation))
        if limit not in (None, own):
            raise ParameterError(
                f"This Comet was fitted with error_limit={own!r}, not {limit!r}. Fit one with that adaptation."
            )
        limits = self.error_limits_ if limit else [np.full_like(bound, np.inf) for bound in self.error_limits_]
        fitted = dataclasses.replace(self._fitted, adaptation=adaptation, limits=limits)
        return Run(RawRun(fitted, self._scorer, self._decision.release), self._decision, self.normalization_)

    def _prepare(self) -> None:
        """Build what scoring shares: it is never changed, so every run may use it."""
        self._fitted = Fitted(
            self.network_,
            self.active_,
            self.error_limits_,
            self.neighbors,
            self.memory_distance,
            self.window,
            self.test_batch,
            self.adaptation,
            self._objective,
            self.seed,
            self.device,
        )
        self._scorer = self._fitted.scorer(self.network_)
        self._decision = Decision(self.selection, self.normalization, self.score_weight, self.calibration_)

    # -- state ------------------------------------------------------------------------------------------------------

    def _network(self, variables: int) -> Network:
        sizes = (self.patch_sizes, self.patch_strides, self.dim, self.core_dim, self.codebook_size)
        return Network(variables, *sizes).to(self.device)

    @property
    def _objective(self) -> Objective:
        return Objective(self.codebook_weight, self.commitment_weight, self.weight_decay)

    def _state(self) -> Mapping[str, Array]:
        arrays: dict[str, Array] = {
            "calibration": self.calibration_,
            "normalization": self.normalization_,
            "code_counts": np.stack(self.code_counts_),
            "levels": self.levels_,
            "typical": self.typical_,
            "error_limits": np.stack(self.error_limits_),
        }
        weights = self.network_.state_dict()
        return arrays | {f"network.{name}": value.cpu().numpy() for name, value in weights.items()}

    def _take_state(self, state: Mapping[str, Array]) -> None:
        self.network_ = self._network(self.n_features_in_)
        self.network_.load_state_dict(
            {
                name.removeprefix("network."): torch.from_numpy(value)
                for name, value in state.items()
                if name.startswith("network.")
            }
        )
        self.calibration_, self.normalization_ = state["calibration"], state["normalization"]
        self.code_counts_, self.error_limits_ = list(state["code_counts"]), list(state["error_limits"])
        self.levels_, self.typical_ = state["levels"], state["typical"]
        self._prepare()

    def _fingerprint(self, adaptation: Adaptation, alerts: Alerts) -> str:
        """A name for this fitted detector with an adaptation and alerts: a stream's snapshot goes with one of them."""
        content = to_bytes(self._checkpoint()) + repr((adaptation, alerts)).encode()
        return hashlib.sha256(content).hexdigest()[:16]


def _flat(block: Block) -> Floats:
    """(score, scale, window, time, variable) as (score, scale, time, variable), without the steps to be skipped."""
    scores, scales, *_, variables = block.raw.shape
    raw = block.raw if block.left_out is None else np.where(block.left_out, np.nan, block.raw)
    return raw[:, :, :, block.skip :].reshape(scores, scales, -1, variables)
