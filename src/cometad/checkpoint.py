"""Saved state: one file with JSON for parameters and safetensors for arrays, a format number, a hash, and no pickle.

The header carries the SHA-256 of the whole file, computed with zeros in its place: a damaged file does not load. The
hash is no signature: whoever can write the file can compute it. So what is read is checked too, by `cometad.saving`.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cometad.arrays import Array
from cometad.errors import CometadError, MissingExtraError, ModelFileError
from cometad.files import write_whole
from cometad.saving import InvalidState

FORMAT = 3  # 2 added threshold rules and the training counts of codes, 3 the hash
WITHOUT_HASH = 2  # the format of cometad 0.1
LONGEST_HEADER = 100_000_000  # bytes, the limit of safetensors
HASH = "sha256"
NO_HASH = "0" * 64  # in its place while the hash is computed

_NOT_WHOLE = "{source} is not a complete saved {kind}."
_DAMAGED = "{source} is damaged: its content does not match its SHA-256. Restore it from a copy, or create it anew."
# Whatever parsing or restoring bytes that anyone may have written can raise.
_INVALID = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)

_log = logging.getLogger("cometad")


class Checkpoint(NamedTuple):
    kind: str  # the class that was saved
    facts: dict[str, Any]  # anything JSON can hold
    arrays: dict[str, Array]


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Serialize a checkpoint; equal state gives equal bytes."""
    return with_hash(_serialized(checkpoint, {"format": FORMAT, HASH: NO_HASH}))


def to_bytes_0_1(checkpoint: Checkpoint) -> bytes:
    """The bytes that cometad 0.1 wrote, without a hash: its snapshots name their detector by them."""
    return _serialized(checkpoint, {"format": WITHOUT_HASH})


def _serialized(checkpoint: Checkpoint, start: dict[str, Any]) -> bytes:
    header = {**start, "kind": checkpoint.kind, "facts": checkpoint.facts}
    # Copies are contiguous, which safetensors needs; unlike np.ascontiguousarray, they keep the shape ().
    arrays = {name: np.array(array, order="C") for name, array in checkpoint.arrays.items()}
    return bytes(save(arrays, {"cometad": json.dumps(header)}))


def with_hash(content: bytes) -> bytes:
    """A serialized checkpoint with the hash of its content in place of the first hash, or of the zeros for it."""
    begin = _place_of_hash(content)
    return content[:begin] + _hash(content, begin).encode() + content[begin + len(NO_HASH) :]


def _place_of_hash(content: bytes) -> int:
    """Where the hash begins; 0 if there is none. It is the second entry of our header, before anything of a user."""
    begin = content.find(b'{\\"format\\"')
    field = b'\\"' + HASH.encode() + b'\\": \\"'
    found = content.find(field, begin, begin + 64) if begin >= 0 else -1
    return found + len(field) if found >= 0 else 0


def _hash(content: bytes, begin: int) -> str:
    view = memoryview(content)
    digest = hashlib.sha256(view[:begin])
    digest.update(NO_HASH.encode())
    digest.update(view[begin + len(NO_HASH) :])
    return digest.hexdigest()


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


def kind_of(saved: str | os.PathLike[str] | bytes) -> str:
    """The name of the class saved in a file or in bytes; empty if there is no checkpoint."""
    try:
        with io.BytesIO(saved) if isinstance(saved, bytes) else Path(saved).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return _kind(_header(file.read(min(size, LONGEST_HEADER))))
    except (OSError, *_INVALID):
        return ""


def from_bytes(content: bytes, kind: str, source: str = "This", needs: Collection[str] = ()) -> Checkpoint:
    """Parse a checkpoint; refuse bytes that are damaged or not a complete one of this kind."""
    header, arrays = _parse(content, kind, source)
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{source} was written by a newer cometad (format {header['format']}; this one reads format {FORMAT}). "
            "Upgrade cometad."
        )
    if header["format"] < WITHOUT_HASH:
        raise ModelFileError(
            f"{source} was written by an older cometad (format {header['format']}; this one reads format {FORMAT}). "
            "Fit and save it again."
        )
    _check_hash(content, header, source)
    if header["kind"] != kind:
        raise ModelFileError(f"{source} holds a saved {header['kind']}, not a {kind}. Pass the path of a saved {kind}.")
    if not header["facts"].keys() >= set(needs):
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind), advice="not saved")
    return Checkpoint(header["kind"], header["facts"], arrays)


def _check_hash(content: bytes, header: dict[str, Any], source: str) -> None:
    if header["format"] == WITHOUT_HASH and HASH not in header:
        _log.info("%s was written by cometad 0.1, which saved no hash: damage cannot be detected.", source)
        return
    begin = _place_of_hash(content)
    if begin == 0 or _hash(content, begin) != header.get(HASH):
        raise ModelFileError(_DAMAGED.format(source=source))


@contextmanager
def restoring(kind: str, source: str) -> Iterator[None]:
    """Turn whatever goes wrong while a checkpoint is restored into an error of one sentence about its source."""
    try:
        yield
    except InvalidState as error:
        raise ModelFileError(f"{source} is not a valid saved {kind}: {error}") from error
    except (MissingExtraError, ModelFileError):
        raise
    except CometadError as error:  # of a parameter, say
        raise ModelFileError(f"{source} is not a valid saved {kind}. {error}") from error
    except _INVALID as error:
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind), advice="not saved") from error


def _parse(content: bytes, kind: str, source: str) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        arrays = load(content)  # checks the length of every array first
        # safetensors reads metadata only from files, so parse the header here: its length, then JSON.
        size = int.from_bytes(content[:8], "little")
        header = _header(content[8 : 8 + size])
        header = {**header, "kind": _kind(header)}
    except (SafetensorError, *_INVALID) as error:
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind), advice="not saved") from error
    return header, {name: array.copy() for name, array in arrays.items()}  # writable


def _kind(header: dict[str, Any]) -> str:
    """The class that was saved. `NetworkComet` was called `Comet` when a Comet had no views."""
    parameters = header["facts"].get("parameters", {})
    old = header["kind"] == "Comet" and parameters and "views" not in parameters
    return "NetworkComet" if old else str(header["kind"])


def _header(content: bytes) -> dict[str, Any]:
    header = json.loads(json.loads(content)["__metadata__"]["cometad"])
    types = {"format": int, "kind": str, "facts": dict}
    if not isinstance(header, dict) or any(type(header[name]) is not kind for name, kind in types.items()):
        raise ValueError("The header is not one of cometad's.")
    return header
