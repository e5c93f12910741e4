"""LSTM-AE: an encoder, and a decoder that reconstructs a window backward in time (Malhotra et al., 2016)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cometad.network.schedules import Halving, Schedule
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork

RIDGE = 1e-3  # share of the mean variance added to each variable, because well-reconstructed ones have almost none


class EncoderDecoder(WindowNetwork):
    """One LSTM encodes a window; another decodes it from the last reading to the first, one reading at a time."""

    center: Tensor
    precision: Tensor

    def __init__(self, variables: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(variables, hidden, batch_first=True)
        self.decoder = nn.LSTM(variables, hidden, batch_first=True)
        self.output = nn.Linear(hidden, variables)
        self.register_buffer("center", torch.zeros(variables, dtype=torch.float64))
        self.register_buffer("precision", torch.eye(variables, dtype=torch.float64))

    def forward(self, windows: Tensor) -> Tensor:
        """Windows reconstructed by a decoder that is fed its own output."""
        _, state = self.encoder(windows)
        reading, readings = torch.zeros_like(windows[:, :1]), []
        for _ in range(windows.shape[1]):
            out, state = self.decoder(reading, state)
            reading = self.output(out)
            readings.append(reading)
        return torch.cat(readings, dim=1).flip(1)

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The mean squared error with teacher forcing: the decoder gets the true previous reading.

        Early stopping uses it too: without teacher forcing, the error rises at first while this one falls, and most
        training runs would stop immediately.
        """
        _, state = self.encoder(windows)
        backward = windows.flip(1)
        previous = torch.cat([torch.zeros_like(backward[:, :1]), backward[:, :-1]], dim=1)
        out, _ = self.decoder(previous, state)
        return functional.mse_loss(self.output(out), backward)

    @torch.no_grad()
    def after_training(self, batches: Iterator[Tensor]) -> None:
        errors = torch.cat([(self(windows) - windows).abs().flatten(0, 1).double() for windows in batches])
        covariance = torch.cov(errors.T).reshape(self.precision.shape)
        ridge = RIDGE * covariance.diagonal().mean() + 1e-12
        self.center.copy_(errors.mean(dim=0))
        self.precision.copy_(torch.linalg.inv(covariance + ridge * torch.eye(len(covariance)).to(covariance)))

    def score(self, windows: Tensor) -> Tensor:
        errors = (self(windows) - windows).abs().double() - self.center
        return torch.einsum("wtf,fg,wtg->wt", errors, self.precision, errors)


@dataclass(kw_only=True, eq=False, repr=False)
class LstmAe(DeepBaseline):
    """EncDec-AD as published: a backward decoder trained with teacher forcing, scored by Mahalanobis distance.

    Paper: a threshold from labels, and only the first principal component of several variables. Here: a quantile of
    training scores, because there are no labels, and all variables, as for every other detector.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.lstm_ae import LstmAe
    >>> wave = np.sin(np.arange(600) / 4)[:, None]
    >>> LstmAe(window=20, window_stride=10, hidden=8, schedule=OneCycle(20)).fit(wave).decision_function(wave).shape
    (600,)
    """

    schedule: Schedule = Halving(30, learning_rate=1e-3)
    hidden: int = 128

    def _network(self, variables: int) -> WindowNetwork:
        return EncoderDecoder(variables, self.hidden)
