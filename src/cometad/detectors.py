"""All detectors by command-line name, and a loader for any of them."""

import os

from cometad.baselines import BASELINES
from cometad.checkpoint import kind_of
from cometad.comet import Comet
from cometad.detector import Detector
from cometad.network_comet import NetworkComet

DETECTORS: dict[str, type[Detector]] = {"comet": Comet, "network": NetworkComet, **BASELINES}  # type: ignore[type-abstract]


def load(path: str | os.PathLike[str]) -> Detector:
    """Load a detector of any class from a file that `save` wrote.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cometad import BASELINES, load
    >>> normal = np.random.default_rng(0).normal(size=(500, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     BASELINES["pca"]().fit(normal).save(Path(folder) / "plant.comet")
    ...     type(load(Path(folder) / "plant.comet")).__name__
    'PcaError'
    """
    known = {kind.__name__: kind for kind in DETECTORS.values()}
    return known.get(kind_of(path), Comet).load(path)  # for an unknown class, Comet.load raises the error
