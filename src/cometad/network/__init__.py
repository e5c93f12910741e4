"""The network of the paper: patches, encoder, codebook, training, memory, adaptation. Fast versions are in `fast`.

In: scaled windows. Out: distances to the codebook per patch, and a codebook that adapts.
Equal to the bit: equal seeds give equal bytes on one thread count. docs/notation.md maps equations to functions.
"""

from typing import TYPE_CHECKING, Any

from cometad.errors import imported_for
from cometad.network.schedules import Converging, Epochs, Halving, OneCycle

if TYPE_CHECKING:
    from cometad.network.adaptation import NoAdaptation, OnlineAdaptation

__all__ = ["Converging", "Epochs", "Halving", "NoAdaptation", "OneCycle", "OnlineAdaptation"]


def __getattr__(name: str) -> Any:
    if name in ("NoAdaptation", "OnlineAdaptation"):  # imported on first use, because they need torch
        return getattr(imported_for(name, "cometad.network.adaptation"), name)
    raise AttributeError(f"module 'cometad.network' has no attribute {name!r}")
