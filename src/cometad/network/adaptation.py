"""Online codebook adaptation: after a batch is scored, one careful step towards what was normal in it.

A batch is always scored before it is learned from, so no reading vouches for itself. A step whose loss, gradient or
parameters are not finite is rolled back and counted.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cometad.arrays import Array
from cometad.network.fast.moments import Batch, batch_loss, embeddings_of, look, small_products, sum_losses
from cometad.network.network import Network
from cometad.network.patches import holding
from cometad.network.score import PatchScores
from cometad.network.state import from_arrays, to_arrays
from cometad.network.training import Objective
from cometad.registry import register
from cometad.validation import check, integer, number

State = dict[str, Array]


_RULES = {
    "learning_rate": number(0, math.inf, above=True),
    "contrastive_weight": number(0, math.inf),
    "temperature": number(0, math.inf, above=True),
    "pairs": integer(4),
    "error_limit": number(0, 1, optional=True),
    "max_drift": number(0, math.inf, optional=True),
}


class Adaptation(Protocol):
    """A way to adapt, as a value; `start` gives what one run needs to remember, or None where nothing is learned."""

    def start(self, network: Network, memory: "Seen", objective: Objective, seed: int) -> "Adapter | None":
        """The adapter of a run that may change this network."""


@dataclass(frozen=True)
class Seen:
    """What training has shown of each scale: by it a patch is taken for normal."""

    active: Sequence[NDArray[np.bool_]]  # (code,)  activated in training
    limits: Sequence[NDArray[np.float64]]  # (variable,)  the largest error taken for normal

    def normal(self, k: int, codes: Tensor, errors: Tensor) -> Tensor:
        """The patches (window, patch, variable) of one scale taken for normal: pseudo-label 0. Paper: Eq. 21, 22."""
        active = torch.as_tensor(self.active[k], device=codes.device)
        limits = torch.as_tensor(self.limits[k], device=codes.device)  # infinite where there is none
        return active[codes.long()] & (errors.double() <= limits)


@register("NoAdaptation")
@dataclass(frozen=True)
class NoAdaptation:
    """The detector stays as it was fitted.

    >>> from cometad import Comet
    >>> from cometad.network import NoAdaptation
    >>> Comet(adaptation=NoAdaptation()).adaptation
    NoAdaptation()
    """

    def start(self, network: Network, memory: Seen, objective: Objective, seed: int) -> None:
        """Nothing to remember."""


@register("OnlineAdaptation")
@dataclass(frozen=True)
class OnlineAdaptation:
    """One AdamW step on all parameters per scored batch, on what was taken for normal in it.

    A patch is taken for normal when training activated its code and, with `error_limit`, when its quantization error is
    below that quantile of the training errors of its variable. `max_drift` bounds how far each parameter may go from
    the fitted one, as a share of that one's norm.

    >>> from cometad.network import OnlineAdaptation
    >>> OnlineAdaptation(contrastive_weight=0.0)
    OnlineAdaptation(learning_rate=0.0001, contrastive_weight=0.0, temperature=0.1, pairs=1024, error_limit=None,
    max_drift=None)
    """

    learning_rate: float = 1e-4
    contrastive_weight: float = 0.1
    temperature: float = 0.1
    pairs: int = 1024
    error_limit: float | None = None
    max_drift: float | None = None

    def __post_init__(self) -> None:
        check(vars(self), _RULES)

    def start(self, network: Network, memory: Seen, objective: Objective, seed: int) -> "Adapter":
        """An adapter with an optimizer of its own."""
        return Adapter(self, network, memory, objective, seed)


class Adapter:
    """What adapting one run needs to remember: the optimizer, the fitted parameters, how often it learned."""

    def __init__(
        self, settings: OnlineAdaptation, network: Network, memory: Seen, objective: Objective, seed: int
    ) -> None:
        self._settings, self._objective = settings, objective
        self._network, self._memory = network, memory
        self._fitted = [parameter.detach().clone() for parameter in network.parameters()]
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=objective.weight_decay, fused=True
        )
        self._chance = torch.Generator().manual_seed(int(seed))
        self.steps = 0
        self.rolled_back = 0

    def learn(
        self,
        windows: NDArray[np.float32],
        scored: Sequence[PatchScores],
        imputed: NDArray[np.bool_] | None = None,
    ) -> None:
        """Take one step on windows (window, time, variable), given what their patches got at each scale.

        Nothing is learned from a patch that holds an `imputed` cell (window, time, variable).
        """
        before = self.state()
        self.steps += 1
        with small_products(self._network):
            finite = self._step(*self._look(windows, scored), self._measured(imputed))
        if finite:
            self._stay_near()
            return
        steps, rolled_back = self.steps, self.rolled_back
        self.restore(before)
        self.steps, self.rolled_back = steps, rolled_back + 1

    def _look(self, windows: NDArray[np.float32], scored: Sequence[PatchScores]) -> tuple[list[Batch], list[Tensor]]:
        device = self._fitted[0].device
        inputs = torch.as_tensor(windows, device=device)
        batches, normal = [], []
        for k, (scale, scores) in enumerate(zip(self._network, scored, strict=True)):
            codes, errors = (torch.as_tensor(part, device=device) for part in scores)
            batches.append(look(scale, inputs, codes))
            normal.append(self._memory.normal(k, codes, errors))
        return batches, normal

    def _measured(self, imputed: NDArray[np.bool_] | None) -> list[Tensor] | None:
        """The patches (window, patch, variable) of each scale without imputed cells; None where there are none."""
        if imputed is None:
            return None
        device = self._fitted[0].device
        return [torch.as_tensor(~holding(imputed, scale.size, scale.stride), device=device) for scale in self._network]

    def _step(self, batches: list[Batch], normal: list[Tensor], measured: list[Tensor] | None) -> bool:
        """Change the network; False if something was not finite. Paper: Eq. 24."""
        if measured is not None:
            normal = [taken & whole for taken, whole in zip(normal, measured, strict=True)]
        parts = sum_losses([batch_loss(batch, taken)[0] for batch, taken in zip(batches, normal, strict=True)])
        loss = self._objective.total(parts)
        if self._settings.contrastive_weight:
            loss = loss + self._settings.contrastive_weight * self._contrast(batches, normal, measured)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if not (_finite([loss]) and _finite(p.grad for p in self._network.parameters() if p.grad is not None)):
            return False
        self._optimizer.step()
        return _finite(self._network.parameters())

    def _contrast(
        self, batches: Sequence[Batch], normal: Sequence[Tensor], measured: Sequence[Tensor] | None
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=self._fitted[0].device)
        for k, (batch, taken) in enumerate(zip(batches, normal, strict=True)):
            labels = ~taken.flatten()
            chosen = self._draw(labels, None if measured is None else measured[k].flatten())
            if chosen is not None:
                sample = embeddings_of(batch, chosen)
                # In float32: it is no difference of large sums, and the largest part of a step.
                total = total + contrastive_loss(sample.float(), labels[chosen], self._settings.temperature)
        return total

    def _draw(self, labels: Tensor, measured: Tensor | None = None) -> Tensor | None:
        """Indices drawn half from each pseudo-label, or None where one has fewer than two; only what was measured."""
        flags = labels.cpu().numpy()
        among = np.ones_like(flags) if measured is None else measured.cpu().numpy()
        classes = [np.flatnonzero(~flags & among), np.flatnonzero(flags & among)]
        if min(map(len, classes)) < 2:
            return None
        half = self._settings.pairs // 2
        chance = np.random.default_rng(int(torch.randint(2**62, (), generator=self._chance)))
        drawn = [chance.choice(members, min(half, len(members)), replace=False) for members in classes]
        return torch.as_tensor(np.concatenate(drawn), device=labels.device)

    @torch.no_grad()
    def _stay_near(self) -> None:
        if self._settings.max_drift is None:
            return
        for parameter, fitted in zip(self._network.parameters(), self._fitted, strict=True):
            gone = parameter - fitted
            allowed = self._settings.max_drift * fitted.norm()
            parameter.copy_(fitted + gone * (allowed / gone.norm().clamp(min=1e-30)).clamp(max=1.0))

    def state(self) -> State:
        """The complete state, by name."""
        tensors = {
            f"optimizer.{k}.{name}": value
            for k, slots in self._optimizer.state_dict()["state"].items()
            for name, value in slots.items()
        }
        tensors["chance"] = self._chance.get_state()
        arrays = {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}
        return to_arrays(self._network) | arrays | {"counts": np.array([self.steps, self.rolled_back])}

    def restore(self, state: State) -> None:
        """Resume from a state."""
        from_arrays(self._network, state)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in state.items():
            if name.startswith("optimizer."):
                _, k, slot = name.split(".")
                slots.setdefault(int(k), {})[slot] = torch.tensor(value)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": slots})
        self._chance.set_state(torch.tensor(state["chance"]))
        self.steps, self.rolled_back = (int(count) for count in state["counts"])


def contrastive_loss(embeddings: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """How badly embeddings (sample, dim) of one pseudo-label stick together, as a mean over samples.

    >>> import torch
    >>> from cometad.network.adaptation import contrastive_loss
    >>> apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> bool(contrastive_loss(apart, labels, 0.1) < contrastive_loss(apart, labels.roll(1), 0.1))
    True

    Paper: Eq. 23, there a sum over samples.
    """
    unit = F.normalize(embeddings, dim=1)
    same = torch.stack([labels == 0, labels != 0]).to(unit.dtype)  # (label, sample)
    others = same.sum(dim=1)[(labels != 0).long()] - 1  # of the same label, without itself
    # The mean over the others of the same label, from the sum of their vectors; the diagonal is that of itself.
    alike = ((same.T @ (same @ unit)) * unit).sum(dim=1) - (unit**2).sum(dim=1)
    crowd: Tensor = _Crowd.apply(unit, temperature)  # type: ignore[no-untyped-call]
    return (crowd - alike / temperature / others).mean()


class _Crowd(torch.autograd.Function):
    """The logarithm of the sum over all others of exp(similarity / temperature), (sample,).

    Similarities are symmetric: one product gives the gradient where autograd would need two.
    """

    @staticmethod
    def forward(context: Any, unit: Tensor, temperature: float) -> Tensor:
        """Of unit vectors (sample, dim)."""
        similarity = (unit @ unit.T / temperature).fill_diagonal_(-math.inf)
        crowd = similarity.logsumexp(dim=1)
        context.save_for_backward(unit, similarity.sub_(crowd[:, None]).exp_())
        context.temperature = temperature
        return crowd

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """With respect to the vectors."""
        unit, share = context.saved_tensors
        weighted = share * gradient[:, None]
        return (weighted + weighted.T) @ unit / context.temperature, None


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
