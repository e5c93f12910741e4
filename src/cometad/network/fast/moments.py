"""The training objective from sums over a batch: the losses and gradients of `network.losses`, much faster.

Once the codes of a batch are known, the losses depend on the readings only through a few sums (moments). For variable
i, its patch x at a position, the stacked patches P of all variables there and h = W_core P,

    z = A_i x + W_right h + a_i        and the decoded codes are        D_m = R c_m + r,

so |z - c|^2 and |x - D|^2, summed over a batch, expand into products of parameters with

    n_im, S_im   the number of patches of variable i with code m, and their sum,
    G_i          the sum of x x' of a variable,
    CoreSums     the sums of P h', of h h', and of h per variable and per code.

While P is not much longer than h, these are computed from sums of P P' and of P per code (`Products`): one pass over
the batch, and none for the gradients. For wide series they are computed from h.

No array of size (embedding, dim) is ever created. The sums are float64, because the losses are differences of large
sums. Gradients flow as in the paper: the codebook loss trains the codes, the commitment loss the encoder, and the
reconstruction loss the decoder and, straight through the quantization, the encoder.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cometad.compute import COMPILES, in_parts
from cometad.network.fast.fold import table
from cometad.network.fast.kernels import add_patches_by_code, add_products, find_codes, mirror
from cometad.network.fast.lanes import DOUBLES, ROWS, WIDTH
from cometad.network.fast.torch_threads import torch_alone, torch_on_one_thread
from cometad.network.network import Losses, Network, Scale
from cometad.network.patches import patch_count, patches

GROUPS = 4  # of windows, summed separately: fixed, so that rounding does not depend on the number of threads
NARROW = 8  # times core_dim: the longest P for which sums of P P' are cheaper than sums of P h'
BLOCK = 2**28  # bytes; limits the memory of a search without the kernels


class FoldedParameters(NamedTuple):
    """The parameters of one scale in the form that the sums need, in float64, with gradients."""

    series: Tensor  # (dim, variable * size)  all A_i side by side, for one product instead of one per variable
    right: Tensor  # (dim, core_dim)  W_right
    core: Tensor  # (core_dim, variable * size)  W_core
    offset: Tensor  # (variable, dim)  a_i
    codes: Tensor  # (code, dim)  c_m
    decoder: Tensor  # (size, dim)  R
    decoder_offset: Tensor  # (size,)  r


class Batch(NamedTuple):
    """Windows at one scale, and the codes of their patches."""

    folded: FoldedParameters
    windows: Tensor  # (window, time, variable)
    stride: int
    codes: Tensor  # (window, patch, variable), int32

    @property
    def size(self) -> int:
        return len(self.folded.decoder)

    @property
    def stacked(self) -> Tensor:
        """P (position, variable * size), in float64."""
        return patches(self.windows, self.size, self.stride).flatten(0, 1).flatten(1).double()


class Products(NamedTuple):
    """Sums over the positions of a batch of products with the stacked patches P, in float64.

    P is in memory order here: (size, variable). n is 1 for the entries of P whose patch is normal, else 0.
    """

    pairs: Tensor  # (size * variable, size * variable)  (n P) P'
    weighted: Tensor | None  # the same shape  P P' times the number of normal patches; None if all are normal
    by_variable: Tensor  # (variable, size * variable)  P where the variable's patch is normal
    by_code: Tensor  # (code, size * variable)  P once for each normal patch with that code


class CoreSums(NamedTuple):
    """Sums over the normal patches of a batch, in float64; those that contain h have gradients."""

    squares: Tensor  # (variable, size, size)  G_i
    with_patches: Tensor  # (variable * size, core_dim)  P h'
    with_itself: Tensor  # (core_dim, core_dim)  h h'
    by_variable: Tensor  # (variable, core_dim)  h
    by_code: Tensor  # (code, core_dim)  h


def batch_losses(network: Network, windows: Tensor) -> tuple[Losses, list[Tensor]]:
    """The losses of windows (window, time, variable), equal to `network.losses`, and code counts (code,) per scale."""
    parts = [batch_loss(as_batch(scale, windows)) for scale in network]
    return sum_losses([losses for losses, _ in parts]), [counts for _, counts in parts]


def threads_for(network: Network) -> AbstractContextManager[None]:
    """A context for training steps: one torch thread if the kernels do all the work except a few small products."""
    small = all(_narrow(scale.encoder.core_weight) for scale in network)
    return torch_on_one_thread() if small and _use_kernels(next(network.parameters())) else torch_alone()


def sum_losses(parts: Sequence[Losses]) -> Losses:
    """The sum of the losses of all scales."""
    return Losses(*(torch.stack(part).sum() for part in zip(*parts, strict=True)))


def as_batch(scale: Scale, windows: Tensor, codes: Tensor | None = None) -> Batch:
    """Windows (window, time, variable) with the codes (window, patch, variable) of their patches, found if None."""
    folded = _fold(scale)
    if codes is None:
        codes = _search(folded, windows, scale.stride)
    return Batch(folded, windows, scale.stride, codes)


def batch_loss(batch: Batch, normal: Tensor | None = None) -> tuple[Losses, Tensor]:
    """The losses of one scale, and the number of patches with each code (code,).

    With `normal` (window, patch, variable) only the patches it marks count.

    Paper: Eq. 8 to 10.
    """
    folded = batch.folded
    dim, size = folded.codes.shape[1], batch.size
    counts, sums = _sums(batch, normal)  # n_im (variable, code), S_im (variable, code, size)
    core = _from_products(batch, _products(batch, normal)) if _narrow(folded.core) else _from_core(batch, normal)
    firsts = sums.sum(dim=1)  # (variable, size)
    per_variable, per_code = counts.sum(dim=1), counts.sum(dim=0)
    total = per_code.sum().clamp(min=1)

    by_code = _embedding_sums(folded, counts, sums, core)  # (code, dim)
    # The sum of |z|^2: z has three terms, so there are six products.
    cross = folded.series.T @ folded.right  # A_i'W_right (variable * size, core_dim)
    by_variable = folded.series.reshape(dim, -1, size)  # A_i (dim, variable, size)
    own = torch.einsum("dvp,vpq->dvq", by_variable, core.squares).flatten(1)  # A_i G_i (dim, variable * size)
    squared = (
        (own * folded.series).sum()
        + (core.with_itself * (folded.right.T @ folded.right)).sum()
        + ((folded.offset**2).sum(dim=1) * per_variable).sum()
        + 2 * (core.with_patches * cross).sum()
        + 2 * ((by_variable * firsts).sum(dim=2).T * folded.offset).sum()
        + 2 * (core.by_variable * (folded.offset @ folded.right)).sum()
    )
    fixed, codes = folded.codes.detach(), folded.codes
    commitment = squared - 2 * (fixed * by_code).sum() + ((fixed**2).sum(dim=1) * per_code).sum()
    codebook = squared.detach() - 2 * (codes * by_code.detach()).sum() + ((codes**2).sum(dim=1) * per_code).sum()

    decoded = fixed @ folded.decoder.T + folded.decoder_offset  # D_m (code, size)
    reconstruction = (
        core.squares.diagonal(dim1=1, dim2=2).sum()
        - 2 * (decoded * sums.sum(dim=0)).sum()
        + ((decoded**2).sum(dim=1) * per_code).sum()
    )
    # Straight-through: its value cancels, its gradient is that of the reconstruction with respect to z, R'(D - x).
    decoder = folded.decoder.detach()
    straight = 2 * (
        ((decoded.detach() @ decoder) * by_code).sum()
        - (own.reshape(dim, -1, size).sum(dim=1).T * decoder).sum()
        - (core.with_patches.reshape(-1, size, core.with_patches.shape[1]).sum(dim=0) * (decoder @ folded.right)).sum()
        - ((firsts @ decoder) * folded.offset).sum()
    )
    reconstruction = reconstruction + straight - straight.detach()
    return Losses(reconstruction / (total * size), codebook / (total * dim), commitment / (total * dim)), per_code


def embeddings_of(batch: Batch, chosen: Tensor) -> Tensor:
    """The embeddings (sample, dim) of some patches, given by flat indices into (window, patch, variable)."""
    folded, variables, size = batch.folded, len(batch.folded.offset), batch.size
    positions, which = chosen // variables, chosen % variables
    windows, first = positions // batch.codes.shape[1], positions % batch.codes.shape[1] * batch.stride
    steps = first[:, None] + torch.arange(size, device=chosen.device)
    here = batch.windows[windows[:, None], steps].double().transpose(1, 2)  # (sample, variable, size)
    own = (which[:, None] == torch.arange(variables, device=chosen.device)).double()  # (sample, variable), one-hot
    # A product with a one-hot mask, not a gather, whose gradient would be a scatter.
    series = (own[..., None] * here).flatten(1) @ folded.series.T
    return series + here.flatten(1) @ folded.core.T @ folded.right.T + own @ folded.offset


def _embedding_sums(folded: FoldedParameters, counts: Tensor, sums: Tensor, core: CoreSums) -> Tensor:
    """The sum (code, dim) of z over the patches with each code."""
    series = sums.transpose(0, 1).flatten(1) @ folded.series.T
    return series + counts.T @ folded.offset + core.by_code @ folded.right.T


def _from_products(batch: Batch, products: Products) -> CoreSums:
    variables, size = len(batch.folded.offset), batch.size
    core = batch.folded.core.reshape(-1, variables, size).transpose(1, 2).flatten(1)  # in memory order
    blocks = products.pairs.view(size, variables, size, variables)
    with_patches = products.pairs @ core.T
    weighted = variables * with_patches if products.weighted is None else products.weighted @ core.T
    return CoreSums(
        blocks.diagonal(dim1=1, dim2=3).permute(2, 0, 1),
        with_patches.reshape(size, variables, -1).transpose(0, 1).flatten(0, 1),
        core @ weighted,
        products.by_variable @ core.T,
        products.by_code @ core.T,
    )


def _from_core(batch: Batch, normal: Tensor | None) -> CoreSums:
    stacked = batch.stacked
    variables, size = len(batch.folded.offset), batch.size
    h = stacked @ batch.folded.core.T
    # (position, variable): 1 where the patch counts
    weights = torch.ones_like(stacked[:, :variables]) if normal is None else normal.flatten(0, 1).double()
    normal_patches = stacked if normal is None else stacked * weights.repeat_interleave(size, dim=1)
    own = normal_patches.reshape(-1, variables, size).permute(1, 2, 0)  # (variable, size, position)
    return CoreSums(
        own @ own.transpose(1, 2),
        normal_patches.T @ h,
        (h * weights.sum(dim=1, keepdim=True)).T @ h,
        weights.T @ h,
        _codes_by_position(batch, weights).T @ h,
    )


def _codes_by_position(batch: Batch, weights: Tensor) -> Tensor:
    """The number of normal patches with each code at each position, (position, code)."""
    taken = weights.new_zeros(len(weights), len(batch.folded.codes))
    return taken.scatter_add_(1, batch.codes.flatten(0, 1).long(), weights)  # whole numbers: exact in any order


def _fold(scale: Scale) -> FoldedParameters:
    encoder = scale.encoder
    half = encoder.series_weight.shape[1]
    left, right = torch.tensor_split(encoder.fusion_weight.double(), [half], dim=1)
    return FoldedParameters(
        left @ encoder.series_weight.double().transpose(0, 1).flatten(1),
        right,
        encoder.core_weight.double(),
        encoder.series_bias.double() @ left.T + right @ encoder.core_bias.double() + encoder.fusion_bias.double(),
        scale.codebook.vectors.double(),
        scale.decoder.weight.double(),
        scale.decoder.bias.double(),
    )


@torch.no_grad()
def _search(folded: FoldedParameters, windows: Tensor, stride: int) -> Tensor:
    """The nearest code of every patch, (window, patch, variable)."""
    middle = folded.codes.mean(dim=0)  # shifting codes and embeddings together keeps their distances
    codes, offset = folded.codes - middle, folded.offset - middle
    core_codes = -2 * (codes @ folded.right).T  # (core_dim, code)
    series_codes = (-2 * folded.series.T @ codes.T).reshape(len(offset), -1, len(codes))  # (variable, size, code)
    constants = (codes**2).sum(dim=1) - 2 * offset @ codes.T  # (variable, code)
    if not _use_kernels(windows):
        return _search_by_torch(windows, stride, folded.core, core_codes, series_codes, constants)
    variables, size, _ = series_codes.shape
    shape = (len(windows), patch_count(windows.shape[1], size, stride), variables)
    nearest, readings = np.empty(shape, np.int32), np.ascontiguousarray(windows.numpy(), np.float32)
    fill = -folded.core.shape[0] % WIDTH
    tables = (
        table(folded.core.T),
        table(torch.nn.functional.pad(core_codes, (0, 0, 0, fill))),
        table(series_codes),
        table(constants, fill=np.inf),
    )
    in_parts(lambda rows: find_codes(readings[rows], stride, *tables, nearest[rows]), len(windows))
    return torch.from_numpy(nearest)


def _search_by_torch(
    windows: Tensor, stride: int, core: Tensor, core_codes: Tensor, series_codes: Tensor, constants: Tensor
) -> Tensor:
    variables, size, count = series_codes.shape
    cut = patches(windows, size, stride)  # (window, patch, variable, size)
    x = cut.flatten(0, 1).float().permute(1, 0, 2)  # (variable, position, size)
    shared = cut.flatten(0, 1).flatten(1).float() @ (core.T @ core_codes).float()  # (position, code)
    nearest = []
    rows = max(1, BLOCK // (4 * variables * count))
    for begin in range(0, len(shared), rows):
        block = slice(begin, begin + rows)
        search = torch.baddbmm(constants.float()[:, None], x[:, block], series_codes.float())
        nearest.append((search + shared[block]).argmin(dim=2))  # (variable, position, code) -> (variable, position)
    return torch.cat(nearest, dim=1).T.int().reshape(cut.shape[:3])


def _sums(batch: Batch, normal: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (variable, code) and sums (variable, code, size) of the normal patches."""
    variables, size, codes = len(batch.folded.offset), batch.size, len(batch.folded.codes)
    if not _use_kernels(batch.windows):
        one_hot = (batch.codes.flatten(0, 1).T[..., None] == torch.arange(codes, device=batch.codes.device)).double()
        if normal is not None:
            one_hot *= normal.flatten(0, 1).T[..., None]
        own = batch.stacked.reshape(-1, variables, size).transpose(0, 1)  # (variable, position, size)
        return one_hot.sum(dim=1), one_hot.transpose(1, 2) @ own
    counts, sums = _summed(batch, normal, add_patches_by_code, [(variables, codes), (variables, codes, size)])
    return torch.from_numpy(counts), torch.from_numpy(sums)


