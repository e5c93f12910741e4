"""Comet: the detector that most users want."""

import os
from typing import TYPE_CHECKING, Any

from cometad.checkpoint import kind_of
from cometad.detector import Detector

if TYPE_CHECKING:
    from cometad.network_comet import NetworkComet


class Comet(Detector):
    """Makes a `NetworkComet`, the detector with the trained network, with its defaults.

    >>> from cometad import Comet
    >>> type(Comet(seed=1)).__name__
    'NetworkComet'
    """

    can_stream = can_explain = can_adapt = True

    def __new__(cls, **parameters: Any) -> "NetworkComet":
        """Return a `NetworkComet` with these parameters."""
        from cometad.network_comet import NetworkComet

        return NetworkComet(**parameters)

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> "NetworkComet":
        """The published method, with the paper's codebook size and dimension for a dataset.

        >>> from cometad import Comet
        >>> detector = Comet.paper("WADI", seed=1)
        >>> detector.codebook_size, detector.dim, detector.patch_sizes
        (32, 64, (2, 4, 6))
        """
        from cometad.network_comet import NetworkComet

        return NetworkComet.paper(dataset, **changes)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> "NetworkComet":
        """Load a detector that `save` wrote, onto its original device or another."""
        from cometad.network_comet import NetworkComet

        if kind_of(path) != "NetworkComet":
            return super().load(path, device=device)
        return NetworkComet.load(path, device=device)
