"""The network: an encoder, a codebook and a decoder for each scale, and the three losses that train them.

This is the readable definition. The modules in `fast` compute the same results faster and are tested against it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cometad.arrays import Flags, Floats, Floats32
from cometad.network.patches import patches

AT_ONCE = 8  # windows; limits the memory for their embeddings


class Encoder(nn.Module):
    """The encoder of one scale: a linear map per variable, one over all variables, and one that fuses the two.

    Paper: Eq. 2 (series), 3 and 4 (core), 5 (fusion).
    """

    def __init__(self, variables: int, patch_size: int, dim: int, core_dim: int) -> None:
        super().__init__()
        half = dim // 2
        self.series_weight = _uniform(patch_size, variables, half, patch_size)
        self.series_bias = _uniform(patch_size, variables, half)
        self.core_weight = _uniform(variables * patch_size, core_dim, variables * patch_size)
        self.core_bias = _uniform(variables * patch_size, core_dim)
        self.fusion_weight = _uniform(half + core_dim, dim, half + core_dim)
        self.fusion_bias = _uniform(half + core_dim, dim)

    def forward(self, patches: Tensor) -> Tensor:
        """Embeddings (..., patch, variable, dim) of patches (..., patch, variable, size)."""
        series = (
            torch.einsum("...vp,vhp->...vh", patches, self.series_weight) + self.series_bias
        )  # (..., variable, half)
        core = patches.flatten(-2) @ self.core_weight.T + self.core_bias  # (..., patch, core_dim)
        core = core.unsqueeze(-2).expand(*series.shape[:-1], -1)  # the same for every variable
        embeddings: Tensor = torch.cat([series, core], dim=-1) @ self.fusion_weight.T + self.fusion_bias
        return embeddings


class Quantized(NamedTuple):
    """The nearest code of each embedding (..., dim)."""

    codes: Tensor  # (...,)  index of the nearest code
    vectors: Tensor  # (..., dim)  its vector
    straight: Tensor  # (..., dim)  the same, with its gradient passed straight through to the embedding

    def error(self, embeddings: Tensor) -> Tensor:
        """Distance of each embedding (..., dim) to its code: the quantization score of a patch. Paper: Eq. 17."""
        distances: Tensor = torch.linalg.vector_norm(embeddings - self.vectors, dim=-1)
        return distances


class Codebook(nn.Module):
    """A learnable table of codes.

    Paper: Eq. 6 and 7.
    """

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(size, dim))

    def forward(self, embeddings: Tensor) -> Quantized:
        """The nearest code of each embedding (..., dim); ties go to the lowest index."""
        codes = self.nearest(embeddings.detach())
        # Not vectors[codes]: its backward sums in a thread-dependent order.
        vectors = F.embedding(codes, self.vectors)
        # The reconstruction loss trains the encoder as if quantization were the identity, and never the codebook.
        straight = embeddings + (vectors - embeddings).detach()
        return Quantized(codes, vectors, straight)

    @torch.no_grad()
    def nearest(self, embeddings: Tensor) -> Tensor:
        """The index of the nearest code of each embedding (..., dim)."""
        flat = embeddings.reshape(-1, embeddings.shape[-1])
        norms = (self.vectors**2).sum(dim=1)  # (code,)
        rows = max(1, 2**24 // len(self.vectors))  # limits the (embedding, code) table to 64 MB
        parts = [(norms - 2 * part @ self.vectors.T).argmin(dim=1) for part in torch.split(flat, rows)]
        return torch.cat(parts).reshape(embeddings.shape[:-1])


class Encoded(NamedTuple):
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

    @torch.no_grad()
    def decoded(self) -> Floats:
        """The patch (code, size) that each code represents, in scaled readings."""
        patches: Tensor = self.decoder(self.codebook.vectors)
        return patches.cpu().double().numpy()

    @torch.no_grad()
    def normal_codes(self, windows: Floats32, codes: NDArray[np.int32], active: Flags) -> NDArray[np.int32]:
        """The nearest active code of each patch, given the nearest of all codes; both are (window, patch, variable).

        `windows` are (window, time, variable) and `active` is (code,).
        """
        codes, inactive, known = codes.copy(), ~active[codes], np.flatnonzero(active)
        vectors = self.codebook.vectors.double()
        normal = vectors[torch.as_tensor(known, device=vectors.device)]  # (active code, dim)
        for begin in range(0, len(windows), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            if inactive[part].any():
                embeddings = self.embed(torch.as_tensor(windows[part], device=vectors.device))
                embeddings = embeddings[torch.as_tensor(inactive[part], device=vectors.device)].double()
                chunks = torch.split(embeddings, 2**12)
                nearest = [torch.cdist(chunk, normal).argmin(dim=1).cpu().numpy() for chunk in chunks]
                codes[part][inactive[part]] = known[np.concatenate(nearest)]
        return codes


class Losses(NamedTuple):
    """The three terms of the training objective, each a scalar summed over scales."""

    reconstruction: Tensor
    codebook: Tensor
    commitment: Tensor


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


def _uniform(fan_in: int, *shape: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)  # the initialization of torch.nn.Linear
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
