"""Accuracy against training time for every arm of an experiment by entity, in one figure."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cometad.errors import InputError, needs_extra
from cometad.metrics import METRICS
from cometad.report.plots import FOUND, INK, LIMIT, SCORE, save_figure
from cometad_bench.compare import without_one_dataset
from cometad_bench.experiments import SIMPLE
from cometad_bench.figures import FLOOR, FONT, write_names
from cometad_bench.results import Record, latest
from cometad_bench.summaries import RANDOM, RANKABLE, RANKED_BY, REFERENCES, blocks, twins

Entity = tuple[str, str]  # dataset and entity
Means = Mapping[Entity, float]

SHORTEST = 1e-3  # seconds; the axis is logarithmic
AREA = 45  # of a marker, in square points
KINDS = {"comet": ("o", SCORE, "COMET"), "simple": ("s", FOUND, "simple"), "deep": ("^", INK, "deep baseline")}


class ArmCost(NamedTuple):
    """One arm in a panel."""

    arm: str
    kind: str  # a key of KINDS
    seconds: float  # to fit one entity: the mean over datasets of the mean over entities
    accuracy: float  # the mean over datasets of the mean over entities
    on_gpu: bool  # in at least half of the trials


class CostPanel(NamedTuple):
    """Some entities, and every arm that has all of them."""

    title: str
    costs: list[ArmCost]
    floor: float | None  # the accuracy of random scores


def cost_panels(records: Iterable[Record], metric: str = RANKED_BY) -> list[CostPanel]:
    """Return the panels of the figure: all entities, and if some arms lack some, also the entities that every arm has.

    If more arms are complete without one of the datasets, the first panel is without it.
    """
    counted = latest(records)
    complete = blocks(counted, metric, "entity").arms
    first = without_one_dataset(counted, complete, metric)[1] or counted
    arms: dict[str, set[Entity]] = {}
    for record in counted:
        if record["arm"] not in REFERENCES:
            arms.setdefault(record["arm"], set()).add(_entity(record))
    shared = set.intersection(*arms.values()) if arms else set()
    panels = [_panel("{datasets}: {entities}", first, metric)]
    if shared < {_entity(record) for record in first}:
        common = [record for record in counted if _entity(record) in shared]
        panels += [_panel("{datasets}: the {entities} that every arm has", common, metric)] if common else []
    return [panel for panel in panels if panel.costs]


def _panel(title: str, records: Sequence[Record], metric: str) -> CostPanel:
    everything = {_entity(record) for record in records}
    same = twins(records)
    arms: dict[str, list[Record]] = {}
    for record in records:
        if record["arm"] not in (*REFERENCES, *same):
            arms.setdefault(record["arm"], []).append(record)
    costs = []
    for arm, lines in arms.items():
        values = _entity_means(lines, RANKABLE[metric].read)
        if len(values) == len(everything):
            seconds, accuracy = _over_datasets(_entity_means(lines, _seconds)), _over_datasets(values)
            on_gpu = float(np.mean([_is_gpu(record) for record in lines])) >= 0.5
            costs.append(ArmCost(arm, _kind(lines[0]["detector"]), seconds, accuracy, on_gpu))
    random = _entity_means([record for record in records if record["arm"] == RANDOM], RANKABLE[metric].read)
    count = f"{len(everything)} {'entity' if len(everything) == 1 else 'entities'}"
    datasets = ", ".join(dict.fromkeys(record["dataset"] for record in records))
    floor = _over_datasets(random) if random else None
    return CostPanel(title.format(datasets=datasets, entities=count), costs, floor)


def plot_costs(axes: Any, panel: CostPanel, metric: str = RANKED_BY) -> None:
    """Draw accuracy against training time: filled markers for a CPU, hollow ones for a GPU."""
    places = [(max(cost.seconds, SHORTEST), 100 * cost.accuracy) for cost in panel.costs]
    for cost, (x, y) in zip(panel.costs, places, strict=True):
        marker, color, _ = KINDS[cost.kind]
        fill = "none" if cost.on_gpu else color
        axes.scatter(x, y, s=AREA, marker=marker, facecolor=fill, edgecolor=color, alpha=0.8, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xlim(min(x for x, _ in places) / 2, max(x for x, _ in places) * 8)  # room for names
    if panel.floor is not None:
        axes.axhline(100 * panel.floor, color=LIMIT, linewidth=1, linestyle="--", zorder=0)
        left = axes.get_xlim()[0]
        axes.text(left, 100 * panel.floor, f" {FLOOR}", color=LIMIT, fontsize=FONT, va="bottom", ha="left")
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.set_xlabel("seconds to train on one entity, mean")
    axes.set_ylabel(f"{METRICS[metric].title} (%), mean over datasets")
    axes.grid(color=INK, alpha=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    write_names(axes, [cost.arm for cost in panel.costs], places, [AREA] * len(places))


def save_costs(path: str | os.PathLike[str], records: Iterable[Record], metric: str = RANKED_BY) -> None:
    """Write the figure: the panels of `cost_panels`, one above the other, so that names have room."""
    panels = cost_panels(records, metric)
    if not panels:
        raise InputError("No arm has a training time and an accuracy for every entity; run more trials.")
    size = (9, 0.5 + 5.5 * len(panels))
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=size, dpi=110, layout="constrained")
    every = figure.subplots(len(panels), squeeze=False)[:, 0]
    _legend(figure, every[0], [cost for panel in panels for cost in panel.costs])
    for axes, panel in zip(every, panels, strict=True):
        plot_costs(axes, panel, metric)
    save_figure(path, figure)


def _legend(figure: Any, axes: Any, costs: Iterable[ArmCost]) -> None:
    seen = dict.fromkeys((cost.kind, cost.on_gpu) for cost in costs)
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
    figure.legend(handles=handles, frameon=False, fontsize=FONT, loc="outside upper left", ncols=len(handles))


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


def _entity_means(records: Iterable[Record], read: Callable[[Record], float]) -> dict[Entity, float]:
    """Return the mean over seeds of each entity."""
    found: dict[Entity, list[float]] = {}
    for record in records:
        found.setdefault(_entity(record), []).append(read(record))
    return {where: float(np.mean(own)) for where, own in found.items()}


def _over_datasets(values: Means) -> float:
    """Return the mean over datasets of the mean over entities."""
    datasets = dict.fromkeys(dataset for dataset, _ in values)
    return float(np.mean([np.mean([own for (name, _), own in values.items() if name == one]) for one in datasets]))
