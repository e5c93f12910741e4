"""Detectors that tests share: with the same parameters on the same readings, a detector is fitted once in a run.

The bytes of what is fitted lie in .pytest_cache, under a hash of the source, the detector and its readings: the workers
of pytest-xdist share them, and the next run finds them. A test must not change a detector that it shares.
"""

import hashlib
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cometad.files import write_whole

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", ROOT / "bench" / "src")
_known: dict[str, Any] = {}


def fitted(detector: Any, readings: np.ndarray | pl.DataFrame) -> Any:
    """The detector, fitted on an array or a frame of readings."""
    name = _name(detector, readings)
    if name not in _known:
        file = _folder() / name
        if file.exists():
            _known[name] = type(detector).from_bytes(file.read_bytes())
        else:
            _known[name] = detector.fit(readings)
            write_whole(file, lambda temporary: temporary.write_bytes(detector.to_bytes()))
    return _known[name]


def _name(detector: Any, readings: np.ndarray | pl.DataFrame) -> str:
    if isinstance(readings, pl.DataFrame):
        parts = [readings.write_csv().encode()]
    else:
        parts = [repr(readings.shape).encode(), np.ascontiguousarray(readings, np.float64).tobytes()]
    parameters = sorted(detector.get_params(deep=False).items())
    return hashlib.sha256(b"".join([type(detector).__name__.encode(), repr(parameters).encode(), *parts])).hexdigest()


@cache
def _folder() -> Path:
    """The folder of the source as it is; those of earlier versions are removed."""
    digest = hashlib.sha256()
    for file in sorted(file for source in SOURCES for file in source.rglob("*.py")):
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    folder = ROOT / ".pytest_cache" / "fitted" / digest.hexdigest()[:16]
    if not folder.exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    return folder
