"""Figures over many results: which arms differ, and quality against cost. Functions draw on a matplotlib `Axes`."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from adjustText import adjust_text
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from cometad.metrics import METRICS
from cometad.report.plots import FOUND, INK, LIMIT, SCORE, save_figure
from cometad_bench.experiments import REFERENCES
from cometad_bench.frame import COVERS_ALL, ArmRanks, detectors, mean, mean_over_seeds
from cometad_bench.statistics import cliques, critical_difference, friedman

FONT = 8.5
FLOOR = "no skill"
ROW, LEVEL = 1.0, 0.55  # heights of a label and of a bar in a critical-difference diagram
LEADER = 60  # pixels between a marker and its name above which a leader line joins them
PLACEMENT_STEPS = 500  # a limit in steps rather than seconds, so that a figure does not depend on the machine


class Point(NamedTuple):
    """One arm in the efficiency plot; `parameters` is None if it learns none."""

    arm: str
    seconds: float
    aff_f1: float
    parameters: float | None


# --- critical difference ----------------------------------------------------------------------------------------------


def plot_critical_difference(
    axes: Any, ranks: Mapping[str, float], difference: float, groups: Sequence[Sequence[str]]
) -> None:
    low, high = math.floor(min(ranks.values())), math.ceil(max(ranks.values()))
    high = max(high, low + 1)  # all arms may share one rank
    levels = _bar_levels(ranks, groups)
    first_label = -LEVEL * (max(levels, default=-1) + 1) - ROW
    _draw_rank_line(axes, low, high, difference)
    for (left, right), level in zip(_spans(ranks, groups), levels, strict=True):
        height = -LEVEL * (level + 1)
        reach = 0.006 * (high - low)  # bars extend a little, so that two that end at the same rank stay apart
        axes.plot([left - reach, right + reach], [height, height], color=SCORE, linewidth=4, solid_capstyle="butt")
    rows = _draw_arms(axes, ranks, low, high, first_label)
    margin = 0.4 * (high - low)
    axes.set_xlim(low - margin, max(high + margin, low + 1.05 * difference))
    axes.set_ylim(first_label - ROW * rows, 2.9)
    axes.axis("off")


def save_critical_difference(path: str | os.PathLike[str], found: ArmRanks, title: str) -> None:
    """Write the critical-difference diagram of arms; `title` says by what they were ranked, over what."""
    blocks, ranks, _ = found
    difference = critical_difference(len(ranks), len(blocks))
    figure = Figure(figsize=(8, 1.8 + 0.16 * len(ranks)), dpi=150, layout="constrained")
    axes = figure.subplots()
    plot_critical_difference(axes, ranks, difference, cliques(ranks, difference))
    p = friedman(blocks.select(*ranks).to_numpy())
    axes.set_title(f"Mean rank by {title}; Friedman p = {p:.2g}", fontsize=FONT + 1, loc="left", color=INK)
    save_figure(path, figure)


def _spans(ranks: Mapping[str, float], groups: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
    return [(min(ranks[arm] for arm in group), max(ranks[arm] for arm in group)) for group in groups]


def _bar_levels(ranks: Mapping[str, float], groups: Sequence[Sequence[str]]) -> list[int]:
    """Return the level of each group's bar: the first with enough room, so that no two bars touch."""
    ends: list[float] = []  # end of the last bar on each level
    levels = []
    gap = 0.03 * (max(ranks.values()) - min(ranks.values()))
    for left, right in _spans(ranks, groups):
        level = next((level for level, end in enumerate(ends) if end + gap < left), len(ends))
        ends[level : level + 1] = [right]
        levels.append(level)
    return levels


def _draw_rank_line(axes: Any, low: int, high: int, difference: float) -> None:
    axes.plot([low, high], [0, 0], color=INK, linewidth=1)
    step = math.ceil((high - low) / 10)
    for rank in range(low, high + 1):
        is_numbered = (rank - low) % step == 0
        axes.plot([rank, rank], [0, 0.3 if is_numbered else 0.15], color=INK, linewidth=1)
        if is_numbered:
            axes.text(rank, 0.45, str(rank), ha="center", va="bottom", fontsize=FONT, color=INK)
    axes.plot([low, low + difference], [2, 2], color=LIMIT, linewidth=2, marker="|", markersize=7)
    axes.text(low, 2.25, f"critical difference {difference:.2f}", va="bottom", fontsize=FONT, color=LIMIT)


def _draw_arms(axes: Any, ranks: Mapping[str, float], low: int, high: int, top: float) -> int:
    """Draw each arm's line from its rank to its label, the better half on the left; return the number of rows."""
    arms = sorted(ranks, key=lambda arm: ranks[arm])
    half = (len(arms) + 1) // 2
    margin = 0.03 * (high - low)
    sides = ((arms[:half], low - margin, "right", -1), (arms[half:][::-1], high + margin, "left", 1))
    for side, end, align, direction in sides:
        for row, arm in enumerate(side):
            height = top - ROW * row
            axes.plot([ranks[arm], ranks[arm], end], [0, height, height], color=INK, linewidth=0.7)
            label = f"{arm}  {ranks[arm]:.2f}"
            axes.text(end + direction * margin / 3, height, label, ha=align, va="center", fontsize=FONT, color=INK)
    return half


# --- efficiency -------------------------------------------------------------------------------------------------------


