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

MOST = 64  # columns of a block
SAMPLE = 2_000  # rows, at most, for the correlations
LEAST = 1e-9  # length of a column: a shorter one is a constant with rounding errors
UNITS = 1e6  # of a correlation: in integers, copies of a column tie, whatever the order of additions


def blocks_of(rows: Floats) -> Integers:
    """The block of each column (variable,) of rows (time, variable): as few blocks as possible, of equal sizes.

    A block begins with the column closest to all that are left, and always takes the one closest to those it has: by
    the sum of absolute correlations; of a tie, the first.
    """
    known = rows[:: -(-len(rows) // SAMPLE)]
    known = known - known.mean(axis=0)
    norms = np.sqrt((known**2).sum(axis=0))
    known /= np.where(norms > LEAST, norms, np.inf)
    near = np.abs(UNITS * (known.T @ known)).round().astype(np.int64)
    width = len(near)
    block = np.full(width, -1)
    for number, size in enumerate(map(len, np.array_split(block, -(-width // MOST)))):
        i = int(np.where(block < 0, near[:, block < 0].sum(axis=1), -1).argmax())
        close = np.zeros(width, np.int64)
        for _ in range(size):
            block[i] = number
            close += near[i]
            i = int(np.where(block < 0, close, -1).argmax())
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
    sizes = np.bincount(block) if 0 <= block.min() and block.max() < len(block) else np.zeros(1)
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
