"""Two detectors of a few lines: k-means on windows, and a Gaussian of window statistics, each for one variable."""

import numpy as np

from cometad.data.prepare import fit_scaling
from cometad.detector import StepScores
from cometad.scoring.scores import Tails, fuse
from cometad.views import Patterns

LENGTH, POOLING = 32, 4


class _PerVariable:
    """Errors (time, variable) of windows, calibrated and pooled as in the fair arms; a window's error is at its end."""

    def fit(self, X: np.ndarray) -> "_PerVariable":
        """Learn from a series (time, variable)."""
        self.scaling = fit_scaling("standard", X)
        rows = np.clip(self.scaling(X).astype(np.float64), -50, 50)
        self.learn(rows)
        self.tails = Tails.fit(self.errors(rows))
        self.alert_scores_, self.imputed_ = self._scores(rows), np.zeros(len(X), bool)
        return self

    def _scores(self, rows: np.ndarray) -> np.ndarray:
        return fuse(self.errors(rows)[:, None], np.array([self.tails]), np.ones(1), POOLING).alerts

    def step_scores(self, X: np.ndarray) -> StepScores:
        """The scores of a series (time, variable)."""
        scores = self._scores(np.clip(self.scaling(X).astype(np.float64), -50, 50))
        return StepScores(scores, scores, None)


class WindowMeans(_PerVariable):
    """The distance of the last 32 readings to the nearest of 32 codes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def learn(self, rows: np.ndarray) -> None:
        """Find the codes."""
        self.view = Patterns(length=LENGTH).fit(rows, np.ones(len(rows), bool), np.random.default_rng(self.seed))

    def errors(self, rows: np.ndarray) -> np.ndarray:
        """The errors (time, variable)."""
        return np.nan_to_num(self.view.errors(rows, 0))


class WindowGaussian(_PerVariable):
    """The Mahalanobis distance of mean, log variance, minimum and maximum of the last 32 readings."""

    def learn(self, rows: np.ndarray) -> None:
        """Find mean and covariance."""
        features = self._features(rows)[LENGTH - 1 :]  # (time, variable, feature)
        self.mean = features.mean(axis=0)
        gaps = features - self.mean
        spread = np.einsum("tvf,tvg->vfg", gaps, gaps) / len(gaps)
        floor = 0.01 * np.maximum(np.trace(spread, axis1=1, axis2=2), 0.01) / 4
        self.inverse = np.linalg.inv(spread + floor[:, None, None] * np.eye(4))

    def _features(self, rows: np.ndarray) -> np.ndarray:
        padded = np.concatenate([np.repeat(rows[:1], LENGTH - 1, axis=0), rows])
        windows = np.lib.stride_tricks.sliding_window_view(padded, LENGTH, axis=0)  # (time, variable, step)
        parts = (windows.mean(-1), 0.5 * np.log(windows.var(-1) + 0.001), windows.min(-1), windows.max(-1))
        return np.stack(parts, axis=-1)

    def errors(self, rows: np.ndarray) -> np.ndarray:
        """The errors (time, variable)."""
        gaps = self._features(rows) - self.mean
        return np.sqrt(np.einsum("tvf,vfg,tvg->tv", gaps, self.inverse, gaps))
