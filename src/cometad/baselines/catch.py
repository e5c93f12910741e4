"""CATCH: patches of frequencies, in each of which channels attend to those that a learned mask lets in (ICLR 2025)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from cometad.baselines.deep import DeepBaseline, WindowNetwork
from cometad.network.loop import ParameterGroup
from cometad.network.schedules import Halving, Schedule
from cometad.validation import require

CLOSED = -math.log(1e10)  # the logit of a channel that the mask keeps out
COSINE_TEMPERATURE, SPARSITY = 0.07, 0.5  # of the loss that teaches the mask, as published
MASK_TURNS = 10  # steps of the mask in an epoch, as published
MASK_RATE = 0.1  # its learning rate, as a share of the others'


class ChannelMask(nn.Module):
    """Which channels a channel listens to, drawn anew in training and the likelier choice afterwards."""

    def __init__(self, size: int, variables: int) -> None:
        super().__init__()
        self.logits = nn.Linear(size, variables, bias=False)
        nn.init.zeros_(self.logits.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """A mask (patch, channel, channel) of 0 and 1 from tokens (patch, channel, size); gradients pass straight."""
        logits = self.logits(tokens)
        if self.training:
            chance = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            logits = logits + chance.log() - (1 - chance).log()
        likely = torch.sigmoid(logits)
        hard = (likely >= 0.5).to(likely) + (likely - likely.detach())  # exactly 0 or 1
        own = torch.eye(logits.shape[-1], device=logits.device)
        return torch.where(own > 0, own, hard)


class Listened(NamedTuple):
    """What one layer of masked attention gives."""

    tokens: Tensor  # (patch, channel, dim)
    cosine: Tensor  # (patch, channel, channel) of queries and keys, a mean over heads


class MaskedAttention(nn.Module):
    """Attention among channels that a mask lets in."""

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, heads * head_dim, bias=False) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(heads * head_dim, dim), nn.Dropout(dropout))

    def forward(self, tokens: Tensor, mask: Tensor) -> Listened:
        """What channels take from those that they listen to."""
        query, key, value = (
            layer(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        products = query @ key.transpose(2, 3)  # (patch, head, channel, channel)
        open_ = mask[:, None]
        logits = products / query.shape[3] ** 0.5 * open_ + torch.where(open_ == 0, CLOSED, 0.0)
        taken = torch.softmax(logits, dim=-1) @ value
        lengths = query.norm(dim=3, keepdim=True) * key.norm(dim=3)[:, :, None]
        cosine = (products / lengths.clamp(min=1e-8)).mean(dim=1)
        return Listened(self.out(taken.transpose(1, 2).flatten(2)), cosine)


class Layer(nn.Module):
    """Masked attention and a network per channel, each normalized before and with a residual."""

    def __init__(self, dim: int, heads: int, head_dim: int, feed_dim: int, dropout: float) -> None:
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = MaskedAttention(dim, heads, head_dim, dropout)
        self.feed = nn.Sequential(
            nn.Linear(dim, feed_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(feed_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> Listened:
        """The next tokens, and the cosines of this layer."""
        taken, cosine = self.attention(self.before_attention(tokens), mask)
        tokens = tokens + taken
        return Listened(tokens + self.feed(self.before_feed(tokens)), cosine)


def mask_loss(cosine: Tensor, mask: Tensor) -> Tensor:
    """Low where the mask lets in the channels that are alike, and few others.

    >>> import torch
    >>> from cometad.baselines.catch import mask_loss
    >>> alike = torch.ones(1, 2, 2)
    >>> bool(mask_loss(alike, torch.ones(1, 2, 2)) < mask_loss(alike, torch.eye(2)[None]))
    True
    """
    weights = (cosine / COSINE_TEMPERATURE).exp()
    kept = -((weights * mask).sum(dim=-1) / weights.sum(dim=-1)).log()
    channels = mask.shape[-1]
    others = (mask - torch.eye(channels, device=mask.device)).abs().sum(dim=(1, 2)) / max(1, channels * (channels - 1))
    return kept.mean() + SPARSITY * others.mean()


class FlattenHead(nn.Module):
    """From all patches of a channel to one number per frequency: three residual layers and a linear one."""

    def __init__(self, size: int, frequencies: int, dropout: float) -> None:
        super().__init__()
        self.residual = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.output, self.dropout = nn.Linear(size, frequencies), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(window, channel, size) to (window, channel, frequency)."""
        for layer in self.residual:
            x = x + torch.relu(layer(x))
        rebuilt: Tensor = self.dropout(self.output(x))
        return rebuilt


class Rebuilt(NamedTuple):
    """What the network makes of windows."""

    windows: Tensor  # (window, time, variable)
    spectrum_error: Tensor  # () mean distance of the frequencies
    mask_loss: Tensor  # () a mean over layers


@dataclass(frozen=True)
class Sizes:
    """The sizes of the network."""

    window: int
    patch: int
    stride: int
    channel_dim: int
    heads: int
    head_dim: int
    feed_dim: int
    dim: int
    layers: int
    score_patch: int

    @property
    def patches(self) -> int:
        """How many patches the frequencies give."""
        return (self.window - self.patch) // self.stride + 1


