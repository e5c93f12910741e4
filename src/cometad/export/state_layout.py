"""The state of an exported stream: one flat tensor, made of named parts."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cometad.arrays import Floats
from cometad.export.graph import Graph, Wire

SEEN = "seen"


class Slot(NamedTuple):
    """A part of the state."""

    name: str
    initial: Floats  # before the first reading
    meaning: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.initial.shape)


class StateLayout:
    """The positions of the parts of the state. The first part counts readings; while it is 0, all have initial values.

    So a device starts with zeros, and only needs to know the size.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = [Slot(SEEN, np.zeros(1), "readings so far, capped at the longest look-back of the views"), *slots]
        self.size = sum(slot.size for slot in self._slots)

    def described(self) -> list[dict[str, object]]:
        """Name, offset, shape and meaning of each part, as JSON."""
        described, offset = [], 0
        for slot in self._slots:
            shape = list(slot.initial.shape)
            described.append({"name": slot.name, "offset": offset, "shape": shape, "meaning": slot.meaning})
            offset += slot.size
        return described

    def unpacked(self, graph: Graph, state: Wire) -> dict[str, Wire]:
        """The parts of a state (number,)."""
        initial = np.concatenate([slot.initial.ravel() for slot in self._slots])
        current = graph.where(graph.rows(state, 0, 1).same(0.0), initial, state)
        sizes = np.array([slot.size for slot in self._slots])
        parts = graph.several("Split", len(sizes), current, sizes, axis=0)
        return {
            slot.name: part if slot.initial.ndim == 1 else graph.reshape(part, slot.initial.shape)
            for slot, part in zip(self._slots, parts, strict=True)
        }

    def packed(self, graph: Graph, parts: Mapping[str, Wire]) -> Wire:
        """The state (number,) with these parts."""
        flat = [
            parts[slot.name] if slot.initial.ndim == 1 else graph.reshape(parts[slot.name], (-1,))
            for slot in self._slots
        ]
        return graph("Concat", *flat, axis=0)
