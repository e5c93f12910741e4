"""The last rows of a stream in one piece of memory, which does not grow with the stream."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SPARE = 64  # rows: how many can be appended, at least, before the kept ones move


class Tape:
    """Keeps the last `keep` rows of a stream."""

    def __init__(self, keep: int, shape: tuple[int, ...], dtype: Any = np.float64) -> None:
        self.keep, self._stop = keep, 0
        self._array = np.empty((2 * keep + SPARE, *shape), dtype)

    @property
    def kept(self) -> NDArray[Any]:
        """The rows that are kept, at most `keep`."""
        return self._array[max(self._stop - self.keep, 0) : self._stop]

    def append(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Append rows; returns the rows kept so far, followed by the new ones, until the next call."""
        if self._stop + len(rows) > len(self._array):
            self._make_room(len(rows))
        begin, end = self._stop, self._stop + len(rows)
        self._array[begin:end] = rows
        self._stop = end
        return self._array[max(begin - self.keep, 0) : end]

    def _make_room(self, count: int) -> None:
        """Move the kept rows to the front, of a larger array if need be."""
        kept = self.kept.copy()
        if len(kept) + count > len(self._array):
            self._array = np.empty((len(kept) + 2 * count, *kept.shape[1:]), kept.dtype)
        self._array[: len(kept)] = kept
        self._stop = len(kept)

    def restore(self, kept: NDArray[Any]) -> None:
        """Keep these rows and no others."""
        self._stop = 0
        self.append(kept)
