"""CATCH: patches in the frequency domain, with attention between channels under a learned mask (ICLR 2025)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from cometad.network.schedules import Halving, Schedule
from cometad.parameters import require
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork, in_heads
from cometad_bench.baselines.loop import ParameterGroup

CLOSED = -math.log(1e10)  # logit of a masked channel
COSINE_TEMPERATURE, SPARSITY = 0.07, 0.5  # of the mask loss, as published
MASK_TURNS = 10  # mask updates per epoch, as published
MASK_RATE = 0.1  # learning rate of the mask, relative to the other parameters


class ChannelMask(nn.Module):
    """Which channels a channel attends to: sampled during training, the more likely choice afterwards."""

    def __init__(self, size: int, variables: int) -> None:
        super().__init__()
        self.logits = nn.Linear(size, variables, bias=False)
        nn.init.zeros_(self.logits.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """A 0/1 mask (patch, channel, channel) from tokens (patch, channel, size), with straight-through gradients."""
        logits = self.logits(tokens)
        if self.training:
            uniform = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            logits = logits + uniform.log() - (1 - uniform).log()
        soft = torch.sigmoid(logits)
        hard = (soft >= 0.5).to(soft) + (soft - soft.detach())  # exactly 0 or 1
        own = torch.eye(logits.shape[-1], device=logits.device)
        return torch.where(own > 0, own, hard)


class Attended(NamedTuple):
    tokens: Tensor  # (patch, channel, dim)
    cosine: Tensor  # (patch, channel, channel) between queries and keys, averaged over heads


class MaskedAttention(nn.Module):
    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, heads * head_dim, bias=False) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(heads * head_dim, dim), nn.Dropout(dropout))

    def forward(self, tokens: Tensor, mask: Tensor) -> Attended:
        query, key, value = (in_heads(layer(tokens), self.heads) for layer in (self.query, self.key, self.value))
        products = query @ key.transpose(2, 3)  # (patch, head, channel, channel)
        open_ = mask[:, None]
        logits = products / query.shape[3] ** 0.5 * open_ + torch.where(open_ == 0, CLOSED, 0.0)
        attended = torch.softmax(logits, dim=-1) @ value
        lengths = query.norm(dim=3, keepdim=True) * key.norm(dim=3)[:, :, None]
        cosine = (products / lengths.clamp(min=1e-8)).mean(dim=1)
        return Attended(self.out(attended.transpose(1, 2).flatten(2)), cosine)


class ChannelLayer(nn.Module):
    def __init__(self, sizes: "Catch") -> None:
        super().__init__()
        dim, feed_dim, drop = sizes.channel_dim, sizes.feed_dim, nn.Dropout(sizes.dropout)
        self.before_attention, self.before_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = MaskedAttention(dim, sizes.heads, sizes.head_dim, sizes.dropout)
        self.feed = nn.Sequential(nn.Linear(dim, feed_dim), nn.GELU(), drop, nn.Linear(feed_dim, dim), drop)

    def forward(self, tokens: Tensor, mask: Tensor) -> Attended:
        attended, cosine = self.attention(self.before_attention(tokens), mask)
        tokens = tokens + attended
        return Attended(tokens + self.feed(self.before_feed(tokens)), cosine)


def mask_loss(cosine: Tensor, mask: Tensor) -> Tensor:
    """A loss that is low if the mask admits similar channels and few others."""
    weights = (cosine / COSINE_TEMPERATURE).exp()
    kept = -((weights * mask).sum(dim=-1) / weights.sum(dim=-1)).log()
    channels = mask.shape[-1]
    others = (mask - torch.eye(channels, device=mask.device)).abs().sum(dim=(1, 2)) / max(1, channels * (channels - 1))
    return kept.mean() + SPARSITY * others.mean()


class FlattenHead(nn.Module):
    def __init__(self, size: int, frequencies: int, dropout: float) -> None:
        super().__init__()
        self.residual = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.output, self.dropout = nn.Linear(size, frequencies), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(window, channel, size) to (window, channel, frequency)."""
        for layer in self.residual:
            x = x + torch.relu(layer(x))
        spectrum: Tensor = self.dropout(self.output(x))
        return spectrum


class CatchOutput(NamedTuple):
    windows: Tensor  # (window, time, variable)
    spectrum_error: Tensor  # () mean absolute error of the spectrum
    mask_loss: Tensor  # () averaged over layers


