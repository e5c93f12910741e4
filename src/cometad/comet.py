"""Comet: the one place that knows all stages and puts them together."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from cometad.checkpoint import Checkpoint, read, to_bytes, write
from cometad.data.scale import Scaling, fit_scaling
from cometad.data.windows import cut, training_rows, window_starts
from cometad.decision.decide import Block, Decision
from cometad.decision.normalize import (
    NoCalibration,
    Normalization,
    TrainingCalibration,
    TrainingNormalization,
)
from cometad.decision.select import (
    HighestVariables,
    Selection,
)
from cometad.detector import Series, as_series, check_length, check_like
from cometad.errors import InputError, ModelFileError, NotFittedError, ParameterError
from cometad.model.adapt import Adaptation, OnlineAdaptation
from cometad.model.network import Network
from cometad.model.score import WINDOWS_AT_ONCE, ScoreMap, Scorer
from cometad.model.train import Objective, initialize, place_codes, train
from cometad.parameters import as_json, check_parameters, from_json, paper_parameters
from cometad.progress import shown
from cometad.run import Fitted, RawRun, Run
from cometad.stream import Stream
from cometad.training import OneCycle, Schedule

Floats = NDArray[np.float64]

CALIBRATION_WINDOWS = 512  # evenly spread over the training series: the statistics of the training scores


class Comet(BaseEstimator):
    """Finds anomalies by how badly patches of readings fit a codebook of normal patterns.

    `Comet()` is our default, `Comet.paper()` the published method; both are the same parts with other values.

    >>> import numpy as np
    >>> from cometad import Comet, OneCycle
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
        The last share of the series given to `fit`, which is never trained on.
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
    threshold_quantile
        `threshold_` is this quantile of the training scores.
    seed, device, verbose
        Same seed, same bytes, on one device and thread count; "cpu" or "cuda"; whether `fit` shows its progress.
    """

    # Built by `_prepare` from the fitted state, and the parameters that were fitted with.
    _fitted: Fitted
    _scorer: Scorer
    _decision: Decision
    _parameters: dict[str, Any]
    threshold_: float

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
        adaptation: Adaptation = OnlineAdaptation(error_limit=0.99, max_drift=0.5),
        test_batch: int = 8,
        threshold_quantile: float = 0.99,
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
        self.threshold_quantile = threshold_quantile
        self.seed = seed
        self.device = device
        self.verbose = verbose
        check_parameters(self.get_params(deep=False))

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> Self:
        """The published method, with the codebook size and dimension that the paper uses on a dataset.

        >>> from cometad import Comet
        >>> detector = Comet.paper("WADI", seed=1)
        >>> detector.codebook_size, detector.dim, detector.patch_sizes
        (32, 64, (2, 4, 6))
        """
        return cls(**{**paper_parameters(dataset), **changes})

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored."""
        check_parameters(self.get_params(deep=False))
        if hasattr(self, "threshold_"):
            del self.threshold_  # not fitted until the end: an interrupted fit leaves no half of one
        series = as_series(X)
        rows = training_rows(len(series), self.validation_share)
        check_length(series, self.window, "a window")
        if rows < self.window:
            raise InputError(
                f"Without the share kept for validation the series has {rows} readings, fewer than a window "
                f"({self.window}). Pass a longer series or a shorter window."
            )
        self._remember(series)
        self.scaling_ = fit_scaling(self.scaler, series.values[:rows])
        scaled = self.scaling_(series.values)
        starts = window_starts(rows, self.window, self.window_stride)
        self.network_ = self._train(scaled, starts)
        self.active_ = self._activated(scaled, starts)
        self._calibrate(scaled)
        self._parameters = self.get_params(deep=False)
        self.decision_scores_ = self._scores(scaled)
        self.threshold_ = float(np.quantile(self.decision_scores_, self.threshold_quantile))
        return self

    def decision_function(self, X: object) -> Floats:
        """One score per time step of a series (time, variable); higher is more anomalous."""
        series = self._checked(X)
        return self._scores(self.scaling_(series.values))

    def predict(self, X: object) -> NDArray[np.int64]:
        """1 for each time step whose score is above `threshold_`, else 0."""
        return (self.decision_function(X) > self.threshold_).astype(np.int64)

    def score_map(self, X: object) -> ScoreMap:
        """Both raw scores of every time step, each (scale, time, variable).

        >>> import numpy as np
        >>> from cometad import Comet, OneCycle
        >>> normal = np.random.default_rng(0).normal(size=(600, 2))
        >>> Comet(schedule=OneCycle(5)).fit(normal).score_map(normal).quantization.shape
        (3, 600, 2)
        """
        series = self._checked(X)
        raw = RawRun(self._fitted, self._scorer, self._decision.release)
        blocks = [block for release in (*raw.push(self.scaling_(series.values)), *raw.finish()) for block in release]
        return ScoreMap(
            np.concatenate([_flat(block.memory, block.skip) for block in blocks], axis=1),
            np.concatenate([_flat(block.quantization, block.skip) for block in blocks], axis=1),
        )

    def stream(self, snapshot: bytes | None = None, *, adaptation: Adaptation | None = None) -> Stream:
        """A stream that starts from the fitted state, or goes on from a snapshot.

        `adaptation` stands in for the detector's own: `NoAdaptation()` keeps the fitted state throughout.
        """
        self._check_fitted()
        adaptation = adaptation or self.adaptation
        check_parameters({**self.get_params(deep=False), "adaptation": adaptation})
        fingerprint = self._fingerprint(adaptation)
        stream = Stream(
            lambda: self._open(adaptation),
            self.scaling_.__call__,
            self.names_,
            self.named_,
            self.threshold_,
            fingerprint,
        )
        if snapshot is not None:
            stream.restore(snapshot)
        return stream

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
                f"'{path}' does not hold what a saved Comet needs. Pass a file written by save."
            ) from error
        return detector

    # -- fitting ----------------------------------------------------------------------------------------------------

    def _train(self, scaled: NDArray[np.float32], starts: NDArray[np.int64]) -> Network:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.seed))
            network = self._network(scaled.shape[1])

        def windows(chosen: NDArray[np.int64]) -> NDArray[np.float32]:
            return cut(scaled, starts[chosen], self.window)

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

    def _activated(self, scaled: NDArray[np.float32], starts: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
        """Which codes of each scale the training windows activate. Paper: Eq. 12, 21."""
        everything = [np.ones(self.codebook_size, bool) for _ in self.patch_sizes]  # the table plays no part here
        scorer = Scorer(self.network_, everything, self.neighbors, self.memory_distance, self.device)
        active = [np.zeros(self.codebook_size, bool) for _ in self.patch_sizes]
        for begin in range(0, len(starts), WINDOWS_AT_ONCE):
            windows = cut(scaled, starts[begin : begin + WINDOWS_AT_ONCE], self.window)
            for k, seen in enumerate(active):
                seen[scorer.whole(windows, k).codes] = True
        return active

    def _calibrate(self, scaled: NDArray[np.float32]) -> None:
        """Learn the statistics of the training scores."""
        starts = window_starts(len(scaled), self.window, self.window)
        chosen = np.linspace(0, len(starts) - 1, min(len(starts), CALIBRATION_WINDOWS)).astype(int)
        windows = cut(scaled, starts[chosen], self.window)
        width = scaled.shape[1]
        scorer = Scorer(self.network_, self.active_, self.neighbors, self.memory_distance, self.device)
        self.error_limits_ = [self._limit(scorer, windows, k) for k in range(len(self.patch_sizes))]
        self.calibration_ = np.stack([NoCalibration().fit(np.empty((0, width)))] * 2)
        self.normalization_ = np.zeros((2, 2))
        self._prepare()
        block = Block(*scorer.windows(windows), skip=0)
        raw = self._decision.calibrated(block)
        self.calibration_ = np.stack([self.calibration.fit(scores.reshape(-1, width)) for scores in raw])
        self._prepare()
        self.normalization_ = np.stack([self.normalization.fit(scores) for scores in self._decision.select(block)])

    def _limit(self, scorer: Scorer, windows: NDArray[np.float32], k: int) -> Floats:
        """The largest error (variable,) that adaptation takes for normal at one scale."""
        quantile = getattr(self.adaptation, "error_limit", None)
        if quantile is None:
            return np.full(windows.shape[2], np.inf)
        errors = scorer.whole(windows, k).errors
        return np.asarray(np.quantile(errors.reshape(-1, windows.shape[2]), quantile, axis=0), dtype=np.float64)

    # -- scoring ----------------------------------------------------------------------------------------------------

    def _scores(self, scaled: NDArray[np.float32]) -> Floats:
        run = self._open(self.adaptation)
        return np.concatenate([decided.scores for decided in (*run.push(scaled), *run.finish())])

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

    def _checked(self, X: object) -> Series:
        self._check_fitted()
        series = as_series(X)
        check_like(series, self.names_, self.named_)
        check_length(series, self.window, "a window")
        return series

    # -- state ------------------------------------------------------------------------------------------------------

    def _remember(self, series: Series) -> None:
        self.names_, self.named_ = series.names, series.named
        self.n_features_in_ = len(series.names)

    def _network(self, variables: int) -> Network:
        sizes = (self.patch_sizes, self.patch_strides, self.dim, self.core_dim, self.codebook_size)
        return Network(variables, *sizes).to(self.device)

    @property
    def _objective(self) -> Objective:
        return Objective(self.codebook_weight, self.commitment_weight, self.weight_decay)

    def _checkpoint(self) -> Checkpoint:
        parameters = {name: as_json(value) for name, value in self.get_params(deep=False).items()}
        facts = {"parameters": parameters, "names": list(self.names_), "named": self.named_}
        arrays = {
            "scaling.center": self.scaling_.center,
            "scaling.unit": self.scaling_.unit,
            "calibration": self.calibration_,
            "normalization": self.normalization_,
            "decision_scores": self.decision_scores_,
            "threshold": np.array([self.threshold_]),
            "active": np.stack(self.active_),
            "error_limits": np.stack(self.error_limits_),
        }
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        tensors |= {f"network.{name}": value for name, value in self.network_.state_dict().items()}
        return Checkpoint(type(self).__name__, facts, tensors)

    def _restore(self, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        self.names_, self.named_ = tuple(facts["names"]), facts["named"]
        self.n_features_in_ = len(self.names_)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith("network.")}
        self.network_ = self._network(len(self.names_))
        self.network_.load_state_dict(
            {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        )
        self.scaling_ = Scaling(arrays["scaling.center"], arrays["scaling.unit"])
        self.calibration_, self.normalization_ = arrays["calibration"], arrays["normalization"]
        self.decision_scores_ = arrays["decision_scores"]
        self.threshold_ = float(arrays["threshold"][0])
        self.active_, self.error_limits_ = list(arrays["active"]), list(arrays["error_limits"])
        self._parameters = self.get_params(deep=False)
        self._prepare()

    def _fingerprint(self, adaptation: Adaptation) -> str:
        """A name for this fitted detector under an adaptation: a stream's snapshot goes with one of them."""
        content = to_bytes(self._checkpoint()) + repr(adaptation).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This Comet is not fitted yet. Call fit with a series of normal readings first.")
        now = self.get_params(deep=False)
        changed = [name for name, value in self._parameters.items() if name != "verbose" and now[name] != value]
        if changed:
            raise NotFittedError(f"The parameter {changed[0]!r} was changed after fit. Call fit again.")


def _flat(scores: Floats, skip: int) -> Floats:
    """(scale, window, time, variable) as (scale, time, variable), without the first steps of each window."""
    return scores[:, :, skip:].reshape(len(scores), -1, scores.shape[3])
