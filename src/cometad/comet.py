"""Comet: the detector that most users want."""

import os
from typing import TYPE_CHECKING, Any

from cometad.checkpoint import kind_of
from cometad.detector import Detector
from cometad.errors import imported_for

__all__ = ["Comet"]

if TYPE_CHECKING:
    from cometad.network_comet import NetworkComet as Comet
else:

    class Comet(Detector):
        """Makes a `NetworkComet`, the detector with the trained network, with its defaults.

        >>> from cometad import Comet
        >>> type(Comet(seed=1)).__name__
        'NetworkComet'
        """

        can_stream = can_explain = can_adapt = True

        def __new__(cls, **parameters: Any) -> Detector:
            """Return a `NetworkComet` with these parameters."""
            return _network("Comet()")(**parameters)

        @classmethod
        def paper(cls, dataset: str | None = None, **changes: Any) -> Detector:
            """The published method, with the paper's codebook size and dimension for a dataset.

            >>> from cometad import Comet
            >>> detector = Comet.paper("WADI", seed=1)
            >>> detector.codebook_size, detector.dim, detector.patch_sizes
            (32, 64, (2, 4, 6))
            """
            return _network("Comet.paper()").paper(dataset, **changes)

        @classmethod
        def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Detector:
            """Load a detector that `save` wrote, onto its original device or another."""
            if kind_of(path) != "NetworkComet":
                return super().load(path, device=device)
            return _network(f"The detector in '{path}'").load(path, device=device)


def _network(user: str) -> Any:
    """`NetworkComet`, imported when it is needed, because torch is optional; `user` is who needs it."""
    return imported_for(user, "cometad.network_comet").NetworkComet
