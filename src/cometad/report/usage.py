"""Codebook usage: how often each code is used in training and in a series."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats


@dataclass(frozen=True)
class Usage:
    """The usage of one scale's codes, most used in training first."""

    patch_size: int  # readings in a patch of this scale
    training: Floats  # (code,)  share of the training patches
    here: Floats  # (code,)  share of the series' patches
    unseen: float  # share of the series' patches on codes that training never used

    @property
    def used(self) -> int:
        """Number of codes used in training."""
        return int(np.count_nonzero(self.training))

    @property
    def used_here(self) -> int:
        """Number of codes used in the series."""
        return int(np.count_nonzero(self.here))


def usage(patch_size: int, training: ArrayLike, here: ArrayLike) -> Usage:
    """The usage of one scale's codes, given the patches per code (code,) in training and in a series."""
    before, now = _shares(training), _shares(here)
    order = np.lexsort((-now, -before))
    return Usage(int(patch_size), before[order], now[order], float(now[before == 0].sum()))


def _shares(counts: ArrayLike) -> Floats:
    numbers = np.asarray(counts, np.float64)
    shares: Floats = numbers / max(numbers.sum(), 1.0)
    return shares
