"""Adaptation of views: a slowly moving level of each variable.

Every view looks at differences from what it expects. Subtracting an offset from a variable's readings moves its codes,
its mean and its forecast together, so one offset per variable adapts them all.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.parameters import check, integer, number
from cometad.registry import register
from cometad.saving import Saved, Table, array, integers, kept, require_state
from cometad.views.panel import Panel, Tape, lately

SAMPLE = 128  # readings, at most, that one step learns from

RULES = {
    **dict.fromkeys(("half_life", "every"), integer(1)),
    **dict.fromkeys(("limit", "max_drift"), number(0, np.inf, above=True)),
}


class LevelAdaptation(Protocol):
    """A way to adapt. It holds only settings; the follower holds what a run has learned."""

    def follow(self, panel: Panel) -> "Follower | None":
        """A follower for one run of these views, or None to leave them as fitted."""


@register("KeepFitted")
@dataclass(frozen=True)
class KeepFitted:
    """No adaptation: the views stay as they were fitted.

    >>> from cometad import Comet
    >>> from cometad.views.adaptation import KeepFitted
    >>> Comet(adaptation=KeepFitted()).adaptation
    KeepFitted()
    """

    def follow(self, panel: Panel) -> None:
        """Return None: nothing adapts."""


@register("FollowLevel")
@dataclass(frozen=True)
class FollowLevel:
    """Follow the slowly drifting level of each variable, using only readings that are clearly normal.

    After every `every` readings, the level of each variable moves by a share of the mean distance of its last readings
    from what the views expect, so that a constant distance would halve in `half_life` readings. Only the readings of a
    variable whose calibrated score is at most `limit` count; 3.9 is the 98 % quantile of training. The step is undone
    if it does not lower the scores of these readings. No level moves by more than `max_drift` standard deviations.

    >>> from cometad.views.adaptation import FollowLevel
    >>> FollowLevel(half_life=4096)
    FollowLevel(half_life=4096, limit=3.0, max_drift=1.0, every=1024)
    """

    half_life: int = 2048
    limit: float = 3.0
    max_drift: float = 1.0
    every: int = 1024

    def __post_init__(self) -> None:
        check(vars(self), RULES)

    def follow(self, panel: Panel) -> "Follower":
        """A follower whose levels are those of training."""
        return Follower(self, panel)


class Follower(Saved):
    """The levels of one run, and the last readings, which the next step will learn from."""

    saved: ClassVar[Table] = {
        "offset": array("offset", "variable"),
        "scores": kept("_scores", "score?", "variable"),
        "rows": kept("_rows", "time?", "variable"),
        "imputed": kept("_imputed", "time?", "variable", dtype=np.bool_),
        "counts": integers("steps", "rolled_back"),
    }

    def __init__(self, settings: FollowLevel, panel: Panel) -> None:
        self._settings, self._panel = settings, panel
        self.every = settings.every
        self.offset = np.zeros(panel.width)  # (variable,)  to subtract from scaled readings
        self._sample = min(SAMPLE, settings.every)
        known = panel.context + self._sample
        self._rows = Tape(known, (panel.width,))
        self._imputed = Tape(known, (panel.width,), np.bool_)
        self._scores = Tape(self._sample, (panel.width,))
        self.steps = self.rolled_back = 0

    def see(self, rows: Floats, imputed: Flags | None, scores: Floats) -> None:
        """Remember scaled readings and their scores (time, variable), with a mask of `imputed` cells."""
        self._rows.append(rows)
        self._imputed.append(np.zeros(rows.shape, bool) if imputed is None else imputed)
        self._scores.append(scores)

    def learn(self) -> Floats:
        """Take one step; returns the change (variable,) of the offset."""
        self.steps += 1
        scores, accepted = self._scores.kept, self._accepted()
        proposed = self._proposed(accepted)
        if not self._rescored(proposed)[accepted].sum() < scores[accepted].sum():
            self.rolled_back += 1
            return np.zeros_like(proposed)
        change: Floats = proposed - self.offset
        self.offset = proposed
        return change

    def _accepted(self) -> Flags:
        """The readings (time, variable) to learn from: those with low scores that all views contribute to."""
        scores, imputed = self._scores.kept, self._imputed.kept
        first = len(imputed) - len(scores)
        accepted = (scores <= self._settings.limit) & ~lately(imputed, first, self._panel.span)
        accepted[: max(self._panel.context - first, 0)] = False
        return accepted

    def _proposed(self, accepted: Flags) -> Floats:
        """The offset after a step toward the mean distance of the accepted readings from what is expected."""
        rows = self._rows.kept - self.offset
        first = len(rows) - len(accepted)
        total, count = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for view in self._panel.views:
            distances = rows[first:] - view.expected(rows, first)
            used = accepted & ~np.isnan(distances)
            total += np.where(used, distances, 0.0).sum(axis=0)
            count += used.sum(axis=0)
        rate = 1 - 0.5 ** (self.every / self._settings.half_life)
        bound = self._settings.max_drift
        proposed: Floats = np.clip(self.offset + rate * total / np.maximum(count, 1), -bound, bound)
        return proposed

    def _rescored(self, offset: Floats) -> Floats:
        """The scores (time, variable) of the last readings with another offset."""
        rows = self._rows.kept - offset
        return self._panel.fused(self._panel.errors(rows, len(rows) - len(self._scores.kept))).variables

    def sizes(self) -> dict[str, int]:
        return {"variable": self._panel.width}

    def check_state(self) -> None:
        """Refuse rows and scores that are not those of the same last readings."""
        scores, rows = len(self._scores.kept), len(self._rows.kept)
        fits = scores <= rows <= scores + self._panel.context
        require_state(fits, "its arrays 'rows' and 'scores' are not those of the last readings")
