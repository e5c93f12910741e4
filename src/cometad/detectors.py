"""All detectors by command-line name, and a loader for any of them."""

import os

from cometad.baselines import BASELINES
from cometad.checkpoint import kind_of
from cometad.detector import Detector
from cometad.lazy import LazyTable

DETECTORS: LazyTable[type[Detector]] = LazyTable(
    "detector",
    {"comet": "cometad.comet:Comet", "network": "cometad.network_comet:NetworkComet", **BASELINES.rows},
)


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
    name = DETECTORS.name_of(kind_of(path)) or "comet"  # for an unknown class, Comet.load raises the error
    return DETECTORS[name].load(path)


def load_bytes(content: bytes, source: str = "This") -> Detector:
    """Load a detector of any class from the bytes of a saved file; `source` names them in an error."""
    name = DETECTORS.name_of(kind_of(content)) or "comet"
    return DETECTORS[name].from_bytes(content, source)
