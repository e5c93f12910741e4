"""Damaged and crafted model files and snapshots: each gives the same scores or an error of one sentence.

Damage (flipped bits, other bytes, missing or extra bytes) leaves the hash as it was: such a file must be refused. A
crafted file has a valid hash and changed arrays or facts: it may be refused, or be a valid model with other content. In
that case its scores are finite, or scoring ends with one of cometad's own errors.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from cometad import BASELINES, Budget, Comet, Detector, NetworkComet, load
from cometad.alerting import DriftingSpot, Spot
from cometad.checkpoint import with_hash
from cometad.data import Interpolate
from cometad.data.resample import Resampling
from cometad.data.text import Reading
from cometad.errors import CometadError, ModelFileError
from cometad.live.session import Clock, Grid, Session
from cometad.network import OneCycle
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.adaptation import FollowLevel
from cometad.views.trained import NetworkView

REFUSED, SAME, OTHER, LATER = "refused in one sentence", "the same scores", "other finite scores", "refused when used"
ALLOWED = {"damaged": {REFUSED, SAME}, "crafted": {REFUSED, SAME, OTHER, LATER}}

NASTY = [
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    2**31,
    2**63,
    10**30,
    -1.5,
    1e-300,
    1e300,
    "",
    "x",
    "cuda",
    [],
    {},
    [1],
    {"a": 1},
]
NASTY += [{"kind": "Spot"}, {"kind": "nothing"}, {"kind": []}, {"kind": "Quantile", "ratio": 1}, [[]], ["v0", "v0"]]
NUMBERS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, -1.0, 1e12]

_rng = np.random.default_rng(0)
NORMAL = np.sin(np.arange(400)[:, None] / np.array([3.0, 5.0])) + 0.1 * _rng.normal(size=(400, 2))
NORMAL[:, 1] += 0.01 * np.arange(400)
FRESH = NORMAL[:160] + 0.1 * _rng.normal(size=(160, 2))
FRESH[[60, 75], 0] += 9.0


@dataclass(frozen=True)
class Subject:
    """A file, and what it gives if it is whole."""

    content: bytes
    use: Callable[[Path], np.ndarray]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays in the file."""
        return load_arrays(self.content)

    @property
    def header(self) -> dict[str, Any]:
        """The facts in the file, with its format and its kind."""
        size = int.from_bytes(self.content[:8], "little")
        header: dict[str, Any] = json.loads(json.loads(self.content[8 : 8 + size])["__metadata__"]["cometad"])
        return header


@cache
def subjects() -> dict[str, tuple[Subject, np.ndarray]]:
    """Small saved files of every kind, with what each gives."""
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder) / "saved", {}
        for name, subject in _made(path):
            path.write_bytes(subject.content)
            found[name] = subject, subject.use(path)
    return found


def _made(path: Path) -> Iterator[tuple[str, Subject]]:
    views = (Patterns(8, 4), Joint(4, 4), Forecast(3), Balance(4), Activity(8))
    comet = Comet(views=views, smoothing=(4,), gaps=Interpolate(2), adaptation=FollowLevel(every=16)).fit(NORMAL)
    taught = comet.learn_normal(FRESH, 60)
    tiny = {"window": 16, "dim": 4, "core_dim": 3, "codebook_size": 8, "schedule": OneCycle(3)}
    sizes = {"patch_sizes": (2, 4), "patch_strides": (1, 2)}
    network = NetworkComet(**tiny, **sizes, test_batch=2, threshold=Spot(1e-3)).fit(NORMAL)
    seen = NetworkView(**tiny, patch_sizes=(2, 4))
    detectors: dict[str, Detector] = {
        "Comet": comet,
        "Comet with verdicts": taught,
        "Comet with a network": Comet(views=(seen, Forecast(2)), threshold=DriftingSpot(1e-3, depth=5)).fit(NORMAL),
        "NetworkComet": network,
    }
    windows = ("window-pca", "forecast-error", "window-knn")
    for name in ("sensor-range", "pca", "hbos", "knn", "kmeans", "isolation-forest", *windows):
        small = {"trees": 5} if name == "isolation-forest" else {}
        detectors[name] = BASELINES[name](threshold=Budget(rate=0.01), **small).fit(NORMAL)
    detectors["usad"] = BASELINES["usad"](window=8, schedule=OneCycle(3)).fit(NORMAL)
    for name, detector in detectors.items():
        detector.save(path)
        yield name, Subject(path.read_bytes(), _scores_of_file)
    for name, detector in (("Comet", comet), ("Comet with verdicts", taught), ("NetworkComet", network)):
        stream = detector.stream()
        stream.update_many(FRESH[:101])
        if detector.can_take_verdicts:
            stream.verdict(1, "fault")
            gap = [[np.nan, 1.0]]
            stream.update_many(gap)
        yield f"snapshot of {name}", Subject(stream.snapshot(), _continued(detector))
    for name, gate in (("clock", Clock), ("grid", lambda: Grid(Resampling("3s"), comet.names_))):
        session = Session(comet, gate())
        for second, row in enumerate(FRESH[:61]):
            session.take(Reading(second, row.tolist(), second))
        session.save(path)
        yield f"session with a {name}", Subject(path.read_bytes(), _resumed(comet, gate))


def _scores_of_file(path: Path) -> np.ndarray:
    detector = load(path)
    detector.events(FRESH)
    return detector.step_scores(FRESH).alerts


def _continued(detector: Detector) -> Callable[[Path], np.ndarray]:
    def use(path: Path) -> np.ndarray:
        stream = detector.stream(path.read_bytes())
        scored = [stream.update_many(FRESH[101:]), stream.finish()]
        return np.concatenate([part.alert_scores for part in scored])

    return use


