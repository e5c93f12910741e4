"""A run kept open: readings in, scored readings out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.checkpoint import Checkpoint, from_bytes, to_bytes
from cometad.decision.alerts import Change
from cometad.decision.decide import Decided
from cometad.decision.judge import Judge
from cometad.detector import Series, as_series, check_after, check_like
from cometad.errors import InputError, ModelFileError
from cometad.run import Run

Floats = NDArray[np.float64]

KIND = "Stream"


@dataclass(frozen=True)
class Scored:
    """Scores that have become final. As an array it is its scores.

    >>> import numpy as np
    >>> from cometad.stream import Scored
    >>> flags, thresholds = np.array([0, 1]), np.array([2.0, 2.0])
    >>> scored = Scored(7, np.array([0.1, 3.0]), flags, thresholds, variables=np.ones((2, 1)), changes=())
    >>> np.concatenate([scored, scored]), list(scored.steps)
    (array([0.1, 3. , 0.1, 3. ]), [7, 8])
    """

    start: int  # the time step of the first score, counted from the first reading of the stream
    scores: Floats  # (time,)
    flags: NDArray[np.int64]  # (time,)  1 where the score is above the threshold
    thresholds: Floats  # (time,)  that each score was held against
    variables: Floats  # (time, variable)  each variable's calibrated score
    changes: Sequence[Change]  # what happened to events with these scores

    def __len__(self) -> int:
        return len(self.scores)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.scores, dtype=dtype, copy=copy)

    @property
    def steps(self) -> range:
        """The time steps that are scored here."""
        return range(self.start, self.start + len(self.scores))


class Stream:
    """Readings in, scored readings out, in constant memory however long it runs; made by `detector.stream()`.

    >>> import numpy as np
    >>> from cometad import Comet, OneCycle
    >>> normal = np.random.default_rng(0).normal(size=(600, 2))
    >>> detector = Comet(schedule=OneCycle(20)).fit(normal)
    >>> stream = detector.stream()
    >>> scored = [stream.update(row) for row in normal[:300]] + [stream.finish()]
    >>> bool(np.array_equal(np.concatenate(scored), detector.decision_function(normal[:300])))
    True
    """

    def __init__(
        self,
        start: Callable[[], Run],
        scaling: Callable[..., NDArray[np.float32]],
        names: Sequence[str],
        named: bool,
        judge: Callable[[], Judge],
        fingerprint: str,
    ) -> None:
        self._start, self._start_judge, self._scaling, self._fingerprint = start, judge, scaling, fingerprint
        self._names, self._named = tuple(names), named
        # What most readings give.
        self._nothing = (np.empty(0), np.empty(0, np.int64), np.empty(0), np.empty((0, len(names))), ())
        self.reset()

    def reset(self) -> None:
        """Go back to the fitted state: forget every reading seen and all that was learned from them."""
        self._run, self._judge = self._start(), self._start_judge()
        self._seen = 0
        self._given = 0
        self._finished = False
        self._last_time: np.datetime64 | None = None

    @property
    def seen(self) -> int:
        """How many readings have come."""
        return self._seen

    @property
    def given(self) -> int:
        """How many of them have been given their final score."""
        return self._given

    @property
    def adaptation_steps(self) -> tuple[int, int]:
        """How many steps adaptation has taken, and how many of them were rolled back."""
        adapter = self._run.raw.adapter
        return (0, 0) if adapter is None else (adapter.steps, adapter.rolled_back)

    def update(self, reading: Sequence[float] | NDArray[Any] | Mapping[str, float]) -> Scored:
        """The scores that become final with one reading: numbers in the order of the variables, or by their names.

        A reading that is refused with an error leaves the stream as it was.
        """
        values = self._plain(reading)
        if values is not None:
            self._seen += 1
            return self._scored(self._run.push(self._scaling(values[None])))
        if isinstance(reading, Mapping) or (hasattr(reading, "index") and hasattr(reading, "items")):  # a pandas row
            reading = self._by_name(reading) if self._named or isinstance(reading, Mapping) else list(reading)
        one = reading.ndim == 1 if isinstance(reading, np.ndarray) else isinstance(reading, Sequence)
        if not one:
            raise InputError(
                f"A reading needs the shape (variable,); this one has the shape {np.shape(reading)}. "
                "Pass several at once to update_many."
            )
        return self.update_many([reading])

    def _plain(self, reading: object) -> Floats | None:
        """The numbers of a reading with which nothing is wrong, without more ado; None for all others."""
        if self._finished or type(reading) not in (np.ndarray, list, tuple):
            return None
        try:
            values = np.array(reading)
        except ValueError:  # a list with lists in it
            return None
        if values.dtype.kind not in "iuf" or values.shape != (len(self._names),):
            return None
        values = values.astype(np.float64, copy=False)
        return values if np.isfinite(values).all() else None

    def update_many(self, readings: object) -> Scored:
        """The scores that become final with some readings: an array (time, variable) or a pandas or polars frame."""
        if self._finished:
            raise InputError("The stream is finished. Open a new one with detector.stream().")
        if isinstance(readings, np.ndarray) and readings.ndim == 2 and len(readings) == 0:
            return self._scored([])
        series = as_series(readings, self._names, self._seen)
        check_like(series, self._names, self._named)
        self._check_times(series)
        self._seen += len(series)
        return self._scored(self._run.push(self._scaling(series.values)))

    def finish(self) -> Scored:
        """The scores of the readings that still waited for later ones, and the end of an event that is still open.

        The stream takes no readings after that.
        """
        last = self._scored(self._run.finish())
        closed = [] if self._finished else self._judge.finish()
        self._finished = True
        return replace(last, changes=[*last.changes, *closed])

    def snapshot(self) -> bytes:
        """All of the stream's state; `detector.stream(snapshot)` goes on from it to the bit."""
        facts = {"detector": self._fingerprint, "seen": self._seen, "given": self._given, "finished": self._finished}
        facts["last_time"] = None if self._last_time is None else str(self._last_time)
        judge = {f"judge.{name}": torch.from_numpy(array) for name, array in self._judge.state().items()}
        return to_bytes(Checkpoint(KIND, facts, self._run.state() | judge))

    def restore(self, snapshot: bytes) -> None:
        """Become the stream whose snapshot it is."""
        checkpoint = from_bytes(snapshot, KIND, "The snapshot")
        if checkpoint.facts["detector"] != self._fingerprint:
            raise ModelFileError("The snapshot is of another detector's stream. Load the detector it was taken from.")
        self._run.restore(checkpoint.tensors)
        prefix = "judge."
        judge = {name: tensor.numpy() for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}
        self._judge.restore({name.removeprefix(prefix): array for name, array in judge.items()})
        self._seen, self._given = checkpoint.facts["seen"], checkpoint.facts["given"]
        self._finished = checkpoint.facts["finished"]
        last_time = checkpoint.facts["last_time"]
        self._last_time = None if last_time is None else np.datetime64(last_time, "ns")

    def _check_times(self, series: Series) -> None:
        """Times must increase from chunk to chunk too."""
        if series.times is None:
            return
        if self._last_time is not None:
            check_after(series, self._last_time)
        self._last_time = series.times[-1].astype("datetime64[ns]")

    def _by_name(self, reading: Any) -> list[float]:
        missing = [name for name in self._names if name not in reading]
        if missing:
            raise InputError(
                f"The reading has no value for {missing[0]!r}. Send every variable the detector was fitted on."
            )
        return [reading[name] for name in self._names]

    def _scored(self, decided: Iterable[Decided]) -> Scored:
        parts = list(decided)
        if not parts:
            return Scored(self._given, *self._nothing)
        if len(parts) == 1:
            scores, variables = parts[0]
        else:
            scores = np.concatenate([part.scores for part in parts])
            variables = np.concatenate([part.variables for part in parts])
        start = self._given
        self._given += len(scores)
        flags, thresholds, changes = self._judge.push(scores)
        return Scored(start, scores, flags, thresholds, variables, changes)