def efficiency_points(frame: pl.DataFrame) -> list[Point]:
    means = mean_over_seeds(frame)
    figures = pl.col("fit_seconds", "aff_f1")
    complete = detectors(means).filter(COVERS_ALL & pl.all_horizontal(figures.is_not_null()))
    points = complete.group_by("arm", maintain_order=True).agg(
        pl.len(),
        *(mean(name).alias(name) for name in ("fit_seconds", "aff_f1")),
        pl.col("parameters").max(),
    )
    everywhere = points.filter(pl.col("len") == means["dataset"].n_unique())
    return [Point(*row) for row in everywhere.select("arm", "fit_seconds", "aff_f1", "parameters").iter_rows()]


def efficiency_floor(frame: pl.DataFrame) -> float:
    """Return the no-skill Aff-F1: the mean over datasets of the better of random and all-positive.

    A dataset with neither counts as 2/3, which random flags reach on any labels.
    """
    counts = COVERS_ALL & pl.col("arm").is_in(REFERENCES) & pl.col("fit_seconds").is_not_null()
    reached = pl.col("aff_f1").filter(counts).max().fill_null(METRICS["aff_f1"].floor or 0.0)
    return float(mean_over_seeds(frame).group_by("dataset").agg(reached).select(pl.col("aff_f1").mean()).item())


def plot_efficiency(axes: Any, points: Sequence[Point], floor: float) -> None:
    """Draw Aff-F1 against training time, with a line at the no-skill Aff-F1.

    The area of a circle is the number of parameters; squares have none.
    """
    largest = max(point.parameters or 0 for point in points)
    areas = [_area(point.parameters, largest) for point in points]
    seconds = [max(point.seconds, 1e-3) for point in points]  # the axis is logarithmic
    heights = [100 * point.aff_f1 for point in points]
    for point, x, y, area in zip(points, seconds, heights, areas, strict=True):
        marker, color = ("o", SCORE) if point.parameters else ("s", FOUND)
        axes.scatter(x, y, s=area, marker=marker, color=color, alpha=0.45, edgecolor=color, linewidth=1)
    _format_axes(axes, seconds, heights, 100 * floor)
    _draw_sizes(axes, largest, any(not point.parameters for point in points))
    write_names(axes, [point.arm for point in points], list(zip(seconds, heights, strict=True)), areas)


def save_efficiency(path: str | os.PathLike[str], frame: pl.DataFrame) -> None:
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.subplots()
    plot_efficiency(axes, efficiency_points(frame), efficiency_floor(frame))
    save_figure(path, figure)


def _area(parameters: float | None, largest: float) -> float:
    """Return the area of a marker in square points. The largest circle is about four letters wide."""
    return 20 + 980 * parameters / largest if parameters else 30


def _format_axes(axes: Any, seconds: Sequence[float], heights: Sequence[float], floor: float) -> None:
    low, high = min(*heights, floor), max(*heights, floor)
    axes.set_xscale("log")
    axes.set_xlim(min(seconds) / 3, max(seconds) * 3)
    axes.set_ylim(low - 0.15 * (high - low) - 0.5, high + 0.2 * (high - low) + 0.5)
    axes.axhline(floor, color=LIMIT, linewidth=1, linestyle="--", zorder=0)
    end = axes.get_xlim()[1]
    axes.text(end, floor, f"{FLOOR} ", color=LIMIT, fontsize=FONT, va="bottom", ha="right")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel("Aff-F1 (%)")
    axes.grid(color=INK, alpha=0.08)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_sizes(axes: Any, largest: float, has_squares: bool) -> None:
    sizes = [10.0 ** math.floor(math.log10(largest) - step) for step in (0, 1)] if largest >= 10 else []
    handles = [
        axes.scatter(
            [], [], s=_area(size, largest), marker="o", color=SCORE, alpha=0.45, label=f"{size:,.0f} parameters"
        )
        for size in sizes
    ]
    if has_squares:
        square = {"s": _area(None, 0), "marker": "s", "color": FOUND, "alpha": 0.45}
        handles.append(axes.scatter([], [], label="no parameters", **square))
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(handles)}  # above the axes, clear of circles
    axes.legend(handles=handles, frameon=False, fontsize=FONT, columnspacing=2.5, handletextpad=0.8, **place)


def write_names(axes: Any, names: Sequence[str], places: Sequence[tuple[float, float]], areas: Sequence[float]) -> None:
    """Write each name to the right of its marker, or nearby with a leader line if there is no room."""
    axes.figure.draw_without_rendering()  # positions are known only after layout
    obstacles = [artist.get_window_extent() for artist in (*axes.lines, *axes.texts)]
    texts = []
    for name, (x, y), area in zip(names, axes.transData.transform(places), areas, strict=True):
        radius = math.sqrt(area / math.pi) * axes.figure.dpi / 72
        obstacles.append(Bbox.from_extents(x - radius, y - radius, x + radius, y + radius))
        right = axes.transData.inverted().transform((x + 1.3 * radius, y))
        texts.append(axes.text(*right, name, va="center", fontsize=FONT, color=INK))
    xs, ys = zip(*places, strict=True)
    stay = {"avoid_self": False, "force_explode": 0, "force_pull": 0, "expand": (1, 1)}  # move only what overlaps
    leader = {"arrowstyle": "-", "color": INK, "linewidth": 0.5}
    adjust_text(
        texts,
        objects=obstacles,
        target_x=xs,
        target_y=ys,
        ax=axes,
        iter_lim=PLACEMENT_STEPS,
        min_arrow_len=LEADER,
        arrowprops=leader,
        **stay,
    )
