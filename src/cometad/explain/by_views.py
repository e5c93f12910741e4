"""Attribute the score of an event to variables, and name for each the view that shows it best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cometad.alerting.alerts import Event
from cometad.arrays import Flags, Floats, Floats32
from cometad.compute import serial_products
from cometad.data.prepare import Likely, Scaling
from cometad.explain import level
from cometad.explain.level import Level
from cometad.explain.reasons import (
    LEAST_SHARE,
    Explanation,
    Reason,
    joined_rises,
    measured,
    rises_of_voices,
    shares,
    stretch_of,
)
from cometad.parameters import check_integer
from cometad.scoring.scores import Errors, Tails
from cometad.series import Series
from cometad.views.panel import Panel, clipped

BEFORE = 500  # readings before an event that its scores are compared with
SHOWN = 16  # readings of a reason, at most
REPLACED = 3  # variables that others may lean on
LEADING = 32  # readings before an event that may belong to its fault
BLOCKS = 256  # of steps that are replaced one after the other: one by one, unless an event is longer
ROUNDS = 3  # after them, what is expected of a reading hardly depends on the reading itself
RELATED = 0.7  # absolute correlation from which a variable follows another
BROKEN = 3.0  # residual standard deviations from which it no longer does
ROUNDING = 4 * np.finfo(np.float64).eps  # of a movement, relative to the readings
NOTHING = "no more unusual than before"


class Voice(NamedTuple):
    """A view, or the level, in words."""

    name: str
    reason: str
    relation: str = ""  # in words, with a place for the other variable, if the view judges relations


class Named(NamedTuple):
    """For one variable, the voice that shows best what is unusual, and the one that says what was expected."""

    voice: Voice
    expects: int | None  # index of a voice; None if none expects anything


@dataclass(frozen=True)
class ViewsExplainer:
    """Explains scores of a series with the fitted state of a detector; see `Comet.explain`.

    What is scored are the `scaled` ones of `moved`: the values, or for a variable with a trend its movements, less what
    is usual at their times. `usually` says in words when a variable with a season is as expected at a time step.
    """

    panel: Panel
    views: tuple[Voice, ...]  # of the panel
    level: Level
    bands: Floats  # (view, variable)  of the panel's views, in scaled units
    likely: Likely
    scaling: Scaling
    series: Series
    moved: Floats  # (time, variable)
    scaled: Floats32  # (time, variable)
    usually: Callable[[int, int], str]  # at this variable and time step

    def __call__(self, event: object, context: int = 32) -> Explanation:
        check_integer("context", context, 0)
        values, names, imputed = self.series.values, self.series.names, self.series.imputed
        start, stop = stretch_of(event, len(values))
        begin, end = max(0, start - context), min(len(values), stop + context)
        scores, rises = self._scores(self.scaled, start, stop, imputed)
        peak, score = start + int(scores.argmax()), float(scores.max())
        if isinstance(event, Event):  # keep the score it was raised with
            peak, score = event.peak, event.peak_score
        away = np.abs(self.moved[start:stop] - self.scaling.center).max(axis=0)
        rises *= away > ROUNDING * np.abs(values[start:stop]).max(axis=0)
        named = [self._named(rises[:, i], i) for i in range(len(names))]
        own = self._own_rises(rises, start, stop)
        known = (~np.isnan(rises)).max(axis=0).astype(np.float64)
        # Squares, because many slightly odd variables must not drown the cause.
        share = shares(own[None] ** 2 if own.any() else known[None])
        first = max(min(begin, start - LEADING), 0)
        expected = self._normal(first, end, [one.expects for one in named], share >= LEAST_SHARE)[begin - first :]
        observed = measured(self.series, begin, end)
        # What movements are measured from: 0 without a trend, NaN for a trend where it is imputed.
        levels = values[begin:end] - self.moved[begin:end]
        normal = self.scaling.back(expected) + np.where(np.isnan(observed) & (levels != 0), np.nan, levels)
        named = [self._related(one, i, own, start, stop) for i, one in enumerate(named)]
        reasons = [
            self._reason(i, float(share[i]), named[i], slice(start, stop), begin, peak, observed, normal)
            for i in range(len(names))
        ]
        ranked = tuple(sorted(reasons, key=lambda reason: -reason.share))
        return Explanation(start, stop, peak, score, ranked, begin, observed, normal, names)

    def _scores(self, scaled: Floats32, start: int, stop: int, imputed: Flags | None) -> tuple[Floats, Floats]:
        """The alert scores (time,) of the steps start..stop, and how far each voice rises there (voice, variable).

        The voices are the views and the level; NaN where imputed. A view's score is its calibrated error averaged over
        the windows that cover a step, so that it rises where the fault begins.
        """
        first, last = max(start - BEFORE, 0), min(stop + self.panel.span - 1, len(scaled))
        origin = max(first - self.panel.context, 0)
        rows = clipped(scaled[origin:last])
        mask = None if imputed is None else imputed[origin:last]
        errors = self.panel.errors(rows, first - origin, mask)
        own = errors[start - first : stop - first]
        scores = self.panel.scores(Errors(rows[start - origin : stop - origin], own)).alerts
        covering = self.panel.covering(errors, 0, stop - first)
        heard = [Tails(*tails)(covering[:, v]) for v, tails in enumerate(self.panel.ranking)]
        levels = self.level(scaled[first:stop])  # not clipped
        if imputed is not None:
            levels[imputed[first:stop]] = np.nan
        spans = [view.span for view in self.panel.views]
        return scores, rises_of_voices(np.stack([*heard, levels], axis=1), start - first, spans)

    def _own_rises(self, rises: Floats, start: int, stop: int) -> Floats:
        """How far each variable rises by itself (variable,), given rises (voice, variable).

        Views that compare variables find a healthy one odd next to a broken one. So the highest variables get, one
        after the other, the readings that such a view expects: what is left of the others' rises is their own.
        """
        begin, end = max(start - BEFORE - self.panel.context, 0), stop + self.panel.span - 1
        imputed = self.series.imputed
        rows, mask = self.scaled[begin:end].copy(), None if imputed is None else imputed[begin:end]
        start, stop = start - begin, stop - begin
        comparing = [v for v, view in enumerate(self.panel.views) if getattr(view, "mixes_variables", True)]
        own, done = joined_rises(rises), np.zeros(rises.shape[1], bool)
        for _ in range(min(REPLACED, len(own) - 1)):
            i = int(np.where(done, -1.0, own).argmax())
            done[i] = True
            order = [v for v in np.argsort(-rises[:-1, i], kind="stable").tolist() if v in comparing]
            view = next((v for v in order if not np.isnan(self.bands[v, i])), None)
            expected = self._expected(rows, start, stop, [view if k == i else None for k in range(len(own))])[:, i]
            rows[start:stop, i] = np.where(np.isnan(expected), rows[start:stop, i], expected)
            left = joined_rises(self._scores(rows, start, stop, mask)[1])
            own = np.where(done, own, np.minimum(own, left))
        return own

    def _named(self, rises: Floats, i: int) -> Named:
        """The voices that count for variable `i`, given how far each rose (voice,).

        The level is no part of the score, so it is named only if no view rose.
        """
        known = np.where(np.isnan(rises), 0.0, rises)
        order = np.argsort(-known[:-1], kind="stable").tolist()
        voice = self.views[order[0]] if known[order[0]] > 0 else Voice("", NOTHING)
        if not voice.name and known[-1] > 0:
            voice, order = Voice(level.NAME, level.REASON), [len(self.views)]
        bands = self._bands(i)
        return Named(voice, next((v for v in order if not np.isnan(bands[v])), None))

    def _related(self, named: Named, i: int, own: Floats, start: int, stop: int) -> Named:
        """Rephrase the reason of variable `i` as "no longer follows" another variable, if that is what happened.

        That is the healthy variable closest to it in training, provided that it does not explain the readings now.
        """
        if not named.voice.relation:
            return named
        close = np.where(own < own[i], np.abs(self._correlations[i]), 0.0)
        closest = int(close.argmax())
        if close[closest] < RELATED:
            return named
        both = [i, closest]
        rows = (self.scaled[start:stop, both] - self.level.center[both]) / self.level.deviation[both]
        left = np.abs(rows[:, 0] - self._correlations[i, closest] * rows[:, 1]).max()
        if left <= BROKEN * np.sqrt(1 - close[closest] ** 2):
            return named
        words = named.voice.relation.format(self.series.names[closest])
        return named._replace(voice=named.voice._replace(reason=words))

    @cached_property
    def _correlations(self) -> Floats:
        with serial_products():
            covariance = np.linalg.inv(self.likely.precision)
        deviation = np.sqrt(np.diag(covariance))
        return np.asarray(covariance / np.outer(deviation, deviation))

    def _normal(self, begin: int, end: int, voices: Sequence[int | None], causes: Flags) -> Floats:
        """What is expected of the scaled movements of the steps begin..end (time, variable).

        Views look back on readings that belong to the fault. So those of the `causes` are replaced by what is expected
        of them, from the first step on.
        """
        origin = max(begin - self.panel.context, 0)
        rows, begin, end = self.scaled[origin:end].copy(), begin - origin, end - origin
        own = [voice if cause else None for voice, cause in zip(voices, causes, strict=True)]
        size = -(-(end - begin) // BLOCKS)
        for start in range(begin, end, size):
            part = rows[start : start + size]
            for _ in range(ROUNDS):
                expected = self._expected(rows, start, start + len(part), own)
                known = ~np.isnan(expected)
                part[known] = expected[known]
        return self._expected(rows, begin, end, voices)

    def _bands(self, i: int) -> Floats:
        """The band of each voice (voice,) for variable `i`, in scaled units; NaN if it expects nothing particular."""
        return np.append(self.bands[:, i], self.level.band[i])

    def _expected(self, scaled: Floats32, begin: int, end: int, voices: Sequence[int | None]) -> Floats:
        """What a voice of each variable expects of the scaled movements of the steps begin..end (time, variable)."""
        expected = np.full((end - begin, len(voices)), np.nan)
        for v in {voice for voice in voices if voice is not None}:
            chosen = [i for i, voice in enumerate(voices) if voice == v]
            if v == len(self.views):
                expected[:, chosen] = self.level.center[chosen]
                continue
            view = self.panel.views[v]
            origin = max(begin - view.context, 0)
            rows = clipped(scaled[origin:end])
            expected[:, chosen] = view.expected(rows, begin - origin)[:, chosen]
        return expected

    def _reason(
        self, i: int, share: float, named: Named, event: slice, begin: int, peak: int, observed: Floats, normal: Floats
    ) -> Reason:
        inside = slice(event.start - begin, event.stop - begin)
        gaps = np.abs(observed[inside, i] / 2 - normal[inside, i] / 2)  # halves: the difference may overflow
        step = peak if np.isnan(gaps).all() else event.start + int(np.nanargmax(gaps))
        start = max(event.start, min(step - SHOWN // 2, event.stop - SHOWN))
        stop = min(start + SHOWN, event.stop)
        rows = slice(start - begin, stop - begin)
        band = None if named.expects is None else float(self._bands(i)[named.expects] * self.scaling.unit[i])
        seen, expected = observed[rows, i].copy(), normal[rows, i].copy()
        usually = self.usually(i, step)
        view, why, _ = named.voice
        if usually and view == level.NAME:
            why = f"far from what is usual {usually}"
        return Reason(self.series.names[i], share, view, why, step, start, stop, seen, expected, band, usually=usually)
