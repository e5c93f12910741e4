"""Windows of a series, and its split into training and validation parts."""

import numpy as np
from numpy.typing import NDArray

from cometad.errors import InputError
from cometad.series import Series

LEAST_LEARNABLE = 0.1  # share of windows (or readings) that must be usable for training


def training_rows(rows: int, validation_share: float) -> int:
    """Number of readings to train on; the rest, at the end of the series, is for validation.

    An integer from 1 on is the number of readings to hold out, as in scikit-learn's `train_test_split`.
    """
    held_out = validation_share if validation_share >= 1 else rows * validation_share
    return rows - int(held_out)


def window_starts(rows: int, length: int, stride: int) -> NDArray[np.int64]:
    """The first reading of each window, every `stride` readings; the last window ends with the series."""
    starts = np.arange(0, rows - length + 1, stride)
    return starts if starts[-1] == rows - length else np.append(starts, rows - length)


def cut(values: NDArray[np.float32], starts: NDArray[np.int64], length: int) -> NDArray[np.float32]:
    windows: NDArray[np.float32] = values[starts[:, None] + np.arange(length)]
    return windows


def learnable(starts: NDArray[np.int64], length: int, series: Series) -> NDArray[np.int64]:
    """The starts of windows without doubtful readings, which can be learned from; too few are refused."""
    if series.doubtful is None:
        return starts
    before = np.concatenate([[0], np.cumsum(series.doubtful.any(axis=1))])
    kept: NDArray[np.int64] = starts[before[starts + length] == before[starts]]
    if len(kept) < max(1.0, LEAST_LEARNABLE * len(starts)):
        worst = series.names[int(series.doubtful.sum(axis=0).argmax())]
        what = "readings" if length == 1 else f"windows of {length} readings"
        raise InputError(
            f"Only {len(kept):,} of {len(starts):,} {what} have no gap beyond the limit; most gaps are in variable "
            f"{worst!r}.",
            advice="too many gaps",
            name=worst,
        )
    return kept
