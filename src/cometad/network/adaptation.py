"""Online codebook adaptation: after each scored batch, one training step on the part of it that looks normal.

A batch is always scored before the network learns from it, so that no reading can influence its own score. A step
whose loss, gradients or parameters are not finite is rolled back and counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cometad.arrays import Array
from cometad.network.fast.moments import Batch, as_batch, batch_loss, embeddings_of, sum_losses, threads_for
from cometad.network.network import Network
from cometad.network.patches import patches_containing
from cometad.network.score import PatchScores
from cometad.network.state import weights
from cometad.network.training import Objective
from cometad.parameters import check, integer, number
from cometad.registry import register
from cometad.saving import Saved, SavedField, Table, array, integers, part_of, taken

_RULES = {
    "learning_rate": number(0, math.inf, above=True),
    "contrastive_weight": number(0, math.inf),
    "temperature": number(0, math.inf, above=True),
    "pairs": integer(4),
    "error_limit": number(0, 1, optional=True),
    "max_drift": number(0, math.inf, optional=True),
}


class Adaptation(Protocol):
    """A way to adapt. It holds only settings; the adapter that `start` returns holds what a run has learned."""

    def start(self, network: Network, criteria: "NormalCriteria", objective: Objective, seed: int) -> "Adapter | None":
        """An adapter that may change this network, or None to leave it as it is."""


@dataclass(frozen=True)
class NormalCriteria:
    """What makes a patch count as normal, for each scale: an active code, and an error within the limit."""

    active: Sequence[NDArray[np.bool_]]  # (code,)  activated in training
    limits: Sequence[NDArray[np.float64]]  # (variable,)  the largest error that counts as normal

    def normal(self, k: int, codes: Tensor, errors: Tensor) -> Tensor:
        """The normal patches of scale k, pseudo-label 0. Paper: Eq. 21, 22.

        Codes, errors and the result are (window, patch, variable).
        """
        active = torch.as_tensor(self.active[k], device=codes.device)
        limits = torch.as_tensor(self.limits[k], device=codes.device)  # infinite without a limit
        return active[codes.long()] & (errors.double() <= limits)


@register("NoAdaptation")
@dataclass(frozen=True)
class NoAdaptation:
    """No adaptation: the detector stays as it was fitted.

    >>> from cometad import NetworkComet
    >>> from cometad.network import NoAdaptation
    >>> NetworkComet(adaptation=NoAdaptation()).adaptation
    NoAdaptation()
    """

    def start(self, network: Network, criteria: NormalCriteria, objective: Objective, seed: int) -> None:
        """Return None: nothing adapts."""


@register("OnlineAdaptation")
@dataclass(frozen=True)
class OnlineAdaptation:
    """One AdamW step on all parameters after each scored batch, using only its normal patches.

    A patch counts as normal if training activated its code and, with `error_limit`, if its quantization error is at
    most that quantile of its variable's training errors. `max_drift` limits how far each parameter may move from its
    fitted value, as a fraction of the norm of that value.

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

    def start(self, network: Network, criteria: NormalCriteria, objective: Objective, seed: int) -> "Adapter":
        return Adapter(self, network, criteria, objective, seed)


def _save_optimizer(owner: "Adapter", name: str, state: dict[str, Array]) -> None:
    """What AdamW knows of each parameter; nothing before the first step."""
    for k, slots in owner._optimizer.state_dict()["state"].items():
        state |= {f"{name}.{k}.{slot}": value.cpu().numpy() for slot, value in slots.items()}


def _load_optimizer(owner: "Adapter", name: str, state: Mapping[str, Array], sizes: dict[str, int]) -> None:
    slots: dict[int, dict[str, Tensor]] = {}
    for k, parameter in enumerate(owner._fitted if part_of(state, name) else ()):
        shapes = {"step": (), "exp_avg": tuple(parameter.shape), "exp_avg_sq": tuple(parameter.shape)}
        slots[k] = {
            slot: torch.tensor(taken(state, f"{name}.{k}.{slot}", shape, np.float32)) for slot, shape in shapes.items()
        }
    owner._optimizer.load_state_dict({**owner._optimizer.state_dict(), "state": slots})


def _generator(state: Array) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.tensor(state))
    return generator


