"""The network: an encoder, a codebook and a decoder for each scale, and the three losses that train them.

This is the readable definition. The modules in `fast` compute the same results faster and are tested against it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cometad.network.codebook import Codebook, Quantized
from cometad.network.encoder import Encoder
from cometad.network.patches import patches


class Losses(NamedTuple):
    """The three terms of the training objective, each a scalar summed over scales."""

    reconstruction: Tensor
    codebook: Tensor
    commitment: Tensor

    def total(self, codebook_weight: float, commitment_weight: float) -> Tensor:
        """The weighted sum that training minimizes. Paper: Eq. 11."""
        return self.reconstruction + codebook_weight * self.codebook + commitment_weight * self.commitment


class Encoded(NamedTuple):
    """The output of one scale for a batch of windows."""

    patches: Tensor  # (window, patch, variable, size)
    embeddings: Tensor  # (window, patch, variable, dim)
    quantized: Quantized  # codes (window, patch, variable), vectors (window, patch, variable, dim)
    reconstruction: Tensor  # (window, patch, variable, size)


class Scale(nn.Module):
    """One patch size with its encoder, codebook and decoder."""

    def __init__(self, variables: int, size: int, stride: int, dim: int, core_dim: int, codebook_size: int) -> None:
        super().__init__()
        self.size, self.stride = size, stride
        self.encoder = Encoder(variables, size, dim, core_dim)
        self.codebook = Codebook(codebook_size, dim)
        # The paper only says "a decoder h_k"; this is one linear layer shared by all variables.
        self.decoder = nn.Linear(dim, size)

    def embed(self, windows: Tensor) -> Tensor:
        """Embeddings (window, patch, variable, dim) of windows (window, time, variable)."""
        embeddings: Tensor = self.encoder(patches(windows, self.size, self.stride))
        return embeddings

    def forward(self, windows: Tensor) -> Encoded:
        """Patches, embeddings, codes and reconstruction of windows (window, time, variable)."""
        cut = patches(windows, self.size, self.stride)  # (window, patch, variable, size)
        embeddings = self.encoder(cut)  # (window, patch, variable, dim)
        quantized = self.codebook(embeddings)
        reconstruction = self.decoder(quantized.straight)  # (window, patch, variable, size)
        return Encoded(cut, embeddings, quantized, reconstruction)


class Network(nn.Module):
    """All scales side by side."""

    def __init__(
        self,
        variables: int,
        patch_sizes: Sequence[int],
        patch_strides: Sequence[int],
        dim: int,
        core_dim: int,
        codebook_size: int,
    ) -> None:
        super().__init__()
        self.scales = nn.ModuleList(
            Scale(variables, size, stride, dim, core_dim, codebook_size)
            for size, stride in zip(patch_sizes, patch_strides, strict=True)
        )

    def __iter__(self) -> Iterator[Scale]:
        for scale in self.scales:
            assert isinstance(scale, Scale)
            yield scale

    def forward(self, windows: Tensor) -> list[Encoded]:
        """The output of each scale for windows (window, time, variable)."""
        return [scale(windows) for scale in self]


def losses(encoded: Sequence[Encoded], normal: Sequence[Tensor] | None = None) -> Losses:
    """The three losses, each a mean over elements, summed over scales.

    With `normal`, one boolean mask (window, patch, variable) per scale, only the embeddings it marks count.

    Paper: Eq. 8 (codebook), 9 (commitment), 10 (reconstruction).
    """
    sums = [torch.zeros((), device=encoded[0].patches.device) for _ in range(3)]
    for k, scale in enumerate(encoded):
        pairs = (
            (scale.patches, scale.reconstruction),
            (scale.quantized.vectors, scale.embeddings.detach()),
            (scale.quantized.vectors.detach(), scale.embeddings),
        )
        for which, (left, right) in enumerate(pairs):
            errors = ((left - right) ** 2).mean(dim=-1)  # (window, patch, variable)
            sums[which] = sums[which] + (errors.mean() if normal is None else _masked_mean(errors, normal[k]))
    return Losses(*sums)


def _masked_mean(errors: Tensor, normal: Tensor) -> Tensor:
    return (errors * normal).sum() / normal.sum().clamp(min=1)
