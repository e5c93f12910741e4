"""The two raw scores of each time step, from the nearest code of each patch and the distance to it.

Arrays that hold both have the memory score first and the quantization score second.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.arrays import Floats, Integers
from cometad.compute import COMPILES, in_parts
from cometad.data.network_windows import cut
from cometad.network.fast.fold import FoldedScale, fold
from cometad.network.fast.kernels import back_to_time, nearest_codes
from cometad.network.network import Network
from cometad.network.patches import coverage, patch_count, patches

WINDOWS_AT_ONCE = 128  # limits the memory for scoring a long series
EPSILON = 1e-8


class PatchScores(NamedTuple):
    """The scores of the patches of one scale; every field has the shape (window, patch, variable)."""

    codes: NDArray[np.int32]  # the nearest code
    errors: NDArray[np.float32]  # the distance to it: the quantization score


Backend = Callable[[NDArray[np.float32], FoldedScale, int, PatchScores], None]


class Scorer:
    """Scores patches with the network as it is now; build a new scorer after the network has changed."""

    def __init__(
        self, network: Network, active: Sequence[NDArray[np.bool_]] | None, neighbors: int, distance: str, device: str
    ) -> None:
        self.scales = fold(network)
        self._vectors = [scale.codebook.vectors.detach().cpu().numpy() for scale in network]
        self._settings = neighbors, distance, device
        self.active: Sequence[NDArray[np.bool_]] = ()
        self.memory: list[Floats] = []
        if active is not None:
            self.remember(active)
        self._backend = _numba_backend if COMPILES and not device.startswith("cuda") else _torch_backend(device)

    def remember(self, active: Sequence[NDArray[np.bool_]]) -> None:
        """Build the memory from the codes (code,) that training activated at each scale; patch scores need none."""
        neighbors, distance, _ = self._settings
        self.active = active
        self.memory = [
            memory_table(vectors, seen, neighbors, distance)
            for vectors, seen in zip(self._vectors, active, strict=True)
        ]

    def after(self, network: Network) -> "Scorer":
        """The scorer for the network after it has changed; the codes that `remember` got stay the same."""
        return Scorer(network, self.active, *self._settings)

    def zeros(self, windows: int, length: int) -> list[PatchScores]:
        """Patch scores of zero for a number of windows, for each scale."""
        variables = len(self.scales[0].series_codes)
        shapes = [(windows, patch_count(length, scale.size, scale.stride), variables) for scale in self.scales]
        return [PatchScores(np.zeros(shape, np.int32), np.zeros(shape, np.float32)) for shape in shapes]

    def patches(self, windows: NDArray[np.float32], scale: int, first: int, scores: PatchScores) -> None:
        """Score patches `first`, `first + 1`, ... of windows (window, time, variable) at one scale, into `scores`."""
        if scores.codes.size:
            self._backend(windows, self.scales[scale], first, scores)

    def whole(self, windows: NDArray[np.float32], scale: int) -> PatchScores:
        count = patch_count(windows.shape[1], self.scales[scale].size, self.scales[scale].stride)
        shape = (len(windows), count, windows.shape[2])
        scores = PatchScores(np.empty(shape, np.int32), np.empty(shape, np.float32))
        self.patches(windows, scale, 0, scores)
        return scores

    def code_counts(self, scaled: NDArray[np.float32], starts: Integers, length: int) -> list[Integers]:
        """How many patches of the windows that begin at `starts` take each code (code,), per scale."""
        counts = [np.zeros(len(vectors), np.int64) for vectors in self._vectors]
        for begin in range(0, len(starts), WINDOWS_AT_ONCE):
            windows = cut(scaled, starts[begin : begin + WINDOWS_AT_ONCE], length)
            for k, count in enumerate(counts):
                count += np.bincount(self.whole(windows, k).codes.ravel(), minlength=len(count))
        return counts

    def levels(self, patches: Sequence[PatchScores]) -> Floats:
        """The median of each raw score (score, scale, variable) over the patches of each scale."""
        raw = [(memory[codes], errors) for memory, (codes, errors) in zip(self.memory, patches, strict=True)]
        return np.stack([[np.median(scores, axis=(0, 1)) for scores in pair] for pair in raw], axis=1)

    def windows(self, windows: NDArray[np.float32], apart: bool = False) -> NDArray[np.float64]:
        """Both raw scores (score, window, time, variable) of windows (window, time, variable), means over scales.

        With `apart` the scales are kept: (score, scale, window, time, variable).
        """
        length = windows.shape[1]
        patches = [self.whole(windows, k) for k in range(len(self.scales))]
        return self.steps(patches, length, 0, length, apart)

    def steps(
        self, patches: Sequence[PatchScores], length: int, start: int, stop: int, apart: bool = False
    ) -> NDArray[np.float64]:
        """Both raw scores of the time steps start..stop, from the patch scores of each scale."""
        windows, _, variables = patches[0].codes.shape
        scales = (len(patches),) if apart else ()
        raw = np.zeros((2, *scales, windows, stop - start, variables))
        weight = 1.0 if apart else 1.0 / len(patches)

        def part(rows: slice) -> None:
            for k, (codes, errors) in enumerate(patches):
                cover = coverage(length, self.scales[k].size, self.scales[k].stride)
                first, last = cover.first[start:stop], cover.last[start:stop]
                memory, quantization = raw[:, k] if apart else raw
                back_to_time(
                    codes[rows], errors[rows], self.memory[k], first, last, weight, memory[rows], quantization[rows]
                )

        in_parts(part, windows)
        return raw


def _numba_backend(windows: NDArray[np.float32], scale: FoldedScale, first: int, scores: PatchScores) -> None:
    def part(rows: slice) -> None:
        nearest_codes(windows[rows], first, *scale[1:], scores.codes[rows], scores.errors[rows])

    if len(windows) == 1:  # the fast path for a stream, which calls this with every reading
        nearest_codes(windows, first, *scale[1:], *scores)
    else:
        in_parts(part, len(windows))


_BLOCK = 4096  # positions; every product has this many rows, so that its algorithm and its rounding never change
_BYTES = 2**28  # limit for the largest table of a block, but at least one position


def _torch_backend(device: str) -> Backend:
    on_device: dict[int, list[torch.Tensor]] = {}  # the tables of each scale, by the id of the first one

    def run(windows: NDArray[np.float32], scale: FoldedScale, first: int, scores: PatchScores) -> None:
        tables = on_device.setdefault(id(scale.core), [])
        tables += [] if tables else [torch.as_tensor(table, device=device) for table in scale[2:]]
        variables, _, count = scale.series_codes.shape
        positions = patches(torch.as_tensor(windows, device=device), scale.size, scale.stride)
        positions = positions[:, first : first + scores.codes.shape[1]].flatten(0, 1)  # (position, variable, size)
        rows = max(1, min(_BLOCK, _BYTES // (4 * variables * max(count, scale.core.shape[1]))))
        block = torch.zeros((rows, *positions.shape[1:]), device=device)
        codes = torch.empty(positions.shape[:2], dtype=torch.int32, device=device)
        errors = torch.empty(positions.shape[:2], device=device)
        for begin in range(0, len(positions), rows):
            part = positions[begin : begin + rows]
            block[: len(part)] = part
            for target, result in zip((codes, errors), nearest_codes_torch(block, *tables), strict=True):
                target[begin : begin + rows] = result[: len(part)]
        scores.codes[:] = codes.cpu().numpy().reshape(scores.codes.shape)
        scores.errors[:] = errors.cpu().numpy().reshape(scores.errors.shape)

    return run


def nearest_codes_torch(
    patches: torch.Tensor,  # (position, variable, size)
    core: torch.Tensor,
    core_codes: torch.Tensor,
    series_codes: torch.Tensor,
    constants: torch.Tensor,
    inside: torch.Tensor,
    inside_offset: torch.Tensor,
    inside_codes: torch.Tensor,
    outside: torch.Tensor,
    outside_offset: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and errors (position, variable), as in `kernels.nearest_codes`, from torch products over a whole block."""
    h = patches.flatten(1) @ core  # (position, rank)
    own = patches.transpose(0, 1)  # (variable, position, size)
    # The table (variable, position, code) is the largest; it gets no name, so that it is freed at once.
    codes = (torch.baddbmm(constants[:, None], own, series_codes) + h @ core_codes).argmin(dim=2)
    gap = torch.baddbmm(inside_offset[:, None], own, inside) + h - inside_codes[codes]  # (variable, position, rank)
    variables = torch.arange(len(own), device=patches.device)[:, None]
    other = own @ outside + outside_offset[variables, codes]  # (variable, position, own)
    errors = ((gap**2).sum(dim=2) + (other**2).sum(dim=2)).sqrt()
    return codes.T, errors.T


# The coreset memory: the distance of each code to the codes that training activated. The memory score of a patch
# depends on its code alone, so it is a table with one value per code: scoring needs no nearest-neighbor search.


def memory_table(vectors: NDArray[Any], active: NDArray[np.bool_], neighbors: int, distance: str) -> Floats:
    """The memory score (code,) of each code of one scale: its mean distance to the nearest active codes.

    `vectors` are the codes (code, dim); `active` (code,) marks those in the memory bank. An active code counts as its
    own nearest neighbor, at distance 0; a bank with fewer than `neighbors` codes is used whole. `distance` is "local"
    (scaled by local density) or "plain" (Euclidean).

    Paper: Eq. 12 (the bank), 13 to 16 (local scaling and memory score).
    """
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
