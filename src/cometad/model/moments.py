"""The training objective from sums over a batch: the same losses and gradients as `network.losses`, far cheaper.

With the codes of a batch fixed, the losses depend on the readings only through a few sums (moments). For variable i,
patch x of a position, stacked patches P of that position and h = W_core P,

    z = A_i x + W_right h + a_i,        the decoder sees only the codes themselves: D_m = R c_m + r,

so |z - c|^2 and |x - D|^2, summed over a batch, expand into products of parameters with

    n_im, S_im   how many patches of variable i took code m, and their sum,
    G_i          the sum of x x' of a variable,
    CoreSums     the sums of h with P, with itself, over variables and over codes.

Nothing of size (embedding, dim) is ever built. The sums are float64: the losses are differences of large ones. Which
gradient goes where is the paper's: the codebook loss teaches codes, the commitment loss the encoder, and the
reconstruction loss the decoder and, straight through the quantization, the encoder.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cometad.model.kernel import patch_sums_by_code, search_codes
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
    stacked: Tensor  # P  (position, variable * size)
    patches: Tensor  # x  (variable, size, position)
    codes: Tensor  # (variable, position), int32


class CoreSums(NamedTuple):
    """Sums of the shared vector h over the normal patches of a batch, in float64, with gradients."""

    with_patches: Tensor  # P h'  (variable * size, core_dim)
    with_itself: Tensor  # h h'  (core_dim, core_dim)
    by_variable: Tensor  # h  (variable, core_dim)
    by_code: Tensor  # h  (code, core_dim)


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
    stacked, side_by_side = cut.flatten(1), cut.permute(1, 2, 0).contiguous()
    if codes is None:
        codes = _search(folded, stacked, side_by_side)
    return Batch(folded, stacked, side_by_side, codes)


def batch_loss(batch: Batch, normal: Tensor | None = None) -> Losses:
    """The losses of one scale; with `normal` (variable, position) only those patches count. Paper: Eq. 8 to 10."""
    folded = batch.folded
    dim, size = folded.codes.shape[1], len(folded.decoder)
    taken = torch.ones_like(batch.codes, dtype=torch.bool) if normal is None else normal
    patches = batch.patches.double()
    if normal is not None:
        patches = patches * normal[:, None]  # zero where nothing counts
    counts, sums = _sums(batch, taken)  # n_im (variable, code), S_im (variable, code, size)
    core = _core_sums(batch, normal)
    squares = patches @ patches.transpose(1, 2)  # G_i (variable, size, size)
    firsts = patches.sum(dim=2)  # (variable, size)
    per_variable, per_code = counts.sum(dim=1), counts.sum(dim=0)
    total = per_code.sum().clamp(min=1)

    by_code = _embedding_sums(folded, counts, sums, core)
    # The sum of |z|^2: every pair of its three terms.
    cross = (folded.series.transpose(1, 2) @ folded.right).flatten(0, 1)  # A_i'W_right (variable * size, core_dim)
    own = folded.series @ squares  # A_i G_i
    squared = (
        (own * folded.series).sum()
        + (core.with_itself * (folded.right.T @ folded.right)).sum()
        + ((folded.offset**2).sum(dim=1) * per_variable).sum()
        + 2 * (core.with_patches * cross).sum()
        + 2 * ((folded.series @ firsts[..., None]).squeeze(-1) * folded.offset).sum()
        + 2 * (core.by_variable * (folded.offset @ folded.right)).sum()
    )
    fixed, codes = folded.codes.detach(), folded.codes
    commitment = squared - 2 * (fixed * by_code).sum() + ((fixed**2).sum(dim=1) * per_code).sum()
    codebook = squared.detach() - 2 * (codes * by_code.detach()).sum() + ((codes**2).sum(dim=1) * per_code).sum()

    decoded = fixed @ folded.decoder.T + folded.decoder_offset  # D_m (code, size)
    reconstruction = (
        squares.diagonal(dim1=1, dim2=2).sum()
        - 2 * (decoded * sums.sum(dim=0)).sum()
        + ((decoded**2).sum(dim=1) * per_code).sum()
    )
    # The reconstruction's gradient with respect to z, R'(D - x), taken straight through to the encoder.
    decoder = folded.decoder.detach()
    straight = 2 * (
        ((decoded.detach() @ decoder) * by_code).sum()
        - (own.sum(dim=0).T * decoder).sum()
        - (core.with_patches.reshape(-1, size, core.with_patches.shape[1]).sum(dim=0) * (decoder @ folded.right)).sum()
        - ((firsts @ decoder) * folded.offset).sum()
    )
    reconstruction = reconstruction + straight - straight.detach()
    return Losses(reconstruction / (total * size), codebook / (total * dim), commitment / (total * dim))


def embeddings_of(batch: Batch, variables: Tensor, positions: Tensor) -> Tensor:
    """The embeddings (sample, dim) of a few patches, given by variable and position."""
    folded = batch.folded
    own = batch.patches[variables, :, positions].double()  # (sample, size)
    series = (folded.series[variables] @ own[..., None]).squeeze(-1)
    core = batch.stacked[positions].double() @ folded.core.T
    return series + core @ folded.right.T + folded.offset[variables]


def _embedding_sums(folded: Folded, counts: Tensor, sums: Tensor, core: CoreSums) -> Tensor:
    """The sum of z over the patches of each code, (code, dim)."""
    series = sums.transpose(0, 1).flatten(1) @ folded.series.transpose(1, 2).flatten(0, 1)
    return series + counts.T @ folded.offset + core.by_code @ folded.right.T


def _core_sums(batch: Batch, normal: Tensor | None) -> CoreSums:
    core, stacked = batch.folded.core.T, batch.stacked.double()  # (variable * size, core_dim), (position, same)
    variables, size, _ = batch.patches.shape
    taken = _codes_by_position(batch, normal)  # (position, code)
    if normal is None and variables * size <= 4 * core.shape[1]:
        # P P' once: it is no larger than what the products with h and their gradients would take.
        with_patches = (stacked.T @ stacked) @ core
        by_variable = (stacked.sum(dim=0) @ core).expand(variables, -1)
        return CoreSums(with_patches, variables * core.T @ with_patches, by_variable, (taken.T @ stacked) @ core)
    h = stacked @ core
    weights = torch.ones_like(batch.codes.T, dtype=h.dtype) if normal is None else normal.T.to(h.dtype)
    normal_patches = stacked if normal is None else stacked * weights.repeat_interleave(size, dim=1)
    with_itself = (h * weights.sum(dim=1, keepdim=True)).T @ h
    return CoreSums(normal_patches.T @ h, with_itself, weights.T @ h, taken.T @ h)


def _codes_by_position(batch: Batch, normal: Tensor | None) -> Tensor:
    """How many normal patches of each position took each code, (position, code)."""
    taken = torch.zeros(batch.codes.shape[1], len(batch.folded.codes), dtype=torch.float64, device=batch.codes.device)
    for i, codes in enumerate(batch.codes.long()):  # each position gets one of each variable: the order is fixed
        weight = torch.ones_like(taken[:, :1]) if normal is None else normal[i, :, None].to(taken.dtype)
        taken.scatter_add_(1, codes[:, None], weight)
    return taken


def _fold(scale: Scale) -> Folded:
    encoder = scale.encoder
    half = encoder.series_weight.shape[1]
    left, right = torch.tensor_split(encoder.fusion_weight.double(), [half], dim=1)
    return Folded(
        left @ encoder.series_weight.double(),
        right,
        encoder.core_weight.double(),
        encoder.series_bias.double() @ left.T + right @ encoder.core_bias.double() + encoder.fusion_bias.double(),
        scale.codebook.vectors.double(),
        scale.decoder.weight.double(),
        scale.decoder.bias.double(),
    )


@torch.no_grad()
def _search(folded: Folded, stacked: Tensor, patches: Tensor) -> Tensor:
    """The nearest code of every patch, (variable, position)."""
    middle = folded.codes.mean(dim=0)  # distances do not change when codes and embeddings move together
    codes, offset = folded.codes - middle, folded.offset - middle
    shared = (-2 * codes @ folded.right @ folded.core).float() @ stacked.T.float()  # (code, position)
    series = (-2 * folded.series.transpose(1, 2) @ codes.T).float()  # (variable, size, code)
    constants = ((codes**2).sum(dim=1) - 2 * offset @ codes.T).float()
    if patches.device.type == "cuda":
        return _search_by_products(patches.float(), shared, series, constants)
    found = torch.empty((patches.shape[0], patches.shape[2]), dtype=torch.int32)
    arrays = [tensor.contiguous().numpy() for tensor in (patches.float(), series, constants, found)]
    table = shared.numpy()

    def some(variables: slice) -> None:
        x, weights, constant, out = (array[variables] for array in arrays)
        search_codes(x, table, weights, constant, out)

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
        hot = torch.nn.functional.one_hot(batch.codes.long(), codes).double() * normal[..., None]
        return hot.sum(dim=1), hot.transpose(1, 2) @ batch.patches.double().transpose(1, 2)
    counts, sums = torch.zeros(variables, codes).double(), torch.zeros(variables, codes, size).double()
    arrays = [tensor.contiguous().numpy() for tensor in (batch.patches, batch.codes, normal, counts, sums)]
    in_parts(lambda some: patch_sums_by_code(*(array[some] for array in arrays)), variables)
    return counts, sums