class Adapter(Saved):
    """The state of one run's adaptation: the optimizer, the fitted parameters, the number of steps."""

    saved: ClassVar[Table] = {
        "network": weights("_network"),
        "optimizer": SavedField(_save_optimizer, _load_optimizer),
        "chance": array(
            "_generator",
            len(torch.Generator().get_state()),
            dtype=np.uint8,
            pack=lambda generator: generator.get_state().numpy(),
            make=_generator,
        ),
        "counts": integers("steps", "rolled_back"),
    }

    def __init__(
        self, settings: OnlineAdaptation, network: Network, criteria: NormalCriteria, objective: Objective, seed: int
    ) -> None:
        self._settings, self._objective = settings, objective
        self._network, self._criteria = network, criteria
        self._fitted = [parameter.detach().clone() for parameter in network.parameters()]
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=objective.weight_decay, fused=True
        )
        self._generator = torch.Generator().manual_seed(int(seed))
        self.steps = 0
        self.rolled_back = 0

    def learn(
        self,
        windows: NDArray[np.float32],
        scored: Sequence[PatchScores],
        imputed: NDArray[np.bool_] | None = None,
    ) -> None:
        """Take one step on windows (window, time, variable), given their patch scores at each scale.

        Patches that contain an `imputed` cell (window, time, variable) are ignored.
        """
        before = self.state()
        self.steps += 1
        with threads_for(self._network):
            finite = self._step(*self._batches(windows, scored), self._measured(imputed))
        if finite:
            self._limit_drift()
            return
        steps, rolled_back = self.steps, self.rolled_back
        self.restore(before)
        self.steps, self.rolled_back = steps, rolled_back + 1

    def _batches(self, windows: NDArray[np.float32], scored: Sequence[PatchScores]) -> tuple[list[Batch], list[Tensor]]:
        """The batch and its normal patches (window, patch, variable), for each scale."""
        device = self._fitted[0].device
        inputs = torch.as_tensor(windows, device=device)
        batches, normal = [], []
        for k, (scale, scores) in enumerate(zip(self._network, scored, strict=True)):
            codes, errors = (torch.as_tensor(part, device=device) for part in scores)
            batches.append(as_batch(scale, inputs, codes))
            normal.append(self._criteria.normal(k, codes, errors))
        return batches, normal

    def _measured(self, imputed: NDArray[np.bool_] | None) -> list[Tensor] | None:
        """The patches (window, patch, variable) without imputed cells, for each scale; None if no cell is imputed."""
        if imputed is None:
            return None
        device = self._fitted[0].device
        return [
            torch.as_tensor(~patches_containing(imputed, scale.size, scale.stride), device=device)
            for scale in self._network
        ]

    def _step(self, batches: list[Batch], normal: list[Tensor], measured: list[Tensor] | None) -> bool:
        """Take one optimizer step; returns whether everything stayed finite. Paper: Eq. 24."""
        if measured is not None:
            normal = [mask & complete for mask, complete in zip(normal, measured, strict=True)]
        parts = sum_losses([batch_loss(batch, mask)[0] for batch, mask in zip(batches, normal, strict=True)])
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
        for k, (batch, mask) in enumerate(zip(batches, normal, strict=True)):
            labels = ~mask.flatten()
            chosen = self._draw(labels, None if measured is None else measured[k].flatten())
            if chosen is not None:
                sample = embeddings_of(batch, chosen)
                # float32 is enough, as no large sums are subtracted, and this is the most expensive part of a step.
                total = total + contrastive_loss(sample.float(), labels[chosen], self._settings.temperature)
        return total

    def _draw(self, labels: Tensor, measured: Tensor | None = None) -> Tensor | None:
        """Indices of measured patches, half from each pseudo-label; None if a label has fewer than two."""
        flags = labels.cpu().numpy()
        eligible = np.ones_like(flags) if measured is None else measured.cpu().numpy()
        classes = [np.flatnonzero(~flags & eligible), np.flatnonzero(flags & eligible)]
        if min(map(len, classes)) < 2:
            return None
        half = self._settings.pairs // 2
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=self._generator)))
        drawn = [rng.choice(members, min(half, len(members)), replace=False) for members in classes]
        return torch.as_tensor(np.concatenate(drawn), device=labels.device)

    @torch.no_grad()
    def _limit_drift(self) -> None:
        if self._settings.max_drift is None:
            return
        for parameter, fitted in zip(self._network.parameters(), self._fitted, strict=True):
            change = parameter - fitted
            allowed = self._settings.max_drift * fitted.norm()
            parameter.copy_(fitted + change * (allowed / change.norm().clamp(min=1e-30)).clamp(max=1.0))


def contrastive_loss(embeddings: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The contrastive loss, a mean over samples: low if embeddings (sample, dim) of the same pseudo-label are similar.

    Paper: Eq. 23, which sums over samples.
    """
    unit = F.normalize(embeddings, dim=1)
    same = torch.stack([labels == 0, labels != 0]).to(unit.dtype)  # (label, sample)
    others = same.sum(dim=1)[(labels != 0).long()] - 1  # (sample,)  same label, without itself
    # The sum of similarities to the others of the same label, from the sum of their vectors minus the sample itself.
    alike = ((same.T @ (same @ unit)) * unit).sum(dim=1) - (unit**2).sum(dim=1)
    log_sum: Tensor = _LogSumOfOthers.apply(unit, temperature)  # type: ignore[no-untyped-call]
    return (log_sum - alike / temperature / others).mean()


class _LogSumOfOthers(torch.autograd.Function):
    """log(sum of exp(similarity / temperature) over all other samples), (sample,).

    Similarities are symmetric, so the gradient takes one matrix product where autograd would need two.
    """

    @staticmethod
    def forward(context: Any, unit: Tensor, temperature: float) -> Tensor:
        """The log-sum (sample,) for unit vectors (sample, dim)."""
        similarity = (unit @ unit.T / temperature).fill_diagonal_(-math.inf)
        log_sum = similarity.logsumexp(dim=1)
        context.save_for_backward(unit, similarity.sub_(log_sum[:, None]).exp_())
        context.temperature = temperature
        return log_sum

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The gradient with respect to the vectors (sample, dim)."""
        unit, share = context.saved_tensors
        weighted = share * gradient[:, None]
        return (weighted + weighted.T) @ unit / context.temperature, None


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
