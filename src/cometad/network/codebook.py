"""The codebook of one scale: the finite set of normal patterns to which embeddings are quantized."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
