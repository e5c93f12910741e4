"""Windows cut from a series, and the split into a training and a validation part."""

import numpy as np
from numpy.typing import NDArray

from cometad.errors import InputError
from cometad.series import Series

LEAST_LEARNABLE = 0.1  # the share of windows, or of readings, that must be fit to learn from


def training_rows(rows: int, validation_share: float) -> int:
    """How many readings of a series are trained on; the rest, the last in time, is validation.

    >>> from cometad.data.windows import training_rows
    >>> training_rows(1000, 0.1)
    900
    """
    return rows - int(rows * validation_share)


def window_starts(rows: int, length: int, stride: int) -> NDArray[np.int64]:
    """Where windows begin in a series, every `stride` readings; a last one ends with the series.

    >>> from cometad.data.windows import window_starts
    >>> window_starts(25, length=10, stride=5)
    array([ 0,  5, 10, 15])
    >>> window_starts(27, length=10, stride=5)
    array([ 0,  5, 10, 15, 17])
    """
    starts = np.arange(0, rows - length + 1, stride)
    return starts if starts[-1] == rows - length else np.append(starts, rows - length)


def cut(values: NDArray[np.float32], starts: NDArray[np.int64], length: int) -> NDArray[np.float32]:
    """The windows (window, time, variable) that begin at `starts`.

    >>> import numpy as np
    >>> from cometad.data.windows import cut
    >>> cut(np.arange(5, dtype=np.float32)[:, None], np.array([0, 3]), 2)[:, :, 0]
    array([[0., 1.],
           [3., 4.]], dtype=float32)
    """
    windows: NDArray[np.float32] = values[starts[:, None] + np.arange(length)]
    return windows


def learnable(starts: NDArray[np.int64], length: int, series: Series) -> NDArray[np.int64]:
    """Of windows that begin at `starts` in a series, those to learn from: without doubtful readings.

    Refused where they are too few.

    >>> import numpy as np
    >>> from cometad.data.windows import learnable
    >>> from cometad.series import Series
    >>> doubtful = np.array([False, False, False, True])[:, None]
    >>> learnable(np.array([0, 1, 2]), 2, Series(np.zeros((4, 1)), ("flow",), None, True, doubtful=doubtful))
    array([0, 1])
    """
    if series.doubtful is None:
        return starts
    before = np.concatenate([[0], np.cumsum(series.doubtful.any(axis=1))])
    kept: NDArray[np.int64] = starts[before[starts + length] == before[starts]]
    if len(kept) < max(1.0, LEAST_LEARNABLE * len(starts)):
        worst = series.names[int(series.doubtful.sum(axis=0).argmax())]
        what = "readings" if length == 1 else f"windows of {length} readings"
        raise InputError(
            f"Of {len(starts):,} {what} to learn from only {len(kept):,} have no gap beyond the limit; most gaps are "
            f"of variable {worst!r}. Leave that variable out, choose a longer limit, or pass a longer series."
        )
    return kept
