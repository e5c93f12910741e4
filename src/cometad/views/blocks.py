"""A wide table as several narrow ones: a relation view is fitted on blocks of columns that belong together.

The few directions or codes of one view for all columns would be spent on the strongest, and say nothing of the others.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.saving import State, Table, array, loaded, parts, require_state
from cometad.views.view import SavedView, WindowView

MOST, FEW = 64, 8  # columns of a block; fewer that belong together share one with others
CLOSE = 0.3  # mean absolute correlation with a block, at least, of a column that belongs to it
SAMPLE = 2_000  # rows, at most, for the correlations
LEAST = 1e-9  # length of a column: what is shorter is a constant with rounding errors
UNITS = 1_000_000  # of a correlation: in integers, copies of a column tie, whatever the order of additions


def blocks_of(rows: Floats) -> Integers:
    """The block of each column (variable,) of rows (time, variable).

    A block begins with the column closest to all that are left, and always takes the one closest to those it has, by
    absolute correlations; of a tie, the first. It ends when none is close, or when it is full.
    """
    known = rows[:: -(-len(rows) // SAMPLE)]
    known = known - known.mean(axis=0)
    known /= np.maximum(np.linalg.norm(known, axis=0), LEAST)
    near = np.abs(UNITS * (known.T @ known)).round().astype(np.int64)
    close_to_all, width = near.sum(axis=1), len(near)
    most = -(-width // -(-width // MOST))  # 65 columns that belong together are 33 and 32
    block, count, others = np.full(width, -1), 0, np.empty(0, np.int64)
    while (block < 0).any():
        own: list[int] = []
        close, i = np.zeros(width, np.int64), int(np.where(block < 0, close_to_all, -1).argmax())
        while block[i] < 0 and len(own) < most and close[i] >= CLOSE * UNITS * len(own):
            own.append(i)
            block[i] = count
            close += near[i]
            close_to_all -= near[i]
            i = int(np.where(block < 0, close, -1).argmax())
        count += len(own) >= FEW
        others = others if len(own) >= FEW else np.append(others, own)
    for k, columns in enumerate(np.array_split(others, -(-len(others) // MOST) or 1)):
        block[columns] = count + k
    return block


class FittedBlocks(WindowView):
    """Fitted views of one kind, each of the columns of a block; `block` (variable,) says which one a column is in."""

    def __init__(self, view: Any, block: Integers, views: Sequence[Any]) -> None:
        self.block, self.views, self.width = block, views, len(block)
        self.context, self.span = views[0].context, views[0].span
        self.judges_relations = getattr(views[0], "judges_relations", False)
        self.columns = [np.flatnonzero(block == number) for number in range(len(views))]
        own, found = [len(columns) for columns in self.columns], [view.width for view in views]
        require_state(own == found and sum(own) == self.width, "its blocks have other columns than its parts")
        self.write, self.saved = self._write, _table(view)  # type: ignore[misc]

    def _write(self, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int) -> None:
        for columns, view in zip(self.columns, self.views, strict=True):
            own = np.empty((count, 1, len(columns)))
            view.write(rows[begin:].take(columns, axis=1), 0, count, expected, own, 0)
            out[len(out) - count :, v, columns] = own[:, 0]


def _table(view: Any) -> Table:
    views = parts("views", lambda own: [view] * (int(own.block.max().clip(0, len(own.block) - 1)) + 1))
    return {"block": array("block", "variable", dtype=np.int64), "part": views}


class BlockView(SavedView):
    """A view of relations between variables; `fit_block` fits it on at most 64 of them."""

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> WindowView:
        if rows.shape[1] <= MOST:
            return self.fit_block(rows, usable, rng)
        block = blocks_of(rows[usable])
        own = [np.ascontiguousarray(rows[:, block == number]) for number in range(block.max() + 1)]
        return FittedBlocks(self, block, [self.fit_block(columns, usable, rng) for columns in own])

    def fit_block(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> WindowView:
        raise NotImplementedError

    def restore(self, state: State) -> WindowView:
        if "block" in state:
            return loaded(partial(FittedBlocks, self), _table(self), state, {})
        return super().restore(state)
