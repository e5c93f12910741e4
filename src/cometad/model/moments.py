"""The training objective from sums over a batch: the same losses and gradients as `network.losses`, far cheaper.

With the codes of a batch fixed, the losses depend on the readings only through a few sums (moments). For variable i,
patch x of a position, stacked patches P of that position and h = W_core P,

    z = A_i x + W_right h + a_i,        the decoder sees only the codes themselves: D_m = R c_m + r,

so |z - c|^2 and |x - D|^2, summed over a batch, expand into products of parameters with

    n_im, S_im   how many patches of variable i took code m, and their sum,
    G_i          the sum of x x' of a variable,
    T_m          the sum of h over all patches that took code m, and sums of h with x over positions.

Nothing of size (embedding, dim) is ever built. Everything is float64: the losses are differences of large sums.
Which gradient goes where is the paper's: the codebook loss teaches codes, the commitment loss the encoder, and the
reconstruction loss the decoder and, straight through the quantization, the encoder.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cometad.model.kernel import gather_by_code, patch_sums_by_code, scatter_by_code, search_codes
from cometad.model.network import Losses, Network, Scale
from cometad.model.patches import patches
from cometad.model.threads import in_parts


class Folded(NamedTuple):
    """The parameters of one scale as the sums meet them: in float64, with gradients."""

    series: Tensor  # A_i  (variable, dim, size)
    right: Tensor  # W_right  (dim, core_dim)
    core: Tensor  # W_core  (core_dim, variable * size)
    offset: Tensor  # a_i  (variable, dim)
    codes: Tensor  # c_m  (code, dim)
    decoder: Tensor  # R  (size, dim)
    decoder_offset: Tensor  # r  (size,)


class Batch(NamedTuple):
    """The patches of some windows at one scale, and the codes they take."""

    folded: Folded
    stacked: Tensor  # P  (position, variable * size), float64
    core: Tensor  # h  (position, core_dim), float64, with gradient
    patches: Tensor  # x  (variable, size, position), float32
    codes: Tensor  # (variable, position), int32


def batch_losses(network: Network, windows: Tensor) -> tuple[Losses, list[Batch]]:
    """The losses over windows (window, time, variable), equal to `network.losses`, and the batch of each scale.

    >>> import torch
    >>> from cometad.model.moments import batch_losses
    >>> from cometad.model.network import Network, losses
    >>> network = Network(variables=3, patch_sizes=(2, 4), patch_strides=(1, 2), dim=8, core_dim=4, codebook_size=16)
    >>> windows = torch.randn(5, 20, 3)
    >>> fast, plain = batch_losses(network, windows)[0], losses(network(windows))
    >>> all(torch.allclose(a.float(), b) for a, b in zip(fast, plain))
    True
    """
    batches = [look(scale, windows) for scale in network]
    return sum_losses([batch_loss(batch) for batch in batches]), batches


def sum_losses(parts: Sequence[Losses]) -> Losses:
    """The losses of all scales together."""
    return Losses(*(torch.stack(part).sum() for part in zip(*parts, strict=True)))


def look(scale: Scale, windows: Tensor, codes: Tensor | None = None) -> Batch:
    """The patches of windows (window, time, variable) with their codes (variable, position), searched if not given."""
    folded = _fold(scale)
    cut = patches(windows, scale.size, scale.stride).flatten(0, 1)  # (position, variable, size)
    stacked = cut.flatten(1).double()
    core = stacked @ folded.core.T
    side_by_side = cut.permute(1, 2, 0).contiguous()
    if codes is None:
        codes = _search(folded, core.detach(), side_by_side)
    return Batch(folded, stacked, core, side_by_side, codes)


def batch_loss(batch: Batch, normal: Tensor | None = None) -> Losses:
    """The losses of one scale; with `normal` (variable, position) only those patches count. Paper: Eq. 8 to 10."""
    folded, core = batch.folded, batch.core
    dim, size = folded.codes.shape[1], len(folded.decoder)
    taken = torch.ones_like(batch.codes, dtype=torch.bool) if normal is None else normal
    patches, stacked = batch.patches.double(), batch.stacked
    if normal is not None:
        patches = patches * normal[:, None]  # (variable, size, position): zero where nothing counts
        stacked = patches.permute(2, 0, 1).flatten(1)
    weights = taken.T.double()  # (position, variable)
    total = weights.sum().clamp(min=1)

    counts, sums = _sums(batch, taken)  # n_im (variable, code), S_im (variable, code, size)
    squares = patches @ patches.transpose(1, 2)  # G_i (variable, size, size)
    firsts = patches.sum(dim=2)  # (variable, size)
    per_variable = weights.sum(dim=0)  # (variable,)
    per_code = counts.sum(dim=0)  # (code,)

    by_code = _embedding_sums(batch, taken, counts, sums)
    # The sum of |z|^2: every pair of its three terms.
    cross = torch.einsum("vdp,dc->vpc", folded.series, folded.right).flatten(0, 1)  # (variable * size, core_dim)
    squared = (
        torch.einsum("vdp,vpq,vdq->", folded.series, squares, folded.series)
        + (((core * weights.sum(dim=1, keepdim=True)).T @ core) * (folded.right.T @ folded.right)).sum()
        + ((folded.offset**2).sum(dim=1) * per_variable).sum()
        + 2 * ((stacked @ cross) * core).sum()
        + 2 * torch.einsum("vd,vdp,vp->", folded.offset, folded.series, firsts)
        + 2 * ((weights @ (folded.offset @ folded.right)) * core).sum()
    )
    fixed, codes = folded.codes.detach(), folded.codes
    commitment = squared - 2 * (fixed * by_code).sum() + ((fixed**2).sum(dim=1) * per_code).sum()
    codebook = squared.detach() - 2 * (codes * by_code.detach()).sum() + ((codes**2).sum(dim=1) * per_code).sum()

    decoded = fixed @ folded.decoder.T + folded.decoder_offset  # D_m (code, size)
    reconstruction = (
        torch.einsum("vpp->", squares)
        - 2 * (decoded * sums.sum(dim=0)).sum()
        + ((decoded**2).sum(dim=1) * per_code).sum()
    )
    # The reconstruction's gradient with respect to z, R'(D - x), taken straight through to the encoder.
    decoder = folded.decoder.detach()
    straight = 2 * (
        ((decoded.detach() @ decoder) * by_code).sum()
        - torch.einsum("pd,vdq,vqp->", decoder, folded.series, squares)
        - ((patches.sum(dim=0).T @ decoder @ folded.right) * core).sum()
        - ((firsts @ decoder) * folded.offset).sum()
    )
    reconstruction = reconstruction + straight - straight.detach()
    return Losses(reconstruction / (total * size), codebook / (total * dim), commitment / (total * dim))


def sums_by_code(batch: Batch, normal: Tensor) -> tuple[Tensor, Tensor]:
    """The sum (code, dim) of the normal embeddings that took each code, and their number (code,)."""
    counts, sums = _sums(batch, normal)
    return _embedding_sums(batch, normal, counts, sums), counts.sum(dim=0)


def _embedding_sums(batch: Batch, normal: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
    """The sum of z over the patches of each code, (code, dim)."""
    folded = batch.folded
    core = _ByCode.apply(batch.core, batch.codes, normal, len(folded.codes))  # type: ignore[no-untyped-call]
    series: Tensor = torch.einsum("vdp,vmp->md", folded.series, sums)
    sums_of_all: Tensor = series + counts.T @ folded.offset + core @ folded.right.T
    return sums_of_all


def embeddings_of(batch: Batch, variables: Tensor, positions: Tensor) -> Tensor:
    """The embeddings (sample, dim) of a few patches, given by variable and position."""
    folded = batch.folded
    own = batch.patches[variables, :, positions].double()  # (sample, size)
    series = torch.einsum("sdp,sp->sd", folded.series[variables], own)
    return series + batch.core[positions] @ folded.right.T + folded.offset[variables]


def _fold(scale: Scale) -> Folded:
    encoder = scale.encoder
    half = encoder.series_weight.shape[1]
    left, right = torch.tensor_split(encoder.fusion_weight.double(), [half], dim=1)
    return Folded(
        torch.einsum("dh,vhp->vdp", left, encoder.series_weight.double()),
        right,
        encoder.core_weight.double(),
        encoder.series_bias.double() @ left.T + right @ encoder.core_bias.double() + encoder.fusion_bias.double(),
        scale.codebook.vectors.double(),
        scale.decoder.weight.double(),
        scale.decoder.bias.double(),
    )


@torch.no_grad()
def _search(folded: Folded, core: Tensor, patches: Tensor) -> Tensor:
    """The nearest code of every patch, (variable, position)."""
    middle = folded.codes.mean(dim=0)  # distances do not change when codes and embeddings move together
    codes, offset = folded.codes - middle, folded.offset - middle
    shared = (-2 * codes @ folded.right @ core.T).float()  # (code, position)
    series = (-2 * torch.einsum("vdp,md->vpm", folded.series, codes)).float()
    constants = ((codes**2).sum(dim=1) - 2 * offset @ codes.T).float()
    if patches.device.type == "cuda":
        return _search_by_products(patches, shared, series, constants)
    found = torch.empty((patches.shape[0], patches.shape[2]), dtype=torch.int32)
    arrays = [tensor.contiguous().numpy() for tensor in (patches, series, constants, found)]

    def some(variables: slice) -> None:
        x, table, constant, out = (array[variables] for array in arrays)
        search_codes(x, shared.numpy(), table, constant, out)

    in_parts(some, len(patches))
    return found


def _search_by_products(patches: Tensor, shared: Tensor, series: Tensor, constants: Tensor) -> Tensor:
    found = []
    for x, table, constant in zip(patches, series, constants, strict=True):  # one variable at a time bounds the memory
        found.append((shared + constant[:, None] + table.T @ x).argmin(dim=0))
    return torch.stack(found).int()


def _sums(batch: Batch, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Counts (variable, code) and sums (variable, code, size) of the normal patches."""
    variables, size, _ = batch.patches.shape
    codes = len(batch.folded.codes)
    if batch.patches.device.type == "cuda":
        hot = _one_hot(batch.codes, normal, codes)  # (variable, position, code)
        return hot.sum(dim=1), hot.transpose(1, 2) @ batch.patches.double().transpose(1, 2)
    counts, sums = torch.zeros(variables, codes).double(), torch.zeros(variables, codes, size).double()
    arrays = [tensor.numpy() for tensor in (batch.patches, batch.codes, normal.contiguous(), counts, sums)]
    in_parts(lambda some: patch_sums_by_code(*(array[some] for array in arrays)), variables)
    return counts, sums


def _one_hot(codes: Tensor, normal: Tensor, count: int) -> Tensor:
    return torch.nn.functional.one_hot(codes.long(), count).double() * normal[..., None]


class _ByCode(torch.autograd.Function):
    """The sum of each position's vector over the normal patches of each code."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, codes: Tensor, normal: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(codes, normal)
        if values.device.type == "cuda":
            return _one_hot(codes, normal, count).sum(dim=0).T @ values
        sums = torch.zeros(count, values.shape[1], dtype=torch.float64)
        scatter_by_code(values.numpy(), codes.numpy(), normal.numpy(), sums.numpy())
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        codes, normal = ctx.saved_tensors
        (gradient,) = gradients
        if gradient.device.type == "cuda":
            return _one_hot(codes, normal, len(gradient)).sum(dim=0) @ gradient, None, None, None
        values = torch.zeros(codes.shape[1], gradient.shape[1], dtype=torch.float64)
        gather_by_code(gradient.contiguous().numpy(), codes.numpy(), normal.numpy(), values.numpy())
        return values, None, None, None
