"""The encoder folded into the codebook: distances to codes without computing an embedding.

The encoder is linear. For variable i and its patch x, and P the stacked patches of all variables at that position,

    z = A_i x + F P + a_i        A_i = W_left W_i,  F = W_right W_core,  a_i the sum of all biases.

With F = U H and U orthonormal, h = H P is one short vector per position, shared by all variables. Then

    |z - c|^2 = const + x'(-2 A_i'c) + h'(-2 U'c) + (|c|^2 - 2 c'a_i)                   to find the nearest code c, and
    |z - c|^2 = |h + U'A_i x + U'(a_i - c)|^2 + |Q_i'A_i x + Q_i'(a_i - c)|^2 + rest    for its exact distance,

where Q_i is an orthonormal basis of the range of A_i outside U. The second form is a sum of squares, so nothing cancels
when a patch lies almost on its code. Folding runs in float64; the tables are float32.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cometad.arrays import Floats32
from cometad.network.fast.lanes import WIDTH
from cometad.network.network import Network, Scale


class FoldedScale(NamedTuple):
    """The tables for scoring the patches of one scale.

    Their last axis is padded to a multiple of `lanes.WIDTH`: `constants` with infinity, the others with zeros.
    """

    size: int
    stride: int
    core: Floats32  # (variable * size, rank)  H': stacked patches -> the shared vector h
    core_codes: Floats32  # (rank, code)  -2 U'c: the search term of h
    series_codes: Floats32  # (variable, size, code)  -2 A_i'c: the search term of x
    constants: Floats32  # (variable, code)  |c|^2 - 2 c'a_i: the rest of the search
    inside: Floats32  # (variable, size, rank)  U'A_i
    inside_offset: Floats32  # (variable, rank)  U'a_i
    inside_codes: Floats32  # (code, rank)  U'c
    outside: Floats32  # (variable, size, own)  Q_i'A_i
    outside_offset: Floats32  # (variable, code, own)  Q_i'(a_i - c), and the norm of the part outside both U and Q_i


def fold(network: Network) -> list[FoldedScale]:
    return [_fold_scale(scale) for scale in network]


@torch.no_grad()
def _fold_scale(scale: Scale) -> FoldedScale:
    encoder = scale.encoder
    half = encoder.series_weight.shape[1]
    fusion = _double(encoder.fusion_weight)
    left, right = fusion[:, :half], fusion[:, half:]
    series = left @ _double(encoder.series_weight)  # A_i: (variable, dim, size)
    offset = _double(encoder.series_bias) @ left.T + right @ _double(encoder.core_bias) + _double(encoder.fusion_bias)
    # Shifting codes and embeddings together keeps their distances; centered codes lose less to cancellation.
    codes = _double(scale.codebook.vectors)
    middle = codes.mean(dim=0)
    codes, offset = codes - middle, offset - middle  # (code, dim), a_i: (variable, dim)

    basis, core = _shared(right, _double(encoder.core_weight))  # U: (dim, rank), H: (rank, variable * size)
    own = _own(series, basis)  # Q_i: (variable, dim, min(dim, size))
    series_own = own.transpose(1, 2) @ series  # Q_i'A_i: (variable, own, size)
    offset_own = own.transpose(1, 2) @ offset[..., None]  # Q_i'a_i: (variable, own, 1)
    gap_own = (offset_own - _times(own, codes.T)).transpose(1, 2)  # (variable, code, own)
    rest = _rest(offset - offset @ basis @ basis.T, codes - codes @ basis @ basis.T, gap_own)  # (variable, code)
    return FoldedScale(
        scale.size,
        scale.stride,
        table(core.T),
        table(-2 * (codes @ basis).T),
        table(-2 * _times(series, codes.T)),
        table((codes**2).sum(dim=1) - 2 * offset @ codes.T, fill=math.inf),
        table(_times(series, basis)),
        table(offset @ basis),
        table(codes @ basis),
        table(torch.nn.functional.pad(series_own.transpose(1, 2), (0, 1))),
        table(torch.cat([gap_own, rest[..., None]], dim=2)),
    )


def _times(each: Tensor, right: Tensor) -> Tensor:
    """The transpose of each matrix (variable, dim, n) times one matrix, as one product: (variable, n, ...)."""
    variables, dim, count = each.shape
    return (each.transpose(1, 2).reshape(-1, dim) @ right).reshape(variables, count, -1)


def _shared(right: Tensor, core: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis U (dim, rank) and H (rank, variable * size) with U H = W_right W_core."""
    basis, triangle = torch.linalg.qr(right)
    # Zero columns up to a multiple of WIDTH change nothing.
    extra = -basis.shape[1] % WIDTH
    return torch.nn.functional.pad(basis, (0, extra)), torch.nn.functional.pad(triangle @ core, (0, 0, 0, extra))


def _own(series: Tensor, basis: Tensor) -> Tensor:
    """An orthonormal basis Q_i of the range of each A_i outside U; zero columns where only rounding is left."""
    outside = series - basis @ (basis.T @ series)
    own, triangle = torch.linalg.qr(outside - basis @ (basis.T @ outside))  # projected twice: once leaves a trace of U
    rounding = 1e-10 * torch.linalg.matrix_norm(series)
    significant = triangle.diagonal(dim1=1, dim2=2).abs() > rounding[:, None]
    kept: Tensor = own * significant[:, None]
    return kept


def _rest(offset: Tensor, codes: Tensor, gap_own: Tensor) -> Tensor:
    """The norm (variable, code) of the part of a_i - c outside U and Q_i, given a_i and c outside U."""
    squared = (offset**2).sum(dim=1)[:, None] - 2 * offset @ codes.T + (codes**2).sum(dim=1)
    rest: Tensor = squared - (gap_own**2).sum(dim=2)
    return rest.clamp(min=0).sqrt()


def table(values: Tensor, fill: float = 0.0) -> Floats32:
    """A table for the kernels: aligned to a cache line, with rows padded to a multiple of `lanes.WIDTH`."""
    *rows, length = values.shape
    shape = (*rows, length + -length % WIDTH)
    memory = np.empty(math.prod(shape) + WIDTH, np.float32)
    begin = -memory.ctypes.data % (4 * WIDTH) // 4
    filled = memory[begin : begin + math.prod(shape)].reshape(shape)
    filled[..., :length] = values.float().numpy()
    filled[..., length:] = fill
    return filled


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()
