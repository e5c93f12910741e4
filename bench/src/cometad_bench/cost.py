"""Accuracy against training time for every arm of an experiment by entity, in one figure."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from cometad.metrics import METRICS
from cometad.report.plots import FOUND, INK, LIMIT, SCORE, save_figure
from cometad_bench.compare import without_one_dataset
from cometad_bench.experiments import RANDOM, REFERENCES, SIMPLE
from cometad_bench.figures import FLOOR, FONT, write_names
from cometad_bench.frame import RANKED_BY, detectors, distinct, family_means, twins

ENTITY = ("dataset", "entity")
_ON_GPU = pl.col("device").fill_null("").str.contains(r"NVIDIA|^cuda")
SHORTEST = 1e-3  # seconds; the axis is logarithmic
AREA = 45  # of a marker, in square points
KINDS = {"comet": ("o", SCORE, "COMET"), "simple": ("s", FOUND, "simple"), "deep": ("^", INK, "deep baseline")}


class ArmCost(NamedTuple):
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


def cost_panels(frame: pl.DataFrame, metric: str = RANKED_BY) -> list[CostPanel]:
    """Return the panels of the figure: all entities, and if some arms lack some, also the entities that every arm has.

    If more arms are complete without one of the datasets, the first panel is without it.
    """
    rest = without_one_dataset(frame, metric)[1]
    first = frame if rest.is_empty() else rest
    own = detectors(frame)
    count = pl.col("arm").filter(~pl.col("arm").is_in(REFERENCES)).n_unique()
    common = frame.filter((count == own["arm"].n_unique()).over("dataset", "entity"))
    panels = [_panel("{datasets}: {entities}", first, metric)]
    if len(common) and set(distinct(common, *ENTITY)) < set(distinct(first, *ENTITY)):
        panels.append(_panel("{datasets}: the {entities} that every arm has", common, metric))
    return [panel for panel in panels if panel.costs]


def _panel(title: str, frame: pl.DataFrame, metric: str) -> CostPanel:
    same = twins(frame)
    accuracy = family_means(frame, metric, references=True)
    seconds = family_means(frame, "fit_seconds", references=True)
    costs = []
    for (arm,), trials in frame.group_by("arm", maintain_order=True):
        if arm in accuracy and arm not in (*REFERENCES, *same):
            on_gpu = trials.select(_ON_GPU.mean()).item() >= 0.5
            time, figure = (float(np.mean(list(means[str(arm)].values()))) for means in (seconds, accuracy))
            costs.append(ArmCost(str(arm), _kind(trials["detector"][0]), time, figure, on_gpu))
    entities, datasets = len(distinct(frame, *ENTITY)), ", ".join(distinct(frame, "dataset"))
    random = family_means(frame.filter(pl.col("arm") == RANDOM), metric, references=True).get(RANDOM)
    floor = float(np.mean(list(random.values()))) if random else None
    count = f"{entities} {'entity' if entities == 1 else 'entities'}"
    return CostPanel(title.format(datasets=datasets, entities=count), costs, floor)


def plot_costs(axes: Any, panel: CostPanel, metric: str = RANKED_BY) -> None:
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


def save_costs(path: str | os.PathLike[str], panels: Sequence[CostPanel], metric: str = RANKED_BY) -> None:
    """Write the figure: panels one above the other, so that names have room."""
    size = (9, 0.5 + 5.5 * len(panels))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
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