def _products(batch: Batch, normal: Tensor | None) -> Products:
    variables, size, codes = len(batch.folded.offset), batch.size, len(batch.folded.codes)
    if not _use_kernels(batch.windows):
        return _products_by_torch(batch, normal)
    length = variables * size
    wide, tall = length + -length % DOUBLES, length + -length % ROWS
    less = 0 if normal is None else 1  # nothing to subtract if all are normal
    shapes = [
        (tall, wide),
        (1, wide),
        (codes, wide),
        (less * length, wide),
        (less * tall, wide),
        (less * variables, wide),
    ]
    parts = _summed(batch, normal, lambda w, s, *rest: add_products(w, size, s, *rest), shapes)
    mirror(parts[0])
    mirror(parts[4])
    pairs, total, by_code, less_pairs, less_weighted, less_by_variable = (
        torch.from_numpy(part)[:, :length] for part in parts
    )
    pairs, less_weighted = pairs[:length], less_weighted[:length]  # without the padding
    if normal is None:
        return Products(pairs, None, total.expand(variables, -1), by_code)
    # Exactly zero if nothing is normal: AdamW would scale a gradient of rounding errors up to a full step.
    any_normal = normal.flatten(0, 1).any(dim=0).double()[:, None]  # (variable, 1)
    return Products(
        (pairs - less_pairs) * any_normal.repeat(size, 1),
        (variables * pairs - less_weighted) * any_normal.max(),
        (total - less_by_variable) * any_normal,
        by_code,
    )


