"""Anomaly Transformer: anomalies attend to their neighbors, normal readings to the whole window (Xu, ICLR 2022)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cometad.network.schedules import Halving, Schedule
from cometad.parameters import require
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork, sinusoid


class Associations(NamedTuple):
    """Which time steps each time step attends to: (window, head, time, time), with rows that sum to 1."""

    series: Tensor  # from attention
    prior: Tensor  # from distance in time


def gaussian_prior(widths: Tensor) -> Tensor:
    """Weights (..., time, time) that decay with distance in time, from widths (..., time); rows sum to 1."""
    steps = torch.arange(widths.shape[-1], device=widths.device)
    squared = (steps[:, None] - steps) ** 2
    # A softmax, because normalizing the rows cancels the factor of the Gaussian, and a softmax cannot overflow.
    return torch.softmax(-squared / (2 * widths[..., None] ** 2), dim=-1)


def discrepancy(left: Tensor, right: Tensor) -> Tensor:
    """The KL divergence between rows, averaged over heads: (window, head, time, time) to (window, time)."""
    return (left * ((left + 1e-4).log() - (right + 1e-4).log())).sum(dim=-1).mean(dim=1)


def symmetric_discrepancy(left: Tensor, right: Tensor) -> Tensor:
    return discrepancy(left, right) + discrepancy(right, left)


class AnomalyAttention(nn.Module):
    """Attention, with a Gaussian prior of learned width to compare its rows with."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.width = nn.Linear(dim, heads)

    def forward(self, x: Tensor) -> tuple[Tensor, Associations]:
        """The attention output for tokens (window, time, dim), and the associations."""
        query, key, value = (layer(x).unflatten(2, (self.heads, -1)) for layer in (self.query, self.key, self.value))
        logits = torch.einsum("wihd,wjhd->whij", query, key) / query.shape[3] ** 0.5
        series = torch.softmax(logits, dim=-1)
        # Between 0 and 2. The small constant avoids a width of 0, which would divide by zero.
        widths = 3 ** (torch.sigmoid(5 * self.width(x)) + 1e-5) - 1
        attended = torch.einsum("whij,wjhd->wihd", series, value).flatten(2)
        return self.out(attended), Associations(series, gaussian_prior(widths.transpose(1, 2)))


class AnomalyLayer(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = AnomalyAttention(dim, heads)
        self.feed = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(dim, dim), nn.Dropout(dropout)
        )
        self.after_attention, self.after_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Associations]:
        attended, associations = self.attention(x)
        x = self.after_attention(x + self.dropout(attended))
        return self.after_feed(x + self.feed(x)), associations


class TransformerOutput(NamedTuple):
    errors: Tensor  # (window, time), averaged over variables
    layers: list[Associations]


class Transformer(WindowNetwork):
    """An embedding of three neighboring readings, layers of anomaly attention, and a linear output."""

    positions: Tensor

    def __init__(self, variables: int, sizes: "AnomalyTransformer") -> None:
        super().__init__()
        dim = sizes.dim
        self.weight, self.temperature = sizes.discrepancy_weight, sizes.temperature
        self.embedding = nn.Conv1d(variables, dim, 3, padding=1, padding_mode="circular", bias=False)
        nn.init.kaiming_normal_(self.embedding.weight, mode="fan_in", nonlinearity="leaky_relu")
        self.register_buffer("positions", sinusoid(sizes.window, dim), persistent=False)
        self.layers = nn.ModuleList(AnomalyLayer(dim, sizes.heads, sizes.dropout) for _ in range(sizes.layers))
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, variables)

    def forward(self, windows: Tensor) -> TransformerOutput:
        x = self.embedding(windows.transpose(1, 2)).transpose(1, 2) + self.positions
        layers = []
        for layer in self.layers:
            x, associations = layer(x)
            layers.append(associations)
        return TransformerOutput(((self.output(self.norm(x)) - windows) ** 2).mean(dim=2), layers)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """Both phases of the minimax game in one step: the series moves away from the prior, and the prior follows.

        The sum of the published losses, MSE - k * series and MSE + k * prior.
        """
        output: TransformerOutput = self(windows)
        away = torch.stack(
            [symmetric_discrepancy(series, prior.detach()).mean() for series, prior in output.layers]
        ).mean()
        toward = torch.stack(
            [symmetric_discrepancy(prior, series.detach()).mean() for series, prior in output.layers]
        ).mean()
        return 2 * output.errors.mean() - self.weight * away + self.weight * toward

    def validation_loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The reconstruction error alone: the other terms of the two phases cancel."""
        output: TransformerOutput = self(windows)
        return output.errors.mean()

    def score(self, windows: Tensor) -> Tensor:
        """The error, weighted by how local the attention of a time step is compared with the rest of its window."""
        output: TransformerOutput = self(windows)
        discrepancies = torch.stack([symmetric_discrepancy(*layer) for layer in output.layers]).sum(dim=0)
        locality = -self.temperature * discrepancies  # (window, time)
        # In float64: most weights in a window underflow in float32, and scores of 0 cannot be ranked.
        return torch.softmax(locality.double(), dim=1) * output.errors


@dataclass(kw_only=True, eq=False, repr=False)
class AnomalyTransformer(DeepBaseline):
    """Anomaly Transformer as published, except that it never sees test data.

    The public code uses the test loss for early stopping and test scores for its threshold. Here both come from the
    series given to `fit`. The weights within a window sum to 1, so scores are not comparable between windows: this is
    part of the method.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.anomaly_transformer import AnomalyTransformer
    >>> wave = np.sin(np.arange(600) / 4)[:, None]
    >>> tiny = AnomalyTransformer(window=20, window_stride=10, dim=8, heads=2, layers=1, schedule=OneCycle(20))
    >>> tiny.fit(wave).decision_function(wave).shape
    (600,)
    """

    schedule: Schedule = Halving(30, learning_rate=1e-4)
    dim: int = 512
    heads: int = 8
    layers: int = 3
    dropout: float = 0.0
    discrepancy_weight: float = 3.0
    temperature: float = 50.0

    def check_parameters(self) -> None:
        super().check_parameters()
        require(self.dim % self.heads == 0, "dim", f"a multiple of the number of heads ({self.heads})", self.dim)

    def _network(self, variables: int) -> WindowNetwork:
        return Transformer(variables, self)
