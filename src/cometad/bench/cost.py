"""Accuracy against training time for every arm of an experiment by entity, in one figure."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from cometad.bench.experiments import CONVERGED, SIMPLE
from cometad.bench.figures import FLOOR, FONT, write_names
from cometad.bench.results import Record, latest
from cometad.bench.summaries import RANDOM, RANKABLE, RANKED_BY, REFERENCES, twins
from cometad.errors import InputError, needs_extra
from cometad.metrics import METRICS
from cometad.report.plots import FOUND, INK, LIMIT, SCORE, save_figure

Entity = tuple[str, str]  # dataset and entity
Means = Mapping[Entity, float]

SHORTEST = 1e-3  # seconds; the axis is logarithmic
AREA = 45  # of a marker, in square points
KINDS = {"comet": ("o", SCORE, "COMET"), "simple": ("s", FOUND, "simple"), "deep": ("^", INK, "deep baseline")}


class ArmCost(NamedTuple):
    """One arm in the figure."""

    arm: str
    kind: str  # a key of KINDS
    seconds: float  # to fit one entity: the mean over datasets of the mean over entities
    accuracy: float  # the mean over datasets of the mean over entities
    missing: int  # entities without a result
    on_gpu: bool  # in at least half of the trials


def arm_costs(records: Iterable[Record], base: str, metric: str = RANKED_BY) -> list[ArmCost]:
    """Return training time and accuracy of every arm, except references and arms that are identical to another.

    An arm that lacks entities has the mean time of those it has. Its accuracy is that of another arm plus its mean
    difference from it on these entities; the other arm is the same baseline with its published schedule, if that is
    complete, or else the base arm. If that is not complete either, the arm is left out.

    >>> from cometad.bench.cost import arm_costs
    >>> cell = {"experiment": "entity", "dataset": "ASD", "seed": 0, "setting": {}, "error": None, "device": "CPU"}
    >>> figures = [("comet", "omi-1", 0.5), ("comet", "omi-2", 0.7), ("knn", "omi-2", 0.6)]
    >>> records = [
    ...     cell | {"arm": arm, "detector": arm, "entity": entity, "metrics": {"auc_pr": x}, "fit_seconds": 2.0}
    ...     for arm, entity, x in figures
    ... ]
    >>> [(one.arm, one.kind, one.seconds, round(one.accuracy, 3), one.missing) for one in arm_costs(records, "comet")]
    [('comet', 'comet', 2.0, 0.6, 0), ('knn', 'simple', 2.0, 0.5, 1)]
    """
    counted = latest(records)
    same = twins(counted, first=base)
    arms: dict[str, list[Record]] = {}
    for record in counted:
        if record["arm"] not in (*REFERENCES, *same):
            arms.setdefault(record["arm"], []).append(record)
    everything = {_entity(record) for record in counted}
    values = {arm: _entity_means(lines, metric) for arm, lines in arms.items()}
    costs = []
    for arm, lines in arms.items():
        missing = len(everything) - len(values[arm])
        others = (values.get(name, {}) for name in (arm.removesuffix(CONVERGED), base))
        reference = next((other for other in others if len(other) == len(everything)), {})
        if missing and not reference:
            continue
        seconds = _over_datasets({where: float(np.mean(own)) for where, own in _grouped(lines, _seconds).items()})
        accuracy = _over_datasets(values[arm])
        if missing:  # not its own mean, which would be over other entities than those of the others
            gains = {where: value - reference[where] for where, value in values[arm].items()}
            accuracy = _over_datasets(reference) + _over_datasets(gains)
        on_gpu = float(np.mean([_is_gpu(record) for record in lines])) >= 0.5
        costs.append(ArmCost(arm, _kind(lines[0]["detector"]), seconds, accuracy, missing, on_gpu))
    return costs


def floor_of(records: Iterable[Record], metric: str = RANKED_BY) -> float | None:
    """Return the mean accuracy of random scores over datasets; None without results of them."""
    values = _entity_means([record for record in latest(records) if record["arm"] == RANDOM], metric)
    return _over_datasets(values) if values else None


def plot_costs(axes: Any, costs: Iterable[ArmCost], floor: float | None = None, metric: str = RANKED_BY) -> None:
    """Draw accuracy against training time: filled markers for a CPU, hollow ones for a GPU, * for part of the entities.

    >>> from matplotlib.figure import Figure
    >>> from cometad.bench.cost import ArmCost, plot_costs
    >>> axes = Figure().subplots()
    >>> plot_costs(axes, [ArmCost("comet", "comet", 3.0, 0.5, 0, False), ArmCost("vtt", "deep", 90.0, 0.3, 2, True)])
    >>> [text.get_text() for text in axes.texts], axes.get_ylabel()
    (['comet', 'vtt*'], 'AUC-PR (%), mean over datasets')
    """
    points = list(costs)
    if not points:
        raise InputError("No arm has a training time and an accuracy for every entity; run more trials.")
    places = [(max(point.seconds, SHORTEST), 100 * point.accuracy) for point in points]
    for point, (x, y) in zip(points, places, strict=True):
        marker, color, _ = KINDS[point.kind]
        fill = "none" if point.on_gpu else color
        axes.scatter(x, y, s=AREA, marker=marker, facecolor=fill, edgecolor=color, alpha=0.8, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xlim(min(x for x, _ in places) / 2, max(x for x, _ in places) * 4)
    if floor is not None:
        axes.axhline(100 * floor, color=LIMIT, linewidth=1, linestyle="--", zorder=0)
        axes.text(axes.get_xlim()[1], 100 * floor, f"{FLOOR} ", color=LIMIT, fontsize=FONT, va="bottom", ha="right")
    axes.set_xlabel("seconds to train on one entity, mean")
    axes.set_ylabel(f"{METRICS[metric].title} (%), mean over datasets")
    axes.grid(color=INK, alpha=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    _legend(axes, points)
    names = [point.arm + ("*" if point.missing else "") for point in points]
    write_names(axes, names, places, [AREA] * len(points))


def save_costs(path: str | os.PathLike[str], records: Iterable[Record], base: str, metric: str = RANKED_BY) -> None:
    """Write the figure of `plot_costs`."""
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=(9, 6), dpi=150, layout="constrained")
    axes = figure.subplots()
    lines = list(records)
    plot_costs(axes, arm_costs(lines, base, metric), floor_of(lines, metric), metric)
    save_figure(path, figure)


def _legend(axes: Any, points: Iterable[ArmCost]) -> None:
    seen = dict.fromkeys((point.kind, point.on_gpu) for point in points)
    handles = [
        axes.scatter(
            *([], []),
            s=AREA,
            marker=KINDS[kind][0],
            facecolor="none" if on_gpu else KINDS[kind][1],
            edgecolor=KINDS[kind][1],
            label=f"{KINDS[kind][2]}, on a {'GPU' if on_gpu else 'CPU'}",
        )
        for kind, on_gpu in sorted(seen)
    ]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(handles)}
    axes.legend(handles=handles, frameon=False, fontsize=FONT, **place)


def _kind(detector: str) -> str:
    if detector in ("comet", "network", "comet-paper"):
        return "comet"
    return "simple" if detector in (*SIMPLE, "fair") else "deep"


def _entity(record: Record) -> Entity:
    return record["dataset"], record["entity"]


def _seconds(record: Record) -> float:
    return float(record["fit_seconds"])


def _is_gpu(record: Record) -> bool:
    return "NVIDIA" in str(record.get("device")) or str(record.get("device")).startswith("cuda")


def _grouped(records: Iterable[Record], read: Any) -> dict[Entity, list[float]]:
    found: dict[Entity, list[float]] = {}
    for record in records:
        found.setdefault(_entity(record), []).append(read(record))
    return found


def _entity_means(records: Iterable[Record], metric: str) -> dict[Entity, float]:
    """Return the mean over seeds of each entity."""
    return {where: float(np.mean(own)) for where, own in _grouped(records, RANKABLE[metric].read).items()}


def _over_datasets(values: Means) -> float:
    """Return the mean over datasets of the mean over entities."""
    datasets = dict.fromkeys(dataset for dataset, _ in values)
    return float(np.mean([np.mean([own for (name, _), own in values.items() if name == one]) for one in datasets]))
