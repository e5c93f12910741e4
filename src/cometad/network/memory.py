"""The coreset memory: the distance of each code to the codes that training activated.

The memory score of a patch depends on its code alone, so it is a table with one value per code: scoring needs no
nearest-neighbor search.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.errors import unknown

EPSILON = 1e-8


def memory_table(vectors: NDArray[Any], active: NDArray[np.bool_], neighbors: int, distance: str) -> Floats:
    """The memory score (code,) of each code of one scale: its mean distance to the nearest active codes.

    `vectors` are the codes (code, dim); `active` (code,) marks those in the memory bank. An active code counts as its
    own nearest neighbor, at distance 0; a bank with fewer than `neighbors` codes is used whole. `distance` is "local"
    (scaled by local density) or "plain" (Euclidean).

    Paper: Eq. 12 (the bank), 13 to 16 (local scaling and memory score).
    """
    if distance not in DISTANCES:
        raise unknown("memory distance", distance, DISTANCES)
    squared = _squared_distances(np.asarray(vectors, dtype=np.float64))[:, active]  # (code, bank)
    n = min(neighbors, squared.shape[1])
    nearest = np.argpartition(squared, n - 1, axis=1)[:, :n]  # (code, neighbor)
    table: Floats = DISTANCES[distance](squared, nearest, active).mean(axis=1)
    return table


def _squared_distances(codes: Floats) -> Floats:
    """Squared distances (code, code) between all codes (code, dim), from one matrix product."""
    centered = torch.from_numpy(codes - codes.mean(axis=0))  # torch, not numpy: it respects torch's thread limit
    norms = (centered**2).sum(dim=1)
    squared: Floats = (norms[:, None] + norms - 2 * centered @ centered.T).clamp(min=0).numpy()
    np.fill_diagonal(squared, 0.0)
    return squared


def _local(squared: Floats, nearest: NDArray[np.int64], active: NDArray[np.bool_]) -> Floats:
    to_nearest = np.take_along_axis(squared, nearest, axis=1)  # (code, neighbor)
    scale = np.median(to_nearest, axis=1)  # (code,)
    bank_scale = scale[active]  # (bank,)
    return to_nearest / ((scale[:, None] + bank_scale[nearest]) / 2 + EPSILON)


def _nearest_distances(squared: Floats, nearest: NDArray[np.int64], active: NDArray[np.bool_]) -> Floats:
    return np.sqrt(np.take_along_axis(squared, nearest, axis=1))


DISTANCES = {"local": _local, "plain": _nearest_distances}
