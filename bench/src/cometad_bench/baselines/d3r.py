"""D3R: removes a drifting trend and reconstructs the rest from noise in one diffusion step (NeurIPS 2023)."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from scipy.ndimage import median_filter
from torch import Tensor, nn
from torch.nn import functional

from cometad.arrays import Array, Floats32
from cometad.errors import InputError
from cometad.network.schedules import Halving, Schedule
from cometad.parameters import require
from cometad.saving import Table, arrays
from cometad.series import Series
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork, in_heads, sinusoid

MARKS = 5  # minute, hour, weekday, day of the month, month
SHIFT = 30  # maximum shift of the stable part, in time steps
NOISE_STEPS, NOISE_STEP = 1000, 500  # steps of the diffusion, and the step used


def time_marks(times: Array) -> Array:
    """Minute, hour, weekday, day and month of times (time,), each scaled to [-0.5, 0.5], as (time, 5)."""
    days, months = times.astype("datetime64[D]"), times.astype("datetime64[M]")
    minutes = (times - days).astype("timedelta64[m]").astype(int)
    marks = (
        minutes % 60 / 59,
        minutes // 60 / 23,
        (days.astype(int) + 3) % 7 / 6,  # day 0 was a Thursday
        (days - months).astype(int) / 30,
        months.astype(int) % 12 / 11,
    )
    return np.stack(marks, axis=1) - 0.5


def nearest_offset(windows: Tensor, stable: Tensor, shift: int = SHIFT) -> Tensor:
    """The difference between windows and their stable part, which may be shifted by up to `shift` steps.

    Each value gets its smallest difference over all shifts. The stable part is extended by its end values.
    """
    ends = functional.pad(stable.transpose(1, 2), (shift, shift), mode="replicate")
    offsets = windows.transpose(1, 2)[..., None] - ends.unfold(2, 2 * shift + 1, 1)  # (window, variable, time, shift)
    chosen = offsets.abs().argmin(dim=3, keepdim=True)
    return offsets.gather(3, chosen).squeeze(3).transpose(1, 2)


def noisy(windows: Tensor, trend: Tensor, noise: Tensor) -> Tensor:
    """Windows halfway through a diffusion toward noise around the trend."""
    kept = float(np.prod(1 - np.linspace(1e-4, 0.02, NOISE_STEPS)[: NOISE_STEP + 1]))
    return math.sqrt(kept) * windows + (1 - math.sqrt(kept)) * trend + math.sqrt(1 - kept) * noise


class TokenAttention(nn.Module):
    """Multi-head attention over tokens; weights and values may come from different tokens."""

    def __init__(self, size: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(size, dim) for _ in range(3))
        self.out = nn.Linear(dim, size)

    def logits(self, x: Tensor) -> Tensor:
        """The attention logits (window, head, token, token)."""
        query, key = (in_heads(layer(x), self.heads) for layer in (self.query, self.key))
        return torch.matmul(query, key.transpose(2, 3)) / math.sqrt(query.shape[3])

    def apply_weights(self, weights: Tensor, x: Tensor) -> Tensor:
        """The weighted values of tokens x (window, token, size)."""
        output: Tensor = self.out((weights @ in_heads(self.value(x), self.heads)).transpose(1, 2).flatten(2))
        return output

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_weights(torch.softmax(self.logits(x), dim=-1), x)


class Feed(nn.Module):
    def __init__(self, dim: int, feed_dim: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, feed_dim), nn.GELU(), nn.Linear(feed_dim, dim))
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.norm(x + self.dropout(self.layers(x)))
        return fed


class Temporal(nn.Module):
    def __init__(self, dim: int, heads: int, feed_dim: int, dropout: float, *, token: int | None = None) -> None:
        super().__init__()
        self.attention, self.norm = TokenAttention(token or dim, dim, heads), nn.LayerNorm(dim)
        self.feed, self.dropout = Feed(dim, feed_dim, dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.feed(self.norm(x + self.dropout(self._attended(x))))
        return fed

    def _attended(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.attention(x))


class Spatial(Temporal):
    """Attention between the dimensions of the model, each a token as long as the window."""

    def _attended(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.attention(x.transpose(1, 2)).transpose(1, 2))


class SpatialTemporal(nn.Module):
    def __init__(self, window: int, dim: int, heads: int, feed_dim: int, dropout: float) -> None:
        super().__init__()
        self.temporal = Temporal(dim, heads, feed_dim, dropout)
        self.spatial = Spatial(dim, heads, feed_dim, dropout, token=window)
        self.join = nn.Sequential(
            nn.LayerNorm(2 * dim),
            nn.Linear(2 * dim, feed_dim),
            nn.GELU(),
            nn.Linear(feed_dim, dim),
            nn.Dropout(dropout),
            nn.LayerNorm(dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = self.join(torch.cat([self.temporal(x), self.spatial(x)], dim=2))
        return joined


class Split(NamedTuple):
    data: Tensor  # (window, time, dim), the remainder
    stable: Tensor  # (window, time, variable), the stable part found in this step


class Decompose(nn.Module):
    """Extracts the part of the data that follows the calendar: weights from data and time, values from time alone."""

    def __init__(self, variables: int, dim: int, heads: int, feed_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.data_query, self.data_key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.time, self.time_norm = TokenAttention(dim, dim, heads), nn.LayerNorm(dim)
        self.temporal, self.norm = Temporal(dim, heads, feed_dim, dropout), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.stable = nn.Sequential(nn.Linear(dim, feed_dim), nn.GELU(), nn.Linear(feed_dim, variables))

    def forward(self, data: Tensor, time: Tensor) -> Split:
        """Split data (window, time, dim) by its time embedding (window, time, dim)."""
        query, key = (in_heads(layer(data), self.heads) for layer in (self.data_query, self.data_key))
        logits = query @ key.transpose(2, 3) / query.shape[3] ** 0.5 + self.time.logits(time)
        mixed = self.time_norm(self.dropout(self.time.apply_weights(torch.softmax(logits, dim=-1), time)))
        extracted = self.temporal(mixed)
        return Split(self.norm(data - extracted), self.stable(extracted))


class D3rOutput(NamedTuple):
    stable: Tensor  # (window, time, variable)
    windows: Tensor  # (window, time, variable)


def _dropouts(sizes: "D3r") -> list[float]:
    """The dropout of each block in a stack; the last block has none."""
    return [sizes.dropout] * (sizes.blocks - 1) + [0.0]


def _spatial_temporal(sizes: "D3r") -> nn.Sequential:
    shape = (sizes.window, sizes.dim, sizes.heads, sizes.feed_dim)
    return nn.Sequential(*(SpatialTemporal(*shape, dropout) for dropout in _dropouts(sizes)))


class Embedded(nn.Module):
    positions: Tensor

    def __init__(self, variables: int, sizes: "D3r") -> None:
        super().__init__()
        self.data, self.marks = nn.Linear(variables, sizes.dim), nn.Linear(MARKS, sizes.dim)
        self.position_norm, self.mark_norm = nn.LayerNorm(sizes.dim), nn.LayerNorm(sizes.dim)
        self.register_buffer("positions", sinusoid(sizes.window, sizes.dim), persistent=False)


class Decomposition(Embedded):
    def __init__(self, variables: int, sizes: "D3r") -> None:
        super().__init__(variables, sizes)
        self.data_blocks = _spatial_temporal(sizes)
        shape = (sizes.dim, sizes.heads, sizes.feed_dim)
        self.time_blocks = nn.Sequential(*(Temporal(*shape, dropout) for dropout in _dropouts(sizes)))
        self.steps = nn.ModuleList(Decompose(variables, *shape, dropout) for dropout in _dropouts(sizes))

    def forward(self, windows: Tensor, marks: Tensor) -> Tensor:
        data = self.data_blocks(self.data(windows) + self.position_norm(self.positions))
        time = self.time_blocks(self.mark_norm(self.marks(marks)))
        stable = torch.zeros_like(windows)
        for step in self.steps:
            data, part = step(data, time)
            stable = stable + part
        return stable


class Reconstruction(Embedded):
    def __init__(self, variables: int, sizes: "D3r") -> None:
        super().__init__(variables, sizes)
        self.blocks = _spatial_temporal(sizes)
        self.output = nn.Linear(sizes.dim, variables)

    def forward(self, windows: Tensor, trend: Tensor, marks: Tensor) -> Tensor:
        level = self.data(trend)
        position = self.position_norm(self.positions) + self.mark_norm(self.marks(marks))
        reconstruction: Tensor = self.output(self.blocks(self.data(windows) - level + position) + level)
        return reconstruction


class Diffusion(WindowNetwork):
    """Decomposition, then reconstruction. Windows include time marks and, in training, the stable target."""

    noise: Tensor

    def __init__(self, variables: int, sizes: "D3r") -> None:
        super().__init__()
        self.variables, self.disturbance = variables, sizes.disturbance
        self.decomposition, self.reconstruction = Decomposition(variables, sizes), Reconstruction(variables, sizes)
        # Stored with the network, so that scores are reproducible.
        self.register_buffer("noise", torch.randn(sizes.draws, sizes.window, variables))

    def forward(self, windows: Tensor, marks: Tensor, noises: list[Tensor]) -> list[D3rOutput]:
        stable = self.decomposition(windows, marks)
        trend = nearest_offset(windows, stable).mean(dim=1, keepdim=True)
        return [
            D3rOutput(stable, self.reconstruction(noisy(windows, trend, noise), trend.expand_as(windows), marks))
            for noise in noises
        ]

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The mean of the errors of the stable part and of the reconstruction, with a random level added to windows."""
        values, marks, target = windows.split([self.variables, MARKS, self.variables], dim=2)  # type: ignore[no-untyped-call]
        level = self.disturbance * torch.rand_like(values[:, :1])
        output = self(values + level, marks, [torch.randn_like(values)])[0]
        return (functional.mse_loss(output.stable, target) + functional.mse_loss(output.windows - level, values)) / 2

    def score(self, windows: Tensor) -> Tensor:
        values, marks = windows[..., : self.variables], windows[..., self.variables :]
        outputs = self(values, marks, list(self.noise))
        errors = torch.stack([(output.windows - values) ** 2 for output in outputs])
        return errors.mean(dim=(0, 3))


