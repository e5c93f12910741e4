"""A fitted detector as a file: what every detector saves, and how it is loaded and identified."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from cometad.alerting.severity import ScoreTail
from cometad.alerting.watch import Threshold
from cometad.arrays import Flags, Floats
from cometad.checkpoint import Checkpoint, from_bytes, read, restoring, to_bytes, write
from cometad.data.gaps import Gaps
from cometad.data.prepare import Scaling, Trends
from cometad.data.quality import QUANTILES, Statistics
from cometad.data.season import Season
from cometad.errors import NotFittedError, ParameterError
from cometad.parameters import Parameters
from cometad.parameters import device as check_device
from cometad.registry import describe, from_json, to_json
from cometad.saving import Table, array, arrays, load_state, of_type, require_state, saved_state, texts, value

_NEEDS = ("parameters", "names", "named")  # facts of every saved detector
# What every detector saves: for the scores of its training series, and what scoring reads.
_TRAINING: Table = {
    "decision_scores": array("decision_scores_", "time"),
    "imputed": array("imputed_", "time", dtype=np.bool_),
    "alert_scores": array("alert_scores_", "time", optional=True),  # only if they are others
}
_SCORING: Table = {
    "scaling": value("scaling_", arrays(center=("variable",), unit=("variable",)), Scaling, Scaling.check_state),
    "statistics": value(
        "statistics_",
        {
            "quantiles": array("quantiles", len(QUANTILES), "variable", unknown=True),
            "longest": array("longest", "variable", dtype=np.int64),
            "period": array("period", 1, unknown=True, pack=np.atleast_1d, make=lambda period: float(period[0])),
        },
        partial(Statistics, ()),
    ),
    "threshold": array("threshold_state_", "number"),
    "tail": array("tail_", len(ScoreTail._fields), pack=np.array, make=ScoreTail.of),
}


class SavedDetector(Parameters, ABC):
    """The parameters and the fitted state of a detector, and the file with both."""

    saved: ClassVar[Table] = {}  # the learned arrays, besides those of every detector
    saved_facts: ClassVar[Table] = {}  # what was learned and is not an array
    _identity_name: ClassVar[str] = ""  # in the identity that snapshots carry; the name of the class if empty
    _later: ClassVar[dict[str, Any]] = {}  # parameters that are no part of it while they have these values

    scaler: str
    gaps: Gaps
    threshold: Threshold
    _parameters: dict[str, Any]  # at the time of `fit`
    names_: tuple[str, ...]
    named_: bool
    n_features_in_: int
    statistics_: Statistics
    trends_: Trends  # what is scored of each variable
    season_: Season | None = None  # what is usual at each time, and subtracted after the trends
    scaling_: Scaling
    decision_scores_: Floats  # (time,)  ranking scores of the training series
    alert_scores_: Floats  # (time,)  alert scores of the training series, for the threshold
    imputed_: Flags  # (time,)  training steps that depend on imputed readings
    threshold_: float  # applies to the first score of a series
    threshold_state_: Floats  # fitted state of the threshold rule
    tail_: ScoreTail  # of the scores the threshold was fitted on
    _digest: bytes | None = None  # of the fitted state, computed when a stream first needs it

    @abstractmethod
    def check_parameters(self) -> None:
        """Refuse invalid parameters, as `fit` does first.

        Parameters can be set to anything, as in scikit-learn; so call it where you want to know before you read data.
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector to one file, completely or not at all; replaces any file that is there.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from cometad.baselines import BASELINES
        >>> kind = BASELINES["squared-norm"]
        >>> detector = kind().fit(np.random.default_rng(0).normal(size=(500, 2)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     detector.save(Path(folder) / "plant.comet")
        ...     kind.load(Path(folder) / "plant.comet").threshold_ == detector.threshold_
        True
        """
        self._check_fitted()
        write(path, self._checkpoint())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """Load a detector that `save` wrote, onto its original device or another; `cometad.load` finds the class."""
        if device is not None:
            check_device("device", device)
        return cls._loaded(read(path, cls.__name__, needs=_NEEDS), f"'{path}'", device)

    def to_bytes(self) -> bytes:
        """The bytes of the file that `save` writes; equal detectors have equal bytes."""
        self._check_fitted()
        return to_bytes(self._checkpoint())

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "This") -> Self:
        """The detector that `to_bytes` wrote; `source` names the bytes in an error."""
        return cls._loaded(from_bytes(content, cls.__name__, source, _NEEDS), source, None)

    @classmethod
    def _loaded(cls, saved: Checkpoint, source: str, device: str | None) -> Self:
        _, facts, arrays = saved
        with restoring(cls.__name__, source):
            parameters = {name: from_json(value) for name, value in facts["parameters"].items()}
            for name in parameters:
                require_state(name in cls._get_param_names(), f"a {cls.__name__} has no parameter {name!r}")
        parameters = _on_device(cls.__name__, parameters, device)
        with restoring(cls.__name__, source):
            detector = cls(**parameters)
            detector.check_parameters()
            names = texts(facts["names"], "names")
            require_state(len(names) == len(set(names)) >= 1, "its 'names' are not those of different variables")
            detector.names_, detector.named_ = names, of_type(facts["named"], bool, "named")
            detector.n_features_in_, detector.trends_ = len(names), Trends.none(len(names))
            load_state(detector, {**_TRAINING, **_SCORING}, arrays, detector._lengths)
            if "alert_scores" not in arrays:
                detector.alert_scores_ = detector.decision_scores_
            detector.statistics_ = replace(detector.statistics_, names=names)
            # Also keeps lengths in the parameters within what the training series had room for.
            enough = len(detector.decision_scores_) >= detector._least_training_rows()
            require_state(enough, "its training series is shorter than its parameters allow")
            load_state(detector, detector.saved_facts, facts, dict)
            load_state(detector, detector.saved, arrays, detector._lengths)
            detector._check_state()
            detector._set_threshold(detector.threshold_state_, detector.tail_)
        return detector

    # -- what a detector may add ------------------------------------------------------------------------------------

    def _check_state(self) -> None:
        """Refuse loaded fields that are valid one by one but not together."""

    def _lengths(self) -> dict[str, Any]:
        """The lengths in tables that are known before a file is read: the parameters and the number of variables."""
        return {**self.get_params(deep=False), "variable": self.n_features_in_}

    @abstractmethod
    def _least_training_rows(self) -> int:
        """Minimum number of readings in a training series."""

    # -- the content of the file ------------------------------------------------------------------------------------

    def _identity(self) -> bytes:
        """A digest of everything scoring depends on, computed once: a fleet opens thousands of streams."""
        if self._digest is None:
            given = self.get_params(deep=False).items()
            parameters = {
                name: describe(own) for name, own in given if name not in self._later or own != self._later[name]
            }
            digest = hashlib.sha256(
                json.dumps([self._identity_name or type(self).__name__, parameters, self.names_]).encode()
            )
            for name, array in sorted(saved_state(self, {**_SCORING, **self.saved}).items()):
                digest.update(name.encode() + array.tobytes() if array.size else b"")
            self._digest = digest.digest()
        return self._digest

    def fingerprint(self, *settings: object) -> str:
        """What a snapshot of a stream with these settings names its detector by."""
        return short_digest(self._identity(), settings)

    def earlier_fingerprint(self, *settings: object) -> str:
        """That of cometad 0.1; empty if 0.1 could not have saved the detector."""
        return ""

    def _checkpoint(self) -> Checkpoint:
        parameters = {name: to_json(value, name) for name, value in self.get_params(deep=False).items()}
        facts = {"parameters": parameters, "names": list(self.names_), "named": self.named_}
        arrays = saved_state(self, {**_TRAINING, **_SCORING, **self.saved})
        if self.alert_scores_ is self.decision_scores_:
            del arrays["alert_scores"]
        return Checkpoint(type(self).__name__, facts | saved_state(self, self.saved_facts), arrays)

    def _set_threshold(self, state: Floats, tail: ScoreTail) -> None:
        self._parameters, self._digest = self.get_params(deep=False), None
        self.tail_, self.threshold_state_ = tail, state
        self.threshold_ = self.threshold.watch(state).threshold

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet. Call fit with a series of normal readings first."
            )
        now = self.get_params(deep=False)
        changed = [name for name, value in self._parameters.items() if name != "verbose" and now[name] != value]
        if changed:
            raise NotFittedError(f"The parameter {changed[0]!r} was changed after fit. Call fit again.")


def short_digest(content: bytes, settings: tuple[object, ...]) -> str:
    return hashlib.sha256(content + repr(settings).encode()).hexdigest()[:16]


def _on_device(kind: str, parameters: dict[str, Any], device: str | None) -> dict[str, Any]:
    if device is None or "device" in parameters:
        return parameters if device is None else {**parameters, "device": device}
    if device != "cpu":
        raise ParameterError(f"{kind} runs on the CPU only. Leave out the device.")
    return parameters
