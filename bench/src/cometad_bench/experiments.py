"""Experiments as data: which detectors run on which datasets and seeds. To add one, add a row to `EXPERIMENTS`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from cometad.baselines import BASELINES
from cometad.comet import DEFAULT_VIEWS, Comet
from cometad.detector import Detector
from cometad.errors import unknown
from cometad.network.adaptation import NoAdaptation, OnlineAdaptation
from cometad.network.schedules import Converging
from cometad.network_comet import SCORING, NetworkComet
from cometad.presets import ABLATIONS, PAPER_SIZES
from cometad.scoring.normalize import EmaMinMax
from cometad.scoring.scores import POOLING
from cometad.views import NetworkView
from cometad.views.adaptation import FollowLevel
from cometad_bench.baselines.deep import DeepBaseline
from cometad_bench.configurations import configurations, labels
from cometad_bench.fair import AllPositive, FairBaseline
from cometad_bench.plants import PLANTS
from cometad_bench.split import Part

PAPER = tuple(PAPER_SIZES)  # the paper's datasets
PLANT = "plant"  # the synthetic dataset, always available, as a short stream and a long one
SEEDS = (0, 1, 2, 3, 4)

# Not in `frame`, which they would import: trials run without polars, whose threads would not survive a fork.
RANDOM, ALL_POSITIVE = "random", "all-positive"
REFERENCES = (RANDOM, ALL_POSITIVE)  # no-skill arms: they set the floor and are not ranked

NETWORK_DETECTORS = ("network", "comet-paper")  # names in `Arm.detector` that stand for a NetworkComet

DEEP = tuple(name for name, kind in BASELINES.items() if issubclass(kind, DeepBaseline))
SIMPLE = tuple(name for name in BASELINES if name not in DEEP)
CONVERGED = ", converged"  # ends the name of a deep baseline that is trained to convergence


_OTHERS: dict[str, Callable[..., Detector]] = {
    "network": NetworkComet,
    "fair": FairBaseline,
    "all-positive": AllPositive,
}


@dataclass(frozen=True)
class Arm:
    """One row of a table: a detector with some of its parameters changed."""

    name: str
    detector: str  # comet, network, comet-paper, fair, all-positive or a baseline
    changes: Mapping[str, Any] = field(default_factory=dict)

    def build(self, dataset: str, seed: int, device: str) -> Detector:
        """Return the unfitted detector, checked; `comet-paper` gets the sizes that the paper uses for the dataset."""
        made = self._made(dataset, seed, device)
        made.check_parameters()
        return made

    def _made(self, dataset: str, seed: int, device: str) -> Detector:
        if self.detector == "comet":
            made = Comet(**{"seed": seed, **self.changes})  # only a network view can use another device
            views = [replace(view, device=device) if isinstance(view, NetworkView) else view for view in made.views]
            return made.set_params(views=tuple(views))
        common = {"seed": seed, "device": device, **self.changes}
        if self.detector == "comet-paper":
            return Comet.paper(dataset if dataset in PAPER_SIZES else None, **common)
        kind: Any = _OTHERS[self.detector] if self.detector in _OTHERS else BASELINES[self.detector]
        if "device" not in kind._get_param_names():
            del common["device"]
        return cast(Detector, kind(**common))

    @property
    def scoring(self) -> dict[str, Any]:
        return {name: value for name, value in self.changes.items() if name in SCORING}

    def trained_like(self, other: "Arm") -> bool:
        """Return whether this arm can reuse the other's trained network; only a NetworkComet can."""
        own, others = (
            {name: value for name, value in arm.changes.items() if name not in SCORING} for arm in (self, other)
        )
        return self.detector == other.detector and self.detector in NETWORK_DETECTORS and own == others


@dataclass(frozen=True)
class Experiment:
    """Detectors x datasets x seeds, run under one protocol."""

    title: str
    protocol: str  # "concatenated" (entities joined end to end), "entity" (one model each), "tsb-ad", "drift", ...
    datasets: tuple[str, ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...] = SEEDS
    report: str = "detection"  # the kind of report
    entities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by dataset, if only some of them are used
    part: Part | None = None  # the part of the split that is used, if not all
    base: str = ""  # the arm that the others are variants of, or that they are tested against, if any


