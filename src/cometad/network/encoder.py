"""From patches to embeddings, which combine a variable's own pattern with that of all variables."""

import math

import torch
from torch import Tensor, nn


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


def _uniform(fan_in: int, *shape: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)  # the initialization of torch.nn.Linear
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
