"""VTT: attention over variables and over time (Kang and Kang, 2024)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cometad.network.schedules import Halving, Schedule
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork, sinusoid

CONVOLUTIONS = ((4, 1), (8, 2), (16, 3))  # kernel size and dilation; they span 4, 15 and 46 readings


class Stem(nn.Module):
    """Embeds each value together with three causal convolutions over the past of its variable."""

    positions: Tensor

    def __init__(self, variables: int, window: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(variables, variables, size, dilation=dilation, groups=variables)
            for size, dilation in CONVOLUTIONS
        )
        self.mix = nn.Linear(1 + len(CONVOLUTIONS), dim)
        self.register_buffer("positions", sinusoid(window, dim)[:, None], persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, windows: Tensor) -> Tensor:
        """Embeddings (window, time, variable, dim)."""
        by_variable = windows.transpose(1, 2)
        views = [by_variable]
        for convolution, (size, dilation) in zip(self.convolutions, CONVOLUTIONS, strict=True):
            views.append(convolution(functional.pad(by_variable, ((size - 1) * dilation, 0))))
        embedded: Tensor = self.dropout(self.mix(torch.stack(views, dim=-1).transpose(1, 2)) + self.positions)
        return embedded


class WideAttention(nn.Module):
    """Multi-head attention over the second-to-last axis, with heads as wide as the model."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.joint = nn.Linear(dim, 3 * heads * dim, bias=False)
        self.out = nn.Linear(heads * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Self-attention over tokens (..., token, dim)."""
        query, key, value = self.joint(x).unflatten(-1, (3, self.heads, -1)).movedim(-2, -4).unbind(-2)
        weights = self.dropout(torch.softmax(query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5, dim=-1))
        attended: Tensor = self.out((weights @ value).movedim(-3, -2).flatten(-2))
        return attended


class DualAttention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.variables, self.times = WideAttention(dim, heads, dropout), WideAttention(dim, heads, dropout)

    def over_variables(self, x: Tensor) -> Tensor:
        attended: Tensor = self.variables(x)
        return attended

    def over_time(self, x: Tensor) -> Tensor:
        attended: Tensor = self.times(x.transpose(1, 2)).transpose(1, 2)
        return attended


class Parallel(DualAttention):
    """VTT-PAT: both kinds of attention see the same input, and their outputs are mixed."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__(dim, heads, dropout)
        self.norm, self.mix = nn.LayerNorm(dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        mixed: Tensor = self.mix(torch.cat([self.over_variables(normed), self.over_time(normed)], dim=-1))
        return x + mixed


class Serial(DualAttention):
    """VTT-SAT: attention over variables, then over time, then a feed-forward network.

    As published, that network gets the output of the attention over time, without the residual.
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__(dim, heads, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.inner, self.outer = nn.Linear(dim, 8 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_variables(self.norms[0](x))
        over_time = self.over_time(self.norms[1](x))
        value, gate = self.inner(self.norms[2](over_time)).chunk(2, dim=-1)
        fed: Tensor = self.outer(self.dropout(value * functional.gelu(gate)))
        return x + over_time + fed


BLOCKS: dict[str, type[Parallel] | type[Serial]] = {"parallel": Parallel, "serial": Serial}


class VariableTemporal(WindowNetwork):
    def __init__(self, variables: int, sizes: "Vtt") -> None:
        super().__init__()
        block = BLOCKS[sizes.attention]
        self.stem = Stem(variables, sizes.window, sizes.dim, sizes.dropout)
        self.layers = nn.Sequential(*(block(sizes.dim, sizes.heads, sizes.dropout) for _ in range(sizes.layers)))
        self.output = nn.Linear(variables * sizes.dim, variables)

    def forward(self, windows: Tensor) -> Tensor:
        reconstruction = self.output(self.layers(self.stem(windows)).flatten(2))
        errors: Tensor = (reconstruction - windows) ** 2
        return errors

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        return torch.mean(self(windows))

    def score(self, windows: Tensor) -> Tensor:
        return torch.mean(self(windows), dim=2)


@dataclass(kw_only=True, eq=False, repr=False)
class Vtt(DeepBaseline):
    """VTT with "parallel" (VTT-PAT) or "serial" (VTT-SAT) attention.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.vtt import Vtt
    >>> wave = np.sin(np.arange(600) / 4)[:, None]
    >>> tiny = Vtt(window=20, window_stride=10, dim=8, heads=2, layers=1, schedule=OneCycle(20))
    >>> tiny.fit(wave).decision_function(wave).shape
    (600,)
    """

    choices: ClassVar[dict[str, Collection[str]]] = {"attention": tuple(BLOCKS)}

    schedule: Schedule = Halving(30, learning_rate=1e-4)
    weight_decay: float = 0.01
    attention: str = "parallel"
    dim: int = 128
    heads: int = 4
    layers: int = 3
    dropout: float = 0.1

    def _network(self, variables: int) -> WindowNetwork:
        return VariableTemporal(variables, self)
