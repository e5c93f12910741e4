"""Which entities may be looked at: `select` serves to choose a configuration, `validate` to judge it once."""

import hashlib
from typing import Literal

Part = Literal["select", "validate"]

# Entities whose labels we looked at while choosing the defaults (docs/deviations.md).
DEVELOPMENT = {
    "ASD": ("omi-1", "omi-4", "omi-7", "omi-12"),
    "MSL": ("C-1", "F-8", "P-10"),
    "SMAP": ("A-4", "D-3", "E-2", "G-2"),
    "SMD": ("machine-1-2", "machine-2-4"),
    "plants": ("seed-0",),
}
LEFT_OUT = {"MSL": ("P-14",)}  # the same test series as P-10 under other labels


def part_of(dataset: str, entity: str) -> Part | None:
    """Return the part that an entity belongs to: by the parity of the SHA-1 of its name; None if it is left out."""
    if entity in LEFT_OUT.get(dataset, ()):
        return None
    if entity in DEVELOPMENT.get(dataset, ()):
        return "select"
    is_odd = hashlib.sha1(entity.encode(), usedforsecurity=False).digest()[-1] % 2
    return "validate" if is_odd else "select"
