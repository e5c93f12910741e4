"""A dataset: a training series, a test series and the labels of the test series."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Array, Floats
from cometad.errors import InputError

Reason = tuple[tuple[int, int], tuple[int, ...]]  # a half-open interval of the test part, the variables behind it


@dataclass(frozen=True, eq=False)  # eq: arrays have no single answer; compare fingerprints
class Dataset:
    """One entity of a benchmark (a machine, a channel, a plant), or all of them one after the other.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset
    >>> labels = np.array([False, True])
    >>> pump = Dataset("plant", "pump", np.zeros((3, 1)), np.ones((2, 1)), labels, names=("flow",))
    >>> pump.fingerprint
    'bb9344d254e0780a'
    """

    name: str
    entity: str  # "all" where a dataset has but one entity, or where they are concatenated
    train: Floats  # (time, variable)
    test: Floats  # (time, variable)
    labels: NDArray[np.bool_]  # (time,) of the test part
    names: tuple[str, ...]  # (variable,)
    train_seams: tuple[int, ...] = (0,)  # the first row of each entity
    test_seams: tuple[int, ...] = (0,)
    reasons: tuple[Reason, ...] | None = None  # None: nobody has said which variables are behind an anomaly

    def __post_init__(self) -> None:
        widths = {self.train.shape[1:], self.test.shape[1:], (len(self.names),)}
        if len(widths) > 1 or len(self.test) != len(self.labels):
            raise InputError(
                f"The parts of {self.name} {self.entity!r} do not belong together: train {self.train.shape}, "
                f"test {self.test.shape}, labels {self.labels.shape}, {len(self.names)} names. "
                "Check the files they come from."
            )

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the content: equal on every machine, different as soon as a value or a name differs."""
        content = hashlib.sha256(json.dumps(self.names).encode())
        for part in (self.train, self.test, self.labels):
            content.update(json.dumps(part.shape).encode())
            content.update(_portable(part))
        return content.hexdigest()[:16]


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """The entities of a dataset one after the other, with the row at which each begins.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset, concatenate
    >>> pump = Dataset("plant", "pump", np.zeros((3, 1)), np.zeros((2, 1)), np.ones(2, bool), ("flow",))
    >>> both = concatenate([pump, pump])
    >>> both.entity, both.train.shape, both.train_seams, both.test_seams
    ('all', (6, 1), (0, 3), (0, 2))
    """
    if not datasets:
        raise InputError("There is no entity to concatenate. Pass at least one dataset.")
    if len({dataset.names for dataset in datasets}) > 1:
        raise InputError(f"The entities of {datasets[0].name} do not have the same variables. Use them one by one.")
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
        reasons=_shifted_reasons(datasets, test_seams),
    )


def _portable(part: Array) -> bytes:
    return part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()


def _seams(lengths: Sequence[int]) -> tuple[int, ...]:
    return (0, *(int(end) for end in np.cumsum(lengths)[:-1]))


def _shifted_reasons(datasets: Sequence[Dataset], seams: tuple[int, ...]) -> tuple[Reason, ...] | None:
    shifted: list[Reason] = []
    for dataset, seam in zip(datasets, seams, strict=True):
        if dataset.reasons is None:
            return None
        shifted += [((start + seam, stop + seam), variables) for (start, stop), variables in dataset.reasons]
    return tuple(shifted)
