"""Saved state: one file with JSON for parameters and safetensors for arrays, a format number, and no pickle."""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cometad.arrays import Array
from cometad.errors import ModelFileError
from cometad.files import write_whole

FORMAT = 2  # 2 added threshold rules and the training counts of codes
LONGEST_HEADER = 100_000_000  # bytes, the limit of safetensors

_NOT_WHOLE = "{source} is not a complete saved {kind}."


class Checkpoint(NamedTuple):
    """The content of a file."""

    kind: str  # the class that was saved
    facts: dict[str, Any]  # anything JSON can hold
    arrays: dict[str, Array]


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Serialize a checkpoint; equal state gives equal bytes.

    >>> import numpy as np
    >>> from cometad.checkpoint import Checkpoint, from_bytes, to_bytes
    >>> from_bytes(to_bytes(Checkpoint("Comet", {"seed": 42}, {"threshold": np.ones(1)})), "Comet").facts
    {'seed': 42}
    """
    header = {"format": FORMAT, "kind": checkpoint.kind, "facts": checkpoint.facts}
    # Copies are contiguous, which safetensors needs; unlike np.ascontiguousarray, they keep the shape ().
    arrays = {name: np.array(array, order="C") for name, array in checkpoint.arrays.items()}
    return bytes(save(arrays, {"cometad": json.dumps(header)}))


def write(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint to one file, completely or not at all."""
    content = to_bytes(checkpoint)
    write_whole(path, lambda temporary: temporary.write_bytes(content))


def read(path: str | os.PathLike[str], kind: str, needs: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint; refuse a file that lacks one of the facts in `needs`."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"Cannot read '{path}': {error.strerror}. Pass the path of a saved {kind}.") from error
    return from_bytes(content, kind, f"'{path}'", needs)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The name of the class saved in a file; empty if it is not a checkpoint.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.checkpoint import Checkpoint, kind_of, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "detector", Checkpoint("Comet", {}, {}))
    ...     kind_of(Path(folder) / "detector")
    'Comet'
    """
    try:
        with Path(path).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return _kind(_header(file.read(min(size, LONGEST_HEADER))))
    except (OSError, KeyError, TypeError, ValueError):
        return ""


def from_bytes(content: bytes, kind: str, source: str = "This", needs: Collection[str] = ()) -> Checkpoint:
    """Parse a checkpoint; refuse bytes that are not a complete one of this kind."""
    header, arrays = _parse(content, kind, source)
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{source} was written by a newer cometad (format {header['format']}; this one reads format {FORMAT}). "
            "Upgrade cometad."
        )
    if header["format"] < FORMAT:
        raise ModelFileError(
            f"{source} was written by an older cometad (format {header['format']}; this one reads format {FORMAT}). "
            "Fit and save it again."
        )
    if header["kind"] != kind:
        raise ModelFileError(f"{source} holds a saved {header['kind']}, not a {kind}. Pass the path of a saved {kind}.")
    if not header["facts"].keys() >= set(needs):
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind), advice="not saved")
    return Checkpoint(header["kind"], header["facts"], arrays)


def _parse(content: bytes, kind: str, source: str) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        arrays = load(content)  # checks the length of every array first
        # safetensors reads metadata only from files, so parse the header here: its length, then JSON.
        size = int.from_bytes(content[:8], "little")
        header = _header(content[8 : 8 + size])
        header = {"format": int(header["format"]), "kind": _kind(header), "facts": dict(header["facts"])}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind), advice="not saved") from error
    return header, {name: array.copy() for name, array in arrays.items()}  # writable


def _kind(header: dict[str, Any]) -> str:
    """The class that was saved. `NetworkComet` was called `Comet` when a Comet had no views."""
    parameters = header["facts"].get("parameters", {})
    old = header["kind"] == "Comet" and parameters and "views" not in parameters
    return "NetworkComet" if old else str(header["kind"])


def _header(content: bytes) -> dict[str, Any]:
    """The cometad entry of a safetensors header."""
    header: dict[str, Any] = json.loads(json.loads(content)["__metadata__"]["cometad"])
    return header