def _narrow(core: Tensor) -> bool:
    return core.shape[1] <= NARROW * core.shape[0]


def _use_kernels(windows: Tensor) -> bool:
    return COMPILES and windows.device.type == "cpu"


def _products_by_torch(batch: Batch, normal: Tensor | None) -> Products:
    variables, size = len(batch.folded.offset), batch.size
    stacked = patches(batch.windows, size, batch.stride).transpose(2, 3).flatten(0, 1).flatten(1).double()
    weights = torch.ones_like(stacked[:, :variables]) if normal is None else normal.flatten(0, 1).double()
    by_code = _codes_by_position(batch, weights).T @ stacked
    if normal is None:
        return Products(stacked.T @ stacked, None, stacked.sum(dim=0).expand(variables, -1), by_code)
    only = stacked * weights.repeat(1, size)
    weighted = (stacked * weights.sum(dim=1, keepdim=True)).T @ stacked
    return Products(only.T @ stacked, weighted, weights.T @ stacked, by_code)


def _summed(
    batch: Batch, normal: Tensor | None, add: Callable[..., None], shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """The sums of a kernel over all windows, in an order that does not depend on the number of threads."""
    windows, codes = (np.ascontiguousarray(tensor.numpy()) for tensor in (batch.windows, batch.codes))
    chosen = np.empty((0, 0, 0), bool) if normal is None else np.ascontiguousarray(normal.numpy())
    groups = min(GROUPS, len(windows))
    cuts = np.linspace(0, len(windows), groups + 1).astype(int)
    sums = [np.zeros((groups, *shape)) for shape in shapes]

    def sum_groups(part: slice) -> None:
        for group in range(part.start, part.stop):
            here = slice(cuts[group], cuts[group + 1])
            add(windows[here], batch.stride, codes[here], chosen[here], *(whole[group] for whole in sums))

    in_parts(sum_groups, groups)
    return [whole.sum(axis=0) for whole in sums]
