"""USAD: two autoencoders with a shared encoder, trained as adversaries (Audibert, 2020)."""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from cometad.network.schedules import Halving, Schedule
from cometad_bench.baselines.deep import DeepBaseline, WindowNetwork
from cometad_bench.baselines.loop import ParameterGroup


class Adversaries(WindowNetwork):
    """An encoder E and two decoders D1 and D2 on flattened windows."""

    def __init__(self, size: int, latent: int) -> None:
        super().__init__()
        half, quarter = max(1, size // 2), max(1, size // 4)
        self.encoder = nn.Sequential(*_layers(size, half, quarter, latent), nn.ReLU())
        self.first = nn.Sequential(*_layers(latent, quarter, half, size), nn.Sigmoid())
        self.second = nn.Sequential(*_layers(latent, quarter, half, size), nn.Sigmoid())

    def errors(self, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The squared errors of D1(E(x)), D2(E(x)) and D2(E(D1(E(x)))), each in the shape of the windows."""
        flat = windows.flatten(1)
        encoded = self.encoder(flat)
        once = self.first(encoded)
        outputs = (once, self.second(encoded), self.second(self.encoder(once)))
        first, second, twice = (((flat - output) ** 2).reshape(windows.shape) for output in outputs)
        return first, second, twice

    def loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The first autoencoder reconstructs windows and, with increasing weight, tries to fool the second."""
        first, _, twice = self.errors(windows)
        return first.mean() / epoch + (1 - 1 / epoch) * twice.mean()

    def adversary_loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The second autoencoder reconstructs windows and, with increasing weight, rejects the output of the first."""
        _, second, twice = self.errors(windows)
        return second.mean() / epoch - (1 - 1 / epoch) * twice.mean()

    def validation_loss(self, windows: Tensor, epoch: int) -> Tensor:
        """The error of the first autoencoder, because the weights in the losses change with every epoch."""
        return self.errors(windows)[0].mean()

    def parameter_groups(self) -> list[ParameterGroup]:
        """Both share the encoder, but each follows only its own gradient."""
        encoder, first, second = (list(part.parameters()) for part in (self.encoder, self.first, self.second))
        return [ParameterGroup([*encoder, *first], self.loss), ParameterGroup([*encoder, *second], self.adversary_loss)]

    def score(self, windows: Tensor) -> Tensor:
        """The mean of the errors of D1(E(x)) and D2(E(D1(E(x)))), averaged over variables."""
        first, _, twice = self.errors(windows)
        return (first / 2 + twice / 2).mean(dim=2)


@dataclass(kw_only=True, eq=False, repr=False)
class Usad(DeepBaseline):
    """USAD as published, with min-max scaling because its decoders end in a sigmoid.

    In the public code, the second step also applies gradients left over from the first loss. Here each player uses
    only its own gradients, as in the paper.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad_bench.baselines.usad import Usad
    >>> wave = np.sin(np.arange(600) / 4)[:, None]
    >>> Usad(window=20, window_stride=10, latent=4, schedule=OneCycle(20)).fit(wave).decision_function(wave).shape
    (600,)
    """

    scaler: str = "min-max"
    schedule: Schedule = Halving(30, learning_rate=1e-3)
    latent: int = 40

    def _network(self, variables: int) -> WindowNetwork:
        return Adversaries(self.window * variables, self.latent)


def _layers(*sizes: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size, following in pairwise(sizes):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return layers[:-1]