@dataclass(kw_only=True, eq=False, repr=False)
class D3r(DeepBaseline):
    """D3R: dynamic decomposition with diffusion reconstruction.

    `period` is the length of the daily cycle in readings. The centered median over one period is treated as drift and
    removed from the target of the stable part. Timestamps are used if the series given to `fit` had them; otherwise one
    reading per minute is assumed.

    Departures from the public code: consecutive windows are scored at every time step, not every window at its last
    step; noise is sampled once and stored, and errors are averaged over `draws` samples; the ends of the series are
    kept, with the median padded by the end values; the month mark runs from 0 to 11 instead of being divided by 365.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.d3r import D3r
    >>> wave = np.sin(np.arange(600) / 4)[:, None]
    >>> tiny = D3r(window=20, window_stride=10, dim=8, heads=2, feed_dim=8, period=50, schedule=OneCycle(20))
    >>> tiny.fit(wave).decision_function(wave).shape
    (600,)
    """

    saved: ClassVar[Table] = {**arrays(timed_=(1,), dtype=np.bool_), **DeepBaseline.saved}

    schedule: Schedule = Halving(30, learning_rate=1e-4)
    weight_decay: float = 1e-4
    period: int = 1440
    dim: int = 512
    heads: int = 8
    feed_dim: int = 2048
    blocks: int = 2
    dropout: float = 0.6
    disturbance: float = 10.0
    draws: int = 4

    def check_parameters(self) -> None:
        super().check_parameters()
        require(self.dim % self.heads == 0, "dim", f"a multiple of the number of heads ({self.heads})", self.dim)

    def _network(self, variables: int) -> WindowNetwork:
        return Diffusion(variables, self)

    def _features(self, scaled: Floats32, series: Series, training: bool) -> Floats32:
        if training:
            self.timed_ = np.array([series.times is not None])
        marks = time_marks(self._times(series)).astype(np.float32)
        if not training:
            return np.concatenate([scaled, marks], axis=1)
        size = min(self.period, len(scaled))
        drift = np.stack([median_filter(column, size, mode="nearest") for column in scaled.T], axis=1)
        return np.concatenate([scaled, marks, scaled - drift], axis=1)

    def _feature_count(self, variables: int) -> int:
        return 2 * variables + MARKS

    def _times(self, series: Series) -> Array:
        if not self.timed_[0]:
            return np.arange(len(series)).astype("datetime64[m]")
        if series.times is None:
            raise InputError("The detector was fitted with timestamps, but this series has none.", advice="no times")
        return series.times