def _resumed(detector: Detector, gate: Callable[[], Any]) -> Callable[[Path], np.ndarray]:
    def use(path: Path) -> np.ndarray:
        session = Session.resume(path, detector, gate())
        answers = []
        for second, row in enumerate(FRESH[61:], 61):
            answers += session.take(Reading(second, row.tolist(), second))
        answers += session.finish()
        return np.array([answer["alert_score"] for answer in answers if "alert_score" in answer])

    return use


# -- mutations --------------------------------------------------------------------------------------------------------


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with a few bits or bytes changed, missing or added, and the hash as it was."""
    data, at = bytearray(content), int(rng.integers(len(content)))
    # Half of the changes are in the header, which is shorter than the arrays.
    at = at if rng.random() < 0.5 else at % min(len(content), 2000)
    match rng.integers(6):
        case 0:
            data[at] ^= 1 << int(rng.integers(8))
        case 1:
            data[at] ^= int(rng.integers(1, 256))
        case 2:
            del data[at:]
        case 3:
            del data[at : at + int(rng.integers(1, 9))]
        case 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 9)))
        case _:
            other, size = int(rng.integers(len(content))), 8
            data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
    return bytes(data)


def crafted(subject: Subject, rng: np.random.Generator) -> bytes:
    """A file with a changed array or fact, and the hash of its new content."""
    arrays, header = dict(subject.arrays), subject.header
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.5:
            _change_array(arrays, rng)
        else:
            _change_fact(header, rng)
    text = json.dumps(header)
    if rng.random() < 0.05:
        text = text.replace('"facts": ', '"deep": ' + "[" * 100_000 + "]" * 100_000 + ', "facts": ', 1)
    if rng.random() < 0.05:
        text = text.replace(": 1", ": 1e999", 1)
    content = bytes(save_arrays(arrays, {"cometad": text}))
    return with_hash(content)


def _change_array(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    names = sorted(arrays)
    name, other = (names[int(k)] for k in rng.integers(len(names), size=2))
    array = arrays[name].copy()
    match rng.integers(12):
        case 0:
            arrays[name], arrays[other] = arrays[other], arrays[name]
        case 1:
            del arrays[name]
        case 2:
            arrays[name] = array.reshape(*array.shape, 1) if rng.random() < 0.5 else array.ravel()
        case 3:
            arrays[name] = array.T.copy() if array.ndim > 1 else array[None]
        case 4:
            with np.errstate(invalid="ignore"):
                arrays[name] = array.astype(rng.choice(["float32", "float64", "int64", "uint8", "bool"]))
        case 5:
            arrays[name] = array[: len(array) // 2] if array.ndim else array[None]
        case 6:
            arrays[name] = np.concatenate([array, array]) if array.ndim else array[None]
        case _:
            if array.size:
                value = NUMBERS[int(rng.integers(len(NUMBERS)))]
                if array.dtype.kind != "f":
                    value = (
                        int(rng.integers(-(2**31), 2**31))
                        if not np.isfinite(value)
                        else int(np.clip(value, -9e18, 9e18))
                    )
                with np.errstate(over="ignore"):
                    array.flat[int(rng.integers(array.size))] = np.array(value).astype(array.dtype)
            arrays[name] = array


def _change_fact(header: dict[str, Any], rng: np.random.Generator) -> None:
    facts = header.get("facts")
    places = list(_places(facts if isinstance(facts, dict) and rng.random() < 0.9 else header))
    holder, key = places[int(rng.integers(len(places)))]
    value = NASTY[int(rng.integers(len(NASTY)))]
    match rng.integers(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[str(key) + "x"] = holder.pop(key)
        case 2 if type(holder[key]) in (int, float):
            holder[key] = type(holder[key])(holder[key] * rng.choice([2, 10, 1000, -1])) + int(rng.integers(-1, 2))
        case _:
            holder[key] = value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value inside nested lists and dictionaries, but for the hash."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        if key != "sha256":
            yield value, key
            yield from _places(value[key])


# -- outcomes ---------------------------------------------------------------------------------------------------------


def outcome(seed: int, path: Path) -> tuple[str, str, str]:
    """One case: the kind of file, how it was changed, and the outcome; one that is not allowed names the exception."""
    rng = np.random.default_rng(seed)
    name = sorted(subjects())[int(rng.integers(len(subjects())))]
    subject, expected = subjects()[name]
    how = "damaged" if rng.random() < 0.5 else "crafted"
    try:
        content = damaged(subject.content, rng) if how == "damaged" else crafted(subject, rng)
    except (OverflowError, ValueError):  # nothing that a file could hold
        content = subject.content
    path.write_bytes(content)
    return name, how, _used(subject, path, expected)


def _used(subject: Subject, path: Path, expected: np.ndarray) -> str:
    try:
        found = subject.use(path)
    except ModelFileError as error:
        return REFUSED if _is_a_sentence(str(error)) else f"not a sentence: {error}"
    except CometadError as error:
        return LATER if _is_a_sentence(str(error)) else f"not a sentence: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found.tobytes() == expected.tobytes():
        return SAME
    return OTHER if np.isfinite(found).all() else "scores that are not finite"


def _is_a_sentence(message: str) -> bool:
    return message.endswith(".") and "\n" not in message and (message[0].isupper() or message[0] == "'")


def run(cases: int, seed: int = 0, show: Callable[[str], object] = print) -> dict[str, int]:
    """Count the outcomes of this many cases; shows each that is not allowed."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in range(cases):
            own = seed * 1_000_000 + case
            name, how, found = outcome(own, Path(folder) / "file")
            if found not in ALLOWED[how]:
                show(f"case {own}, {how} {name}: {found}")
                found = "wrong"
            counts[f"{how}: {found}"] += 1
    return dict(sorted(counts.items()))