def _plain(names: Collection[str]) -> tuple[Arm, ...]:
    return tuple(Arm(name, name) for name in names)


WITHOUT_TTA = {"adaptation": NoAdaptation()}
COMETS = (Arm("comet-paper", "comet-paper"), Arm("comet-paper w/o TTA", "comet-paper", WITHOUT_TTA))
DEFAULT = Arm("comet", "comet")
TRAINED = Arm("network", "network")  # the default of 0.1

# The paper's three sensitivity tables, all without adaptation. A stride is half its patch.
_PATCHES = ((2,), (4,), (6,), (2, 4), (4, 6), (2, 4, 6), (2, 4, 6, 8))
_CODEBOOKS = (16, 32, 64, 128, 256)
_NEIGHBORS = (1, 3, 5, 10, 20)


def _sensitivity() -> tuple[Arm, ...]:
    changes: dict[str, dict[str, Any]] = {
        f"patches {' '.join(map(str, sizes))}": {
            "patch_sizes": sizes,
            "patch_strides": tuple(size // 2 for size in sizes),
        }
        for sizes in _PATCHES
    }
    changes |= {f"codebook {size}": {"codebook_size": size} for size in _CODEBOOKS}
    changes |= {f"neighbors {count}": {"neighbors": count} for count in _NEIGHBORS}
    return tuple(Arm(name, "comet-paper", {**WITHOUT_TTA, **change}) for name, change in changes.items())


def _units() -> tuple[Arm, ...]:
    """The published method with a moving minimum and maximum that is updated by 128, 4 or 1 windows."""
    weights = {"": {}, " w/o quant score": {"score_weight": 0.0}, " w/o memory score": {"score_weight": 1.0}}
    return tuple(
        Arm(f"windows {count}{name}", "comet-paper", {"normalization": EmaMinMax(0.75, windows=count), **changes})
        for count in (128, 4, 1)
        for name, changes in weights.items()
    )


def _converged(names: Collection[str]) -> tuple[Arm, ...]:
    """Deep baselines with their published learning rate, trained until the validation loss no longer improves."""
    rates = {name: BASELINES[name]().schedule.learning_rate for name in names}  # type: ignore[attr-defined]
    return tuple(
        Arm(name + CONVERGED, name, {"schedule": Converging(learning_rate=rate)}) for name, rate in rates.items()
    )


def _views() -> tuple[Arm, ...]:
    """Each view of the default alone, and the default without it."""
    views = tuple(Comet().views)
    if len(views) < 2:
        return ()
    named = list(enumerate(labels(views)))
    alone = (Arm(f"only {name}", "comet", {"views": (views[i],)}) for i, name in named)
    without = (Arm(f"without {name}", "comet", {"views": views[:i] + views[i + 1 :]}) for i, name in named)
    return (*alone, *without)


def _fair() -> tuple[Arm, ...]:
    same = {"pooling": POOLING, "smoothing": tuple(Comet().smoothing)}
    return tuple(Arm(f"fair {name}", "fair", {"baseline": name, **same}) for name in SIMPLE if name != RANDOM)


# Besides the default, what the nested choice picked on select. They give it a figure on validate too.
RUNNERS_UP = ("four", "five, patterns 8 32 64")

FAMILIES = ("SMD", "ASD", "MSL", "SMAP", "SKAB", PLANTS)

EXPERIMENTS = {
    "main": Experiment(
        "Main results", "concatenated", PAPER, (*COMETS, TRAINED, DEFAULT, *_plain((*DEEP, *SIMPLE, "all-positive")))
    ),
    "ablation": Experiment(
        "Ablation of COMET",
        "concatenated",
        PAPER,
        (COMETS[0], *(Arm(name, "comet-paper", changes) for name, changes in ABLATIONS.items()), *_plain(REFERENCES)),
        base=COMETS[0].name,
    ),
    "sensitivity": Experiment(
        "Sensitivity of COMET, without adaptation",
        "concatenated",
        PAPER,
        (*_sensitivity(), *_plain(REFERENCES)),
        report="sensitivity",
    ),
    "unit": Experiment(
        "Windows per update of the EMA normalization",
        "concatenated",
        PAPER,
        (*_units(), *_plain(REFERENCES)),
        seeds=(*SEEDS, 42),  # the paper's own seed
    ),
    "efficiency": Experiment(
        "Affiliation F1 against training time",
        "concatenated",
        PAPER,
        (*COMETS[:1], TRAINED, DEFAULT, *_plain((*DEEP, *SIMPLE, "all-positive"))),
        seeds=(42,),
        report="efficiency",
    ),
    "entity": Experiment(
        "One model per entity",
        "entity",
        ("SMD", "ASD", "SKAB", "MSL", "SMAP"),
        (
            *(*COMETS, TRAINED, DEFAULT, *_plain(SIMPLE), *_fair()),
            *(*_plain(DEEP), *_converged(DEEP), *_plain(("all-positive",))),
        ),
        seeds=(0, 1, 2),
        base=DEFAULT.name,
    ),
    "drift": Experiment(
        "Under drift, with and without adaptation",
        "drift",
        ("SMD", "ASD", "MSL", PLANT),
        (
            Arm("comet", "comet", {"adaptation": FollowLevel()}),  # as fitted, it is the default with its budget
            TRAINED,
            Arm("network w/ contrastive", "network", {"adaptation": OnlineAdaptation(error_limit=0.99, max_drift=0.5)}),
            COMETS[0],
            Arm("comet-paper, batches of 8", "comet-paper", {"test_batch": 8}),
            *_plain(REFERENCES),
        ),
        seeds=(0, 1, 2),
        report="drift",
        # No entity of DEVELOPMENT; for MSL, those with the most readings.
        entities={
            "SMD": ("machine-1-6", "machine-3-3"),
            "ASD": ("omi-2", "omi-9"),
            "MSL": ("P-11", "P-15", "D-14"),
        },
    ),
    "select": Experiment(
        "Configurations of Comet, on the entities that serve to choose one",
        "entity",
        FAMILIES,
        tuple(Arm(name, "comet", changes) for name, changes in configurations().items()),
        seeds=(0,),
        report="choice",
        part="select",
    ),
    "validate": Experiment(
        "Comet against its views and the baselines, on entities that did not serve to choose it",
        "entity",
        FAMILIES,
        (
            *(DEFAULT, *_views(), TRAINED, *_fair()),
            *(Arm(name, "comet", configurations()[name]) for name in RUNNERS_UP),
            *_plain((*SIMPLE, "all-positive")),
        ),
        seeds=(0,),
        report="comparison",
        part="validate",
        base=DEFAULT.name,
    ),
    "training": Experiment(
        "What the trained network adds to the other views",
        "entity",
        tuple(name for name in FAMILIES if name != "SKAB"),  # 400 readings are too few to train on
        (
            Arm("comet, no trimming", "comet", {"trim": False}),
            Arm("comet and network", "comet", {"trim": False, "views": (*DEFAULT_VIEWS, NetworkView())}),
        ),
        seeds=(0,),
        report="comparison",
        part="select",
        base="comet and network",
    ),
    "tsb-ad-m": Experiment(
        "TSB-AD-M, as on its leaderboard",
        "tsb-ad",
        ("TSB-AD-M",),
        (DEFAULT, COMETS[0], *_plain((*SIMPLE, "all-positive"))),
        seeds=(0,),
        report="leaderboard",
    ),
    "embedding": Experiment("Embeddings and codes", "embedding", PAPER, COMETS[:1], seeds=(0,), report="embedding"),
}


def check_known(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def chosen(experiment: Experiment, arms: Sequence[str] | None) -> tuple[Arm, ...]:
    known = {arm.name: arm for arm in experiment.arms}
    check_known("arm", arms or (), known)
    return tuple(known[name] for name in dict.fromkeys(arms)) if arms else experiment.arms


def groups(arms: Sequence[Arm]) -> list[list[Arm]]:
    sharing: list[list[Arm]] = []
    for arm in arms:
        group = next((group for group in sharing if arm.trained_like(group[0])), None)
        if group is None:
            sharing.append([arm])
        else:
            group.append(arm)
    return sharing
