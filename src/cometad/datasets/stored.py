"""Datasets that are read when used: in the distribution cometad-bench; this is the name of earlier versions."""

from cometad.errors import imported_for

_moved = imported_for(__name__, "cometad_bench.datasets.stored")


def __getattr__(name: str) -> object:
    return getattr(_moved, name)
