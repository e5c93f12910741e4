"""Entities that stay on disk until they are needed: a large collection does not fit into memory."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from cometad.datasets.dataset import Dataset
from cometad.errors import InputError


@dataclass(frozen=True, eq=False)
class StoredDataset:
    """One entity in a file of its own, with the function that reads it."""

    name: str
    entity: str
    path: Path
    parse: Callable[["StoredDataset"], Dataset]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the file in 16 hex digits."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            raise InputError(f"Cannot read '{self.path}': {error.strerror}. Check its permissions.") from error


def opened(entity: Dataset | StoredDataset) -> Dataset:
    """Return an entity with its series, read from disk if necessary. Only the last one read stays in memory."""
    return entity if isinstance(entity, Dataset) else _read(entity)


@lru_cache(maxsize=1)
def _read(entity: StoredDataset) -> Dataset:
    return entity.parse(entity)
