"""Saved state: parameters as JSON and tensors as safetensors in one file, with a format number and without pickle."""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cometad.errors import ModelFileError
from cometad.files import write_whole

FORMAT = 1

_NOT_WHOLE = "{source} is not a saved {kind}, or only a part of one. Pass a whole file written by save."


class Checkpoint(NamedTuple):
    """What a file holds."""

    kind: str  # the class that was saved
    facts: dict[str, Any]  # what JSON can hold
    tensors: dict[str, Tensor]


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint: the same state gives the same bytes.

    >>> import torch
    >>> from cometad.checkpoint import Checkpoint, from_bytes, to_bytes
    >>> from_bytes(to_bytes(Checkpoint("Comet", {"seed": 42}, {"threshold": torch.ones(1)})), "Comet").facts
    {'seed': 42}
    """
    header = {"format": FORMAT, "kind": checkpoint.kind, "facts": checkpoint.facts}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    return bytes(save(tensors, {"cometad": json.dumps(header)}))


def write(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint to one file, whole or not at all."""
    content = to_bytes(checkpoint)
    write_whole(path, lambda aside: aside.write_bytes(content))


def read(path: str | os.PathLike[str], kind: str, needs: Collection[str] = ()) -> Checkpoint:
    """The checkpoint in a file, with the facts it needs to have."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"Cannot read '{path}': {error.strerror}. Pass the path of a saved {kind}.") from error
    return from_bytes(content, kind, f"'{path}'", needs)


def from_bytes(content: bytes, kind: str, source: str = "This", needs: Collection[str] = ()) -> Checkpoint:
    """The checkpoint in some bytes; refused with a sentence where they are not a whole one of this kind."""
    header, tensors = _parse(content, kind, source)
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{source} was written by a newer cometad (format {header['format']}; this one reads up to {FORMAT}). "
            "Upgrade cometad."
        )
    if header["kind"] != kind:
        raise ModelFileError(f"{source} holds a saved {header['kind']}, not a {kind}. Pass the path of a saved {kind}.")
    if not header["facts"].keys() >= set(needs):
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind))
    return Checkpoint(header["kind"], header["facts"], tensors)


def _parse(content: bytes, kind: str, source: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        tensors = load(content)  # checks the length of every tensor first
        # The format begins with the length of its JSON header; safetensors shows our part of it only for files.
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cometad"])
        header = {"format": int(header["format"]), "kind": header["kind"], "facts": dict(header["facts"])}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(_NOT_WHOLE.format(source=source, kind=kind)) from error
    return header, tensors
