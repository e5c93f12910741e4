"""A dataset: a training series, a test series and its labels."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Array, Floats
from cometad.errors import InputError

Cause = tuple[tuple[int, int], tuple[int, ...]]  # a half-open interval of the test series, its anomalous variables


@dataclass(frozen=True, eq=False)  # arrays have no single truth value; compare fingerprints instead
class Dataset:
    """One entity of a benchmark (a machine, a channel, a plant), or all of its entities concatenated.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset
    >>> labels = np.array([False, True])
    >>> pump = Dataset("plant", "pump", np.zeros((3, 1)), np.ones((2, 1)), labels, names=("flow",))
    >>> pump.fingerprint
    'bb9344d254e0780a'
    """

    name: str
    entity: str  # "all" for a dataset with one entity or concatenated entities
    train: Floats  # (time, variable)
    test: Floats  # (time, variable)
    labels: NDArray[np.bool_]  # (time,) of the test series
    names: tuple[str, ...]  # (variable,)
    train_seams: tuple[int, ...] = (0,)  # first row of each entity
    test_seams: tuple[int, ...] = (0,)
    causes: tuple[Cause, ...] | None = None  # None if it is not known which variables cause the anomalies

    def __post_init__(self) -> None:
        widths = {self.train.shape[1:], self.test.shape[1:], (len(self.names),)}
        if len(widths) > 1 or len(self.test) != len(self.labels):
            raise InputError(
                f"The parts of {self.name} {self.entity!r} do not match: train {self.train.shape}, "
                f"test {self.test.shape}, labels {self.labels.shape}, {len(self.names)} names. "
                "Check the files they were read from."
            )

    def held_out_last(self, share: float) -> tuple[Floats, int]:
        """The training series with the end of each entity moved to the end of all, and how many readings that is.

        Of an entity's n readings, int((1 - share) n) stay in front. On the paper's datasets this gives its own counts.

        >>> import numpy as np
        >>> from cometad.datasets.dataset import Dataset, concatenate
        >>> days = [np.arange(10.0 * day, 10.0 * day + 4)[:, None] for day in (1, 2)]
        >>> pumps = [Dataset("plant", f"{i}", day, day, np.zeros(4, bool), ("flow",)) for i, day in enumerate(days)]
        >>> series, held_out = concatenate(pumps).held_out_last(0.25)
        >>> series[:, 0], held_out
        (array([10., 11., 12., 20., 21., 22., 13., 23.]), 2)
        """
        entities = np.split(self.train, self.train_seams[1:])
        kept = [int((1 - share) * len(entity)) for entity in entities]
        parts = [entity[:rows] for entity, rows in zip(entities, kept, strict=True)]
        parts += [entity[rows:] for entity, rows in zip(entities, kept, strict=True)]
        return np.concatenate(parts), len(self.train) - sum(kept)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content in 16 hex digits: the same on every machine, different if any value or name differs."""
        content = hashlib.sha256(json.dumps(self.names).encode())
        for part in (self.train, self.test, self.labels):
            content.update(json.dumps(part.shape).encode())
            content.update(_portable(part))
        return content.hexdigest()[:16]


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """Concatenate the entities of a dataset, keeping the row at which each starts.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset, concatenate
    >>> pump = Dataset("plant", "pump", np.zeros((3, 1)), np.zeros((2, 1)), np.ones(2, bool), ("flow",))
    >>> both = concatenate([pump, pump])
    >>> both.entity, both.train.shape, both.train_seams, both.test_seams
    ('all', (6, 1), (0, 3), (0, 2))
    """
    if not datasets:
        raise InputError("There are no entities to concatenate. Pass at least one dataset.")
    if len({dataset.names for dataset in datasets}) > 1:
        raise InputError(f"The entities of {datasets[0].name} have different variables. Use them one at a time.")
    test_seams = _seams([len(dataset.test) for dataset in datasets])
    return Dataset(
        name=datasets[0].name,
        entity="all",
        train=np.concatenate([dataset.train for dataset in datasets]),
        test=np.concatenate([dataset.test for dataset in datasets]),
        labels=np.concatenate([dataset.labels for dataset in datasets]),
        names=datasets[0].names,
        train_seams=_seams([len(dataset.train) for dataset in datasets]),
        test_seams=test_seams,
        causes=_shifted_causes(datasets, test_seams),
    )


def _portable(part: Array) -> bytes:
    return part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()


def _seams(lengths: Sequence[int]) -> tuple[int, ...]:
    return (0, *(int(end) for end in np.cumsum(lengths)[:-1]))


def _shifted_causes(datasets: Sequence[Dataset], seams: tuple[int, ...]) -> tuple[Cause, ...] | None:
    shifted: list[Cause] = []
    for dataset, seam in zip(datasets, seams, strict=True):
        if dataset.causes is None:
            return None
        shifted += [((start + seam, stop + seam), variables) for (start, stop), variables in dataset.causes]
    return tuple(shifted)
