"""The published network as a view: patches against a trained codebook. It needs torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.network.network import Network
from cometad.network.schedules import OneCycle, Schedule
from cometad.network.score import PatchScores, Scorer
from cometad.network.state import restored_network, weights
from cometad.network.training import INITIALIZATIONS, Objective, Training, fit_network, new_network
from cometad.parameters import check, choice, device, integer, number, require, strategy
from cometad.registry import register
from cometad.saving import Declared, Table, array, taken
from cometad.views.view import windows_of

WINDOWS = 4_000  # at most, to train on


RULES = {
    **dict.fromkeys(("window", "dim", "core_dim", "codebook_size", "batch_size"), integer(1)),
    "refit": integer(0),
    "initialization": choice(INITIALIZATIONS),
    "schedule": strategy("steps", "rate"),
    **dict.fromkeys(("weight_decay", "codebook_weight", "commitment_weight"), number(0, np.inf)),
    "device": device,
}


@register("NetworkView")
@dataclass(frozen=True)
class NetworkView:
    """The distance of each variable's patches to the nearest code of COMET's trained network, averaged over scales.

    >>> import numpy as np
    >>> from cometad.network import OneCycle
    >>> from cometad.views import NetworkView
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(400, 2))
    >>> view = NetworkView(schedule=OneCycle(5)).fit(rows, np.ones(400, bool), rng)
    >>> view.errors(rows, first=15).shape
    (385, 2)
    """

    patch_sizes: Sequence[int] = (4, 8, 16)
    window: int = 128  # readings per training window
    dim: int = 64
    core_dim: int = 8
    codebook_size: int = 512
    initialization: str = "k-means"
    refit: int = 10
    schedule: Schedule = OneCycle(400)
    batch_size: int = 32
    weight_decay: float = 5e-4
    codebook_weight: float = 1.0
    commitment_weight: float = 1.0
    device: str = "cpu"
    reason: ClassVar[str] = "alone unusual"

    def __post_init__(self) -> None:
        check(vars(self), RULES)
        require(self.dim % 2 == 0, "dim", "even: one half embeds each variable on its own", self.dim)
        require(len(self.patch_sizes) >= 1, "patch_sizes", "at least one integer", self.patch_sizes)
        for size in self.patch_sizes:
            require(1 <= size <= self.window, "patch_sizes", f"between 1 and the window ({self.window})", size)

    @property
    def min_rows(self) -> int:
        return self.window

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> "FittedNetworkView":
        seed = int(rng.integers(2**31))
        starts = windows_of(usable, self.window, WINDOWS, rng)
        network = new_network(lambda: self._built(rows.shape[1]), seed, self.device)
        objective = Objective(self.codebook_weight, self.commitment_weight, self.weight_decay)
        training = Training(self.initialization, self.refit, self.schedule, objective, self.batch_size, seed)
        fit_network(network, rows.astype(np.float32), starts, self.window, training, report=lambda epoch: None)
        return FittedNetworkView(network, tuple(self.patch_sizes), self.device)

    def restore(self, state: Mapping[str, Array]) -> "FittedNetworkView":
        variables = int(taken(state, "variables", (1,), np.int64)[0])
        network = restored_network(lambda: self._built(variables), state, self.device)
        return FittedNetworkView(network, tuple(self.patch_sizes), self.device)

    def _built(self, variables: int) -> Network:
        strides = tuple(max(size // 2, 1) for size in self.patch_sizes)
        sizes = (tuple(self.patch_sizes), strides, self.dim, self.core_dim, self.codebook_size)
        return Network(variables, *sizes)


class FittedNetworkView(Declared):
    """A trained network, and the errors of the patches that end at each time step."""

    saved: ClassVar[Table] = {
        "variables": array("width", 1, dtype=np.int64, pack=np.atleast_1d),
        "network": weights("network"),
    }

    def __init__(self, network: Network, sizes: tuple[int, ...], device: str) -> None:
        self.network, self._sizes, self.span, self.context = network, sizes, max(sizes), max(sizes) - 1
        self._scorer = Scorer(network, None, 1, "plain", device)
        self.width = len(self._scorer.scales[0].series_codes)
        self._scorer.scales = [scale._replace(stride=1) for scale in self._scorer.scales]
        self._normal = [scale.decoded()[:, -1] for scale in network]  # the last reading that each code represents

    def errors(self, rows: Floats, first: int) -> Floats:
        """The mean over scales of the distance to the nearest code (time - first, variable)."""
        return self._mean(rows, first, lambda scale, scored: scored.errors)

    def expected(self, rows: Floats, first: int) -> Floats:
        """The mean over scales of the last reading of the nearest code, decoded (time - first, variable)."""
        return self._mean(rows, first, lambda scale, scored: self._normal[scale][scored.codes])

    def _mean(self, rows: Floats, first: int, value: Callable[[int, PatchScores], Array]) -> Floats:
        out = np.zeros((len(rows) - first, rows.shape[1]))
        begin = max(first - self.context, 0)
        count = max(len(rows) - self.context - begin, 0)
        if count:
            window = np.ascontiguousarray(rows[None, begin:], np.float32)
            for scale, size in enumerate(self._sizes):
                ends = value(scale, self._scorer.whole(window, scale))[0, self.context + 1 - size :]
                out[len(out) - count :] += ends / len(self._sizes)
        out[: max(self.context - first, 0)] = np.nan  # too little context
        return out
