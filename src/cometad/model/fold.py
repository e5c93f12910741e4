"""The encoder folded into the codebook: distances to codes without ever building an embedding.

The encoder is linear. For variable i and its patch x, with all variables' patches of that position stacked in P,

    z = A_i x + F P + a_i        A_i = W_left W_i,  F = W_right W_core,  a_i all biases together.

With F = U H, U orthonormal, h = H P is one short vector per position, shared by its variables. Then

    |z - c|^2 = const + x'(-2 A_i'c) + h'(-2 U'c) + (|c|^2 - 2 c'a_i)                   to find the nearest code c, and
    |z - c|^2 = |h + U'A_i x + U'(a_i - c)|^2 + |Q_i'A_i x + Q_i'(a_i - c)|^2 + rest    for its exact distance,

where Q_i is an orthonormal basis of what A_i reaches outside U. The second form is a sum of squares, so nothing cancels
when a patch lies almost on its code. Folding runs in float64, the tables are float32.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cometad.model.lanes import WIDTH
from cometad.model.network import Network, Scale

Floats = NDArray[np.float32]


class FoldedScale(NamedTuple):
    """The tables that score the patches of one scale.

    The last axis of each is filled up to whole `Lanes`: with codes that are infinitely far, and with zeros.
    """

    size: int
    stride: int
    core: Floats  # (variable * size, rank)       stacked patches to the shared vector h
    core_codes: Floats  # (rank, code)            h to its part of the search
    series_codes: Floats  # (variable, size, code)   x to its part of the search
    constants: Floats  # (variable, code)         the rest of the search
    inside: Floats  # (variable, size, rank)      U'A_i
    inside_offset: Floats  # (variable, rank)     U'a_i
    inside_codes: Floats  # (code, rank)          U'c
    outside: Floats  # (variable, size, own)      Q_i'A_i
    outside_offset: Floats  # (variable, code, own)  Q_i'(a_i - c), and the length of what neither U nor Q_i sees of it


def fold(network: Network) -> list[FoldedScale]:
    """The tables of all scales.

    >>> from cometad.model.fold import fold
    >>> from cometad.model.network import Network
    >>> network = Network(variables=3, patch_sizes=(2,), patch_strides=(1,), dim=8, core_dim=4, codebook_size=16)
    >>> fold(network)[0].series_codes.shape
    (3, 2, 16)
    """
    return [_fold_scale(scale) for scale in network]


def _fold_scale(scale: Scale) -> FoldedScale:
    encoder = scale.encoder
    half = encoder.series_weight.shape[1]
    fusion = _numpy(encoder.fusion_weight)
    left, right = fusion[:, :half], fusion[:, half:]
    series = left @ _numpy(encoder.series_weight)  # A_i: (variable, dim, size)
    offset = (  # a_i: (variable, dim)
        _numpy(encoder.series_bias) @ left.T + right @ _numpy(encoder.core_bias) + _numpy(encoder.fusion_bias)
    )
    # Distances do not change when codes and embeddings move together; around the mean code less cancels.
    codes = _numpy(scale.codebook.vectors)
    middle = codes.mean(axis=0)
    codes, offset = codes - middle, offset - middle

    basis, core = _shared(right @ _numpy(encoder.core_weight))
    remainder = series - basis @ (basis.T @ series)
    own_basis = _own(remainder, series)  # Q_i: (variable, dim, min(dim, size))
    gap = offset[:, None, :] - codes  # (variable, code, dim)
    gap_inside = offset[:, None, :] @ basis - codes @ basis
    gap_outside = gap @ own_basis
    # Not |gap|^2 minus the two parts: it would cancel. What is left over is measured itself.
    left_over = gap - gap_inside @ basis.T
    left_over -= (left_over @ own_basis) @ own_basis.transpose(0, 2, 1)
    rest = np.linalg.norm(left_over, axis=2)
    return FoldedScale(
        scale.size,
        scale.stride,
        table(core.T),
        table(-2 * (codes @ basis).T),
        table(-2 * series.transpose(0, 2, 1) @ codes.T),
        table((codes**2).sum(axis=1) - 2 * offset @ codes.T, fill=np.inf),
        table((basis.T @ series).transpose(0, 2, 1)),
        table(offset @ basis),
        table(codes @ basis),
        table(np.pad((own_basis.transpose(0, 2, 1) @ remainder).transpose(0, 2, 1), ((0, 0), (0, 0), (0, 1)))),
        table(np.concatenate([gap_outside, rest[..., None]], axis=2)),
    )


def _shared(core: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """An orthonormal basis U (dim, rank) and H (rank, variable * size) with U H = F."""
    left, values, right = np.linalg.svd(core, full_matrices=False)
    rank = max(1, int((values > values[0] * 1e-12).sum()))
    # Columns of zeros up to whole lanes change nothing.
    more = -rank % WIDTH
    return np.pad(left[:, :rank], ((0, 0), (0, more))), np.pad(values[:rank, None] * right[:rank], ((0, more), (0, 0)))


def _own(remainder: NDArray[np.float64], series: NDArray[np.float64]) -> NDArray[np.float64]:
    """An orthonormal basis of each variable's remainder; directions that are only rounding become zero columns."""
    left, values, _ = np.linalg.svd(remainder, full_matrices=False)
    least = 1e-10 * np.linalg.norm(series, axis=(1, 2))
    basis: NDArray[np.float64] = left * (values > least[:, None])[:, None, :]
    return basis


def table(values: NDArray[np.float64], fill: float = 0.0) -> Floats:
    """A table for the kernel: it begins with a cache line, and its rows are filled up to whole lanes.

    >>> import numpy as np
    >>> from cometad.model.fold import table
    >>> table(np.ones((3, 20))).shape
    (3, 32)
    """
    shape = (*values.shape[:-1], values.shape[-1] + -values.shape[-1] % WIDTH)
    memory = np.empty(math.prod(shape) + WIDTH, np.float32)
    begin = -memory.ctypes.data % (4 * WIDTH) // 4
    filled = memory[begin : begin + math.prod(shape)].reshape(shape)
    with np.errstate(over="ignore"):  # of a training that diverges, which is refused where it is seen
        filled[..., : values.shape[-1]] = values
    filled[..., values.shape[-1] :] = fill
    return filled


def _numpy(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().cpu().double().numpy()