class FrequencyPatches(WindowNetwork):
    """Normalized windows to frequencies, to patches, through the channels' layers, and all the way back."""

    cover: Tensor

    def __init__(
        self, variables: int, sizes: Sizes, dropout: float, head_dropout: float, weights: tuple[float, float, float]
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.spectrum_weight, self.mask_weight, self.score_weight = weights
        token = 2 * sizes.patch  # real and imaginary parts
        self.mask = ChannelMask(token, variables)
        self.embedding = nn.Sequential(nn.Linear(token, sizes.channel_dim), nn.Dropout(dropout))
        shape = (sizes.channel_dim, sizes.heads, sizes.head_dim, sizes.feed_dim, dropout)
        self.layers = nn.ModuleList(Layer(*shape) for _ in range(sizes.layers))
        self.widen = nn.Linear(sizes.channel_dim, 2 * sizes.dim)
        self.parts = nn.ModuleList(nn.Linear(2 * sizes.dim, 2 * sizes.dim) for _ in range(2))
        self.heads = nn.ModuleList(
            FlattenHead(2 * sizes.dim * sizes.patches, sizes.window, head_dropout) for _ in range(2)
        )
        self.output = nn.Linear(2 * sizes.window, sizes.window)
        self.register_buffer("cover", _cover(sizes.window, min(sizes.score_patch, sizes.window)), persistent=False)

    def forward(self, windows: Tensor) -> Rebuilt:
        """Windows rebuilt, and the parts of the loss that are no errors of theirs."""
        center = windows.mean(dim=1, keepdim=True)
        unit = (windows.var(dim=1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        spectrum = torch.fft.fft(((windows - center) / unit).transpose(1, 2))  # (window, channel, frequency)
        tokens, shape = self._tokens(spectrum)
        mask = self.mask(tokens)
        x, losses = self.embedding(tokens), []
        for layer in self.layers:
            x, cosine = layer(x, mask)
            losses.append(mask_loss(cosine, mask))
        rebuilt = self._spectrum(self.widen(x).unflatten(0, shape))
        back = torch.fft.ifft(rebuilt)
        values = self.output(torch.cat([back.real, back.imag], dim=-1)).transpose(1, 2)
        return Rebuilt(values * unit + center, (rebuilt - spectrum).abs().mean(), torch.stack(losses).mean())

    def _tokens(self, spectrum: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(window * patch, channel, 2 * patch size), and the shape (window, patch) of their first axis."""
        cut = [part.unfold(2, self.sizes.patch, self.sizes.stride) for part in (spectrum.real, spectrum.imag)]
        tokens = torch.cat(cut, dim=3).transpose(1, 2)  # (window, patch, channel, both parts)
        return tokens.flatten(0, 1), (tokens.shape[0], tokens.shape[1])

    def _spectrum(self, x: Tensor) -> Tensor:
        """The frequencies (window, channel, frequency) behind (window, patch, channel, dim)."""
        real, imaginary = (
            head(part(x).transpose(1, 2).flatten(2)) for part, head in zip(self.parts, self.heads, strict=True)
        )
        return torch.complex(real, imaginary)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """Errors in time, errors in frequency, and what teaches the mask."""
        rebuilt: Rebuilt = self(windows)
        return (
            functional.mse_loss(rebuilt.windows, windows)
            + self.spectrum_weight * rebuilt.spectrum_error
            + self.mask_weight * rebuilt.mask_loss
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        """The mask learns more slowly and less often than the rest."""
        mask = list(self.mask.parameters())
        rest = [parameter for name, parameter in self.named_parameters() if not name.startswith("mask.")]
        return [
            ParameterGroup(rest, self.loss),
            ParameterGroup(mask, self.loss, rate_factor=MASK_RATE, steps_per_epoch=MASK_TURNS),
        ]

    def score(self, windows: Tensor) -> Tensor:
        """The error in time, and the error in frequency of the short patches over a time step."""
        errors: Tensor = self(windows).windows - windows
        size = min(self.sizes.score_patch, self.sizes.window)
        # The transform is linear: the difference of two spectra is the spectrum of the difference.
        patches = errors.transpose(1, 2).unfold(2, size, 1)
        spectra: Tensor = torch.fft.fft(patches).abs().mean(dim=3)  # (window, channel, patch)
        return torch.mean(errors**2, dim=2) + self.score_weight * spectra.mean(dim=1) @ self.cover.T


@dataclass(kw_only=True, eq=False, repr=False)
class Catch(DeepBaseline):
    """CATCH with the sizes that are its code's defaults.

    Departures from the public code, where it does what its paper does not say: no one-cycle schedule that is built and
    never stepped; the mask keeps its own learning rate in every epoch; a mask that is scored with is not drawn but the
    likelier choice, so that scores are the same every time; the mask steps along the gradient of its batch alone; every
    time step has a score.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad.baselines.catch import Catch
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require(self.patch_size <= self.window, "patch_size", f"at most the window ({self.window})", self.patch_size)
        require(self.head_dropout < 1, "head_dropout", "below 1", self.head_dropout)

    def _network(self, variables: int) -> WindowNetwork:
        sizes = Sizes(
            self.window,
            self.patch_size,
            self.patch_stride,
            self.channel_dim,
            self.heads,
            self.head_dim,
            self.feed_dim,
            self.dim,
            self.layers,
            self.score_patch,
        )
        weights = (self.spectrum_weight, self.mask_weight, self.spectrum_score_weight)
        return FrequencyPatches(variables, sizes, self.dropout, self.head_dropout, weights)


def _cover(window: int, size: int) -> Tensor:
    """For each time step the share of each patch over it, (time, patch); patches begin at every step."""
    steps, starts = torch.arange(window)[:, None], torch.arange(window - size + 1)
    over = ((starts <= steps) & (steps < starts + size)).float()
    return over / over.sum(dim=1, keepdim=True)
