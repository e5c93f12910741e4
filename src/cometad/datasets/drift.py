"""Controlled drift: in the distribution cometad-bench; this is the name of earlier versions."""

from cometad.errors import imported_for

_moved = imported_for(__name__, "cometad_bench.datasets.drift")


def __getattr__(name: str) -> object:
    return getattr(_moved, name)
