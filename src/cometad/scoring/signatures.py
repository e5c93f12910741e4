"""Signatures: how events looked that a person judged, and alert scores in which the normal ones no longer count.

A cell is the reading of one variable at one time step. It is *hot* if its calibrated score is at least `HOT`, or above
`USUAL` and the highest of its time step. A signature keeps the hot cells of an event, as boxes: the range of the
readings and the largest error of each view, in up to `PARTS` parts of equal length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cometad.arrays import Array, Floats, Integers
from cometad.compute import jit
from cometad.saving import Saved, SavedField, Table, array, integers, part_of, require_state, taken, with_part
from cometad.scoring.scores import USUAL, Errors, Scores, pooled

# Chosen on synthetic plants and on the select half of the benchmark: see docs/alerts.md and bench/scripts/verdicts.py.
HOT = 3.2  # about one normal cell in 50 scores higher
NAMED = 5  # variables
LEANING = 0.75  # of the highest score: what views of a single group make of a variable that leans on the worst is less
PARTS = 8  # of an event: fewer excuse more, and hide more faults
MARGIN = 2.0  # standard deviations that a reading may be outside of a box: the level it starts from varies that much
FACTOR = 2.0  # an error may be this many times the largest one of a box


class Signature(NamedTuple):
    """The hot cells of one event. Its columns are the variables that have any."""

    variables: Integers  # (column,)  index of the variable
    scores: Floats  # (column,)  its highest calibrated score
    low: Floats  # (part, column)  least scaled reading; inf in a part without hot cells
    high: Floats  # (part, column)  highest scaled reading; -inf in a part without hot cells
    errors: Floats  # (part, view, column)  largest error; -inf if it was never known

    def worst(self) -> list[int]:
        """Up to five variables that score nearly as high as the worst, worst first."""
        order = np.argsort(-self.scores, kind="stable")[:NAMED]
        return [int(self.variables[c]) for c in order if self.scores[c] >= LEANING * self.scores[order[0]]]


class Gathering(Saved):
    """Gathers a signature from time steps that arrive in chunks of any size, in constant memory.

    The parts of an event are equally long, the last one may be shorter. Their length doubles whenever there would be
    more than `PARTS` of them.
    """

    saved: ClassVar[Table] = {
        "steps": integers("start", "stop", "_size"),
        "scores": array("_scores", "variable"),
        "low": array("_low", PARTS, "variable", unknown=True),
        "high": array("_high", PARTS, "variable", unknown=True),
        "errors": array("_errors", PARTS, "view", "variable", unknown=True),
    }

    def __init__(self, start: int, views: int, width: int) -> None:
        self.start, self.stop = start, start
        self._size = 1  # time steps in a part
        self._scores = np.zeros(width)
        self._low, self._high = np.full((PARTS, width), np.inf), np.full((PARTS, width), -np.inf)
        self._errors = np.full((PARTS, views, width), -np.inf)

    def add(self, rows: Floats, errors: Floats, scores: Floats) -> None:
        """Add the next time steps: scaled rows (time, variable), errors (time, view, variable), calibrated scores."""
        begin = 0
        while begin < len(rows):
            count = self.stop - self.start
            while count >= PARTS * self._size:
                self._merge()
            part = slice(begin, begin + self._size - count % self._size)
            own = self._scores, self._low, self._high, self._errors
            _gather(rows[part], errors[part], scores[part], count // self._size, *own)
            self.stop += len(rows[part])
            begin = part.stop

    def _merge(self) -> None:
        """Merge pairs of parts, which leaves half of them free."""
        self._size *= 2
        half = PARTS // 2
        for parts, merge, nothing in (
            (self._low, np.minimum, np.inf),
            (self._high, np.maximum, -np.inf),
            (self._errors, np.maximum, -np.inf),
        ):
            parts[:half] = merge(parts[::2], parts[1::2])
            parts[half:] = nothing

    def signature(self) -> Signature:
        """The signature of the time steps so far; it has no columns if nothing was hot."""
        columns = np.flatnonzero((self._low < np.inf).any(axis=0))
        own = (array[..., columns].copy() for array in (self._scores, self._low, self._high, self._errors))
        return Signature(columns, *own)

    def sizes(self) -> dict[str, int]:
        return dict(zip(("view", "variable"), self._errors.shape[1:], strict=True))

    def check_state(self) -> None:
        fits = 0 <= self.start <= self.stop <= self.start + PARTS * self._size and self._size >= 1
        require_state(fits, "its array 'steps' is not that of an event")


@jit
def _gather(
    rows: Floats, errors: Floats, scores: Floats, part: int, highest: Floats, low: Floats, high: Floats, most: Floats
) -> None:
    """Extend a part of a signature by the hot cells of time steps."""
    steps, width = rows.shape
    for t in range(steps):
        limit = min(scores[t].max(), HOT)
        for i in range(width):
            score = scores[t, i]
            highest[i] = max(highest[i], score)
            if score >= limit and score > USUAL:
                low[part, i] = min(low[part, i], rows[t, i])
                high[part, i] = max(high[part, i], rows[t, i])
                for v in range(errors.shape[1]):
                    if errors[t, v, i] > most[part, v, i]:  # not if it is unknown
                        most[part, v, i] = errors[t, v, i]


def packed(signatures: Sequence[Signature]) -> dict[str, Array]:
    """Several signatures as few arrays: the columns of all of them side by side; `unpacked` undoes it."""
    if not signatures:
        return {}
    fields = zip(Signature._fields, zip(*signatures, strict=True), strict=True)
    columns = np.array([len(one.variables) for one in signatures], np.int64)
    return {"columns": columns} | {name: np.concatenate(arrays, axis=-1) for name, arrays in fields}


def signatures(at: str) -> SavedField:
    """The attribute `at` is a sequence of signatures, saved as few arrays; their sizes are "view" and "variable"."""

    def save(owner: Any, name: str, state: dict[str, Any]) -> None:
        state |= with_part(name, packed(getattr(owner, at)))

    def load(owner: Any, name: str, state: Mapping[str, Any], sizes: dict[str, Any]) -> None:
        setattr(owner, at, unpacked(part_of(state, name), sizes["view"], sizes["variable"]))

    return SavedField(save, load)


def unpacked(arrays: Mapping[str, Array], views: int, width: int) -> tuple[Signature, ...]:
    """The signatures that `packed` put together, with these numbers of views and variables."""
    if not arrays:
        return ()
    counts = taken(arrays, "columns", ("signature",), np.int64)
    require_state(bool(((counts >= 0) & (counts <= width)).all()), "its array 'columns' is not one of counts")
    total = int(counts.sum())
    fields = Signature(
        taken(arrays, "variables", (total,), np.int64),
        taken(arrays, "scores", (total,)),
        taken(arrays, "low", (PARTS, total), unknown=True),
        taken(arrays, "high", (PARTS, total), unknown=True),
        taken(arrays, "errors", (PARTS, views, total), unknown=True),
    )
    known = bool(((fields.variables >= 0) & (fields.variables < width)).all())
    require_state(known, "its array 'variables' is not one of variables")
    split = [np.split(field, np.cumsum(counts)[:-1], axis=-1) for field in fields]
    return tuple(Signature(*own) for own in zip(*split, strict=True))


class Boxes(NamedTuple):
    columns: Integers  # (signature, variable)  where to find a variable in the other fields; -1 if it was never hot
    low: Floats  # (part, column)
    high: Floats  # (part, column)
    errors: Floats  # (part, view, column)


@dataclass(frozen=True)
class Signatures:
    """Everything that counts as normal, or as a fault, because a person said so."""

    margin: Floats  # (variable,)  how far outside of a box a reading may be
    normal: tuple[Signature, ...] = ()
    faults: tuple[Signature, ...] = ()
    factor: float = FACTOR

    def excuse(self, fused: Scores, errors: Errors, highs: Floats, pooling: int) -> Scores:
        """Scores in which hot cells that match a normal signature count as usual.

        They were `fused` with this `pooling` from errors with the high quantiles `highs` (view, variable). A cell
        matches a signature if it matches one of its boxes: the reading is in the box or at most `margin` outside, and
        no error is both above its high quantile and more than `factor` times that of the box. A step has the lowest
        score that a single signature gives it, unless all of its hot cells match one and the same fault.
        """
        if not self.normal:
            return fused
        alerts = fused.alerts.copy()
        boxes = self._normal_boxes, self._fault_boxes
        _excuse(*errors, fused.variables, *boxes, self.margin, self.factor, highs, pooling, alerts)
        return fused._replace(alerts=alerts)

    @cached_property
    def _normal_boxes(self) -> Boxes:
        return self._boxes(self.normal)

    @cached_property
    def _fault_boxes(self) -> Boxes:
        return self._boxes(self.faults)

    def _boxes(self, signatures: tuple[Signature, ...]) -> Boxes:
        columns = np.full((len(signatures), len(self.margin)), -1, np.int64)
        if not signatures:
            none = np.empty((PARTS, 0))
            return Boxes(columns, none, none, np.empty((PARTS, 0, 0)))
        arrays, first = packed(signatures), 0
        for own, signature in zip(columns, signatures, strict=True):
            own[signature.variables] = first + np.arange(len(signature.variables))
            first += len(signature.variables)
        return Boxes(columns, arrays["low"], arrays["high"], arrays["errors"])


@jit
def _excuse(
    rows: Floats,
    errors: Floats,
    variables: Floats,
    normal: Boxes,
    faults: Boxes,
    margin: Floats,
    factor: float,
    highs: Floats,
    pooling: int,
    scores: Floats,
) -> None:
    """`Signatures.excuse`, in place."""
    steps, width = rows.shape
    left, powers = np.empty(width), np.empty(width)
    for t in range(steps):
        highest = variables[t].max()
        if highest <= USUAL:
            continue
        hot = np.flatnonzero(variables[t] >= min(highest, HOT))
        is_fault = False
        for p in range(len(faults.columns)):
            matched = 0
            for i in hot:
                matched += _matches(rows[t, i], errors[t, :, i], faults, p, i, margin[i], factor, highs[:, i])
            is_fault |= matched == len(hot)
        for p in range(0 if is_fault else len(normal.columns)):
            matched = 0
            for i in hot:
                if _matches(rows[t, i], errors[t, :, i], normal, p, i, margin[i], factor, highs[:, i]):
                    if matched == 0:
                        for j in range(width):
                            left[j] = variables[t, j]
                    left[i] = USUAL
                    matched += 1
            if matched > 0:
                scores[t] = min(scores[t], pooled(left, powers, pooling))


@jit
def _matches(
    reading: float, errors: Floats, boxes: Boxes, p: int, i: np.intp, margin: float, factor: float, highs: Floats
) -> bool:
    """Whether a cell of variable `i` with these errors (view,) matches one of the boxes of signature `p`."""
    c = boxes.columns[p, i]
    if c < 0:
        return False
    for part in range(len(boxes.low)):
        if boxes.low[part, c] - margin <= reading <= boxes.high[part, c] + margin:
            within = True
            for v in range(len(errors)):  # an unknown error is within any limit
                within &= not (errors[v] > highs[v] and errors[v] > factor * boxes.errors[part, v, c])
            if within:
                return True
    return False