class FrequencyPatches(WindowNetwork):
    """Transforms normalized windows to frequency patches, passes them through channel layers, and transforms back."""

    cover: Tensor

    def __init__(self, variables: int, sizes: "Catch") -> None:
        super().__init__()
        self.size, self.stride = sizes.patch_size, sizes.patch_stride
        self.score_patch = min(sizes.score_patch, sizes.window)
        self.spectrum_weight, self.mask_weight = sizes.spectrum_weight, sizes.mask_weight
        self.score_weight = sizes.spectrum_score_weight
        token = 2 * self.size  # real and imaginary parts
        self.mask = ChannelMask(token, variables)
        self.embedding = nn.Sequential(nn.Linear(token, sizes.channel_dim), nn.Dropout(sizes.dropout))
        self.layers = nn.ModuleList(ChannelLayer(sizes) for _ in range(sizes.layers))
        self.widen = nn.Linear(sizes.channel_dim, 2 * sizes.dim)
        self.parts = nn.ModuleList(nn.Linear(2 * sizes.dim, 2 * sizes.dim) for _ in range(2))
        patches = (sizes.window - self.size) // self.stride + 1
        self.heads = nn.ModuleList(
            FlattenHead(2 * sizes.dim * patches, sizes.window, sizes.head_dropout) for _ in range(2)
        )
        self.output = nn.Linear(2 * sizes.window, sizes.window)
        self.register_buffer("cover", _cover(sizes.window, self.score_patch), persistent=False)

    def forward(self, windows: Tensor) -> CatchOutput:
        center = windows.mean(dim=1, keepdim=True)
        unit = (windows.var(dim=1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        spectrum = torch.fft.fft(((windows - center) / unit).transpose(1, 2))  # (window, channel, frequency)
        tokens, shape = self._tokens(spectrum)
        mask = self.mask(tokens)
        x, losses = self.embedding(tokens), []
        for layer in self.layers:
            x, cosine = layer(x, mask)
            losses.append(mask_loss(cosine, mask))
        reconstructed = self._spectrum(self.widen(x).unflatten(0, shape))
        back = torch.fft.ifft(reconstructed)
        values = self.output(torch.cat([back.real, back.imag], dim=-1)).transpose(1, 2)
        return CatchOutput(values * unit + center, (reconstructed - spectrum).abs().mean(), torch.stack(losses).mean())

    def _tokens(self, spectrum: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (window * patch, channel, 2 * patch size), and the shape (window, patch) of their first axis."""
        cut = [part.unfold(2, self.size, self.stride) for part in (spectrum.real, spectrum.imag)]
        tokens = torch.cat(cut, dim=3).transpose(1, 2)  # (window, patch, channel, real and imaginary)
        return tokens.flatten(0, 1), (tokens.shape[0], tokens.shape[1])

    def _spectrum(self, x: Tensor) -> Tensor:
        """The spectrum (window, channel, frequency) from tokens (window, patch, channel, dim)."""
        real, imaginary = (
            head(part(x).transpose(1, 2).flatten(2)) for part, head in zip(self.parts, self.heads, strict=True)
        )
        return torch.complex(real, imaginary)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        output: CatchOutput = self(windows)
        return (
            functional.mse_loss(output.windows, windows)
            + self.spectrum_weight * output.spectrum_error
            + self.mask_weight * output.mask_loss
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        mask = list(self.mask.parameters())
        rest = [parameter for name, parameter in self.named_parameters() if not name.startswith("mask.")]
        return [
            ParameterGroup(rest, self.loss),
            ParameterGroup(mask, self.loss, rate_factor=MASK_RATE, steps_per_epoch=MASK_TURNS),
        ]

    def score(self, windows: Tensor) -> Tensor:
        """The error in time plus the frequency error of the short patches that cover a time step."""
        errors: Tensor = self(windows).windows - windows
        # The Fourier transform is linear: the difference of two spectra is the spectrum of the difference.
        patches = errors.transpose(1, 2).unfold(2, self.score_patch, 1)
        spectra: Tensor = torch.fft.fft(patches).abs().mean(dim=3)  # (window, channel, patch)
        return torch.mean(errors**2, dim=2) + self.score_weight * spectra.mean(dim=1) @ self.cover.T


@dataclass(kw_only=True, eq=False, repr=False)
class Catch(DeepBaseline):
    """CATCH with the default sizes of its public code.

    Departures from the public code where it differs from the paper: no one-cycle schedule (the code builds one but
    never steps it); the mask keeps its own learning rate in every epoch; scoring uses the more likely mask instead of
    sampling, so scores are reproducible; the mask follows the gradient of its own batch only; every time step gets a
    score.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.catch import Catch
    >>> wave = np.sin(np.arange(600) / 4)[:, None] * [1.0, 2.0]
    >>> sizes = {"channel_dim": 8, "head_dim": 4, "feed_dim": 8, "dim": 4, "layers": 1, "patch_size": 8}
    >>> tiny = Catch(window=20, window_stride=10, schedule=OneCycle(20), **sizes)
    >>> tiny.fit(wave).decision_function(wave).shape
    (600,)
    """

    schedule: Schedule = Halving(30, learning_rate=1e-4)
    patch_size: int = 16
    patch_stride: int = 8
    channel_dim: int = 64
    heads: int = 2
    head_dim: int = 64
    feed_dim: int = 256
    dim: int = 128
    layers: int = 3
    dropout: float = 0.2
    head_dropout: float = 0.1
    spectrum_weight: float = 0.005
    mask_weight: float = 0.005
    spectrum_score_weight: float = 0.05
    score_patch: int = 32

    def check_parameters(self) -> None:
        super().check_parameters()
        require(self.patch_size <= self.window, "patch_size", f"at most the window ({self.window})", self.patch_size)
        require(self.head_dropout < 1, "head_dropout", "below 1", self.head_dropout)

    def _network(self, variables: int) -> WindowNetwork:
        return FrequencyPatches(variables, self)


def _cover(window: int, size: int) -> Tensor:
    """Averaging weights (time, patch) of the patches that cover each time step; a patch starts at every step."""
    steps, starts = torch.arange(window)[:, None], torch.arange(window - size + 1)
    over = ((starts <= steps) & (steps < starts + size)).float()
    return over / over.sum(dim=1, keepdim=True)
