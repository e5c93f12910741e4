"""A wide table as several narrow ones: blocks of columns that belong together, each with a fitted view of its own.

The few directions or codes of one view would be spent on the strongest columns of a wide table, and the relations of
the others would stay unknown. The cost of a reading stays linear in the number of variables.
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
LEAST = 1e-9  # length of a column: a shorter one is a constant with rounding errors
UNITS = 1_000_000  # of a correlation: in integers, copies of a column tie, whatever the order of additions


def blocks_of(rows: Floats) -> Integers:
    """The block of each column (variable,) of rows (time, variable).

    A block begins with the column closest to all that are left, and always takes the one closest to those it has, by
    absolute correlations; of a tie, the first. It ends when none is close, or when it is full.
    """
    known = rows[:: -(-len(rows) // SAMPLE)]
    known = known - known.mean(axis=0)
    norms = np.sqrt((known**2).sum(axis=0))
    known /= np.where(norms > LEAST, norms, np.inf)
    near = np.abs(UNITS * (known.T @ known)).round().astype(np.int64)
    width = len(near)
    most = -(-width // -(-width // MOST))  # 65 columns that belong together are 33 and 32
    close_to_all, free = near.sum(axis=1), np.ones(width, bool)
    blocks: list[list[int]] = []
    others: list[int] = []
    while free.any():
        own, close, i = [], np.zeros(width, np.int64), int(np.where(free, close_to_all, -1).argmax())
        while free[i] and len(own) < most and close[i] >= CLOSE * UNITS * len(own):
            own.append(i)
            free[i] = False
            close += near[i]
            close_to_all -= near[i]
            i = int(np.where(free, close, -1).argmax())
        if len(own) < FEW:
            others += own
        else:
            blocks.append(own)
    block = np.empty(width, np.int64)
    for number, own in enumerate([*blocks, *np.array_split(np.array(others, np.int64), -(-len(others) // MOST) or 1)]):
        block[own] = number
    return block


class FittedBlocks(WindowView):
    """Fitted views of one kind, each of the columns of a block; `block` (variable,) says which one a column is in."""

    def __init__(self, view: Any, block: Integers, views: Sequence[WindowView]) -> None:
        self.block, self.views, self.width = block, views, len(block)
        self.context, self.span = views[0].context, views[0].span
        self.columns = [np.flatnonzero(block == number) for number in range(len(views))]
        self.saved = _table(view)
        self.write = self._write

    def _write(self, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int) -> None:
        for columns, view in zip(self.columns, self.views, strict=True):
            own = np.empty((count, 1, len(columns)))
            view.write(rows[begin:].take(columns, axis=1), 0, count, expected, own, 0)
            out[len(out) - count :, v, columns] = own[:, 0]


def _table(view: Any) -> Table:
    return {
        "block": array("block", "variable", dtype=np.int64, make=_checked),
        "part": parts("views", lambda own: [view] * (int(own.block.max()) + 1)),
    }


def _checked(block: Integers) -> Integers:
    sizes = np.bincount(block) if block.min() >= 0 and block.max() < len(block) else np.zeros(1)
    require_state(bool(sizes.all()), "its array 'block' does not number blocks")
    return block


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
        """The fitted view with a state; the settings are the lengths of its arrays."""
        if "block" not in state:
            return super().restore(state)
        made = loaded(partial(FittedBlocks, self), _table(self), state, {})
        widths = [(getattr(view, "width", 0), len(own)) for view, own in zip(made.views, made.columns, strict=True)]
        require_state(all(width == size for width, size in widths), "its blocks have other columns than its parts")
        return made
