"""LSTM-VAE: a variational autoencoder over time (Park et al., 2018), and a simpler model of the same name."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from cometad.network.schedules import Halving, Schedule
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork

LOG_VARIANCE = 6.0  # variances are clamped to [exp(-6), exp(6)]


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """The KL divergence of normal distributions from the standard normal, per dimension."""
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp())


def sampled(mean: Tensor, log_variance: Tensor, training: bool) -> Tensor:
    """Samples from normal distributions in training, their means otherwise."""
    return mean + torch.randn_like(mean) * (log_variance / 2).exp() if training else mean


class StepVae(WindowNetwork):
    """A latent vector per time step, decoded into a normal distribution of the reading, as in Park et al."""

    def __init__(self, variables: int, sizes: "LstmVae") -> None:
        super().__init__()
        hidden, latent = sizes.hidden, sizes.latent
        self.noise = sizes.noise
        self.encoder = nn.LSTM(variables, hidden, batch_first=True)
        self.latent_mean, self.latent_spread = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.LSTM(latent, hidden, batch_first=True)
        self.mean, self.spread = nn.Linear(hidden, variables), nn.Linear(hidden, variables)

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """The negative log-likelihood of each value, and the divergence of each latent dimension."""
        noisy = windows + self.noise * torch.randn_like(windows) if self.training else windows
        hidden, _ = self.encoder(noisy)
        mean, spread = self.latent_mean(hidden), _bounded(self.latent_spread(hidden))
        out, _ = self.decoder(sampled(mean, spread, self.training))
        log_variance = _bounded(self.spread(out))
        surprise = ((windows - self.mean(out)) ** 2 / log_variance.exp() + log_variance + math.log(2 * math.pi)) / 2
        return surprise, divergence(mean, spread)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The negative evidence lower bound (ELBO), averaged over time steps."""
        surprise, divergences = self(windows)
        return torch.sum(surprise, dim=2).mean() + torch.sum(divergences, dim=2).mean()

    def score(self, windows: Tensor) -> Tensor:
        surprise, _ = self(windows)
        return torch.mean(surprise, dim=2)


class WindowVae(WindowNetwork):
    """One latent vector per window, decoded without further input."""

    def __init__(self, variables: int, sizes: "LstmVae") -> None:
        super().__init__()
        hidden, latent, self.layers = sizes.hidden, sizes.latent, sizes.layers
        dropout = sizes.dropout if sizes.layers > 1 else 0.0
        depth = {"num_layers": sizes.layers, "dropout": dropout, "batch_first": True}
        self.encoder = nn.LSTM(variables, hidden, **depth)
        self.latent_mean, self.latent_spread = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.start = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(1, hidden, **depth)
        self.output = nn.Linear(hidden, variables)

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """The squared error of each value, and the divergence of each latent dimension."""
        _, (last, _) = self.encoder(windows)
        mean, spread = self.latent_mean(last[-1]), self.latent_spread(last[-1])
        start = self.start(sampled(mean, spread, self.training)).expand(self.layers, -1, -1).contiguous()
        out, _ = self.decoder(torch.zeros_like(windows[:, :, :1]), (start, torch.zeros_like(start)))
        return (windows - self.output(out)) ** 2, divergence(mean, spread)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        errors, divergences = self(windows)
        return torch.mean(errors) + torch.mean(divergences)

    def score(self, windows: Tensor) -> Tensor:
        errors, _ = self(windows)
        return torch.mean(errors, dim=2)


@dataclass(kw_only=True, eq=False, repr=False)
class LstmVae(DeepBaseline):
    """LSTM-VAE of Park et al., with a latent vector per "step"; `LstmVae.lab()` has one per "window".

    Papers report both models as LSTM-VAE. Paper: a prior that depends on task progress, and a threshold that depends on
    the state. Here: a standard normal prior and one threshold, because a series has no start or end.

    >>> from cometad_bench.baselines.lstm_vae import LstmVae
    >>> LstmVae().latent_per, LstmVae.lab().latent_per
    ('step', 'window')
    """

    choices: ClassVar[dict[str, Collection[str]]] = {"latent_per": ("step", "window")}

    schedule: Schedule = Halving(30, learning_rate=1e-3)
    latent_per: str = "step"
    hidden: int = 128
    latent: int = 32
    noise: float = 0.1  # on the input in training; only for latent_per="step"
    layers: int = 1  # like dropout, only for latent_per="window"
    dropout: float = 0.0

    @classmethod
    def lab(cls, **changes: object) -> "LstmVae":
        """The variant in the framework that most likely produced the paper's baselines."""
        sizes = {"latent_per": "window", "hidden": 64, "latent": 20, "layers": 2, "dropout": 0.3}
        return cls(**{**sizes, **changes})  # type: ignore[arg-type]

    def _network(self, variables: int) -> WindowNetwork:
        return StepVae(variables, self) if self.latent_per == "step" else WindowVae(variables, self)


def _bounded(log_variance: Tensor) -> Tensor:
    return log_variance.clamp(-LOG_VARIANCE, LOG_VARIANCE)
