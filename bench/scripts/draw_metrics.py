"""Draw the two figures of docs/metrics.md: the ramps of range AUC and the zones of affiliation.

python bench/scripts/draw_metrics.py
"""

from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np

from cometad.metrics import FLAVORS
from cometad.metrics.affiliation import zone_bounds

matplotlib.use("svg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).parents[2] / "docs" / "images"
ANOMALY, RAMP, DETECTION, EDGE = "#c0392b", "#e59866", "#2471a3", "#7f8c8d"


def ramp(labels: np.ndarray, window: int, right_shorter: int) -> np.ndarray:
    """The extended labels: how much each point counts as a true detection."""
    weights = labels.astype(float)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], labels, [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        for away in range(1, window // 2 + 1):
            if start - away >= 0:
                weights[start - away] += np.sqrt(1 - away / window)
            if away <= window // 2 - right_shorter and stop - 1 + away < len(labels):
                weights[stop - 1 + away] += np.sqrt(1 - away / window)
    return np.minimum(weights, 1)


def draw_ramp() -> None:
    labels = np.zeros(44, int)
    labels[8:13] = labels[24:27] = labels[32:35] = 1
    figure, axes = plt.subplots(2, 1, figsize=(8, 4.2), sharex=True, layout="constrained")
    for axis, flavor in zip(axes, ("classic", "symmetric"), strict=True):
        weights = ramp(labels, 8, FLAVORS[flavor].right_shorter)
        colors = [ANOMALY if label else RAMP for label in labels]
        axis.bar(np.arange(len(labels)), weights, width=0.9, color=colors)
        axis.set_title(f"{flavor}, window 8", loc="left", fontsize=10)
        axis.set_ylabel("weight")
        axis.set_ylim(0, 1.35)
        axis.spines[["top", "right"]].set_visible(False)
    arrow = {"arrowstyle": "->"}
    axes[0].annotate("one point shorter on the right", (16, 0.03), (14.2, 1.18), fontsize=9, arrowprops=arrow)
    axes[1].annotate("under two ramps: exactly 1", (29, 1.02), (32, 1.18), fontsize=9, arrowprops=arrow)
    axes[1].set_xlabel("time step (red: anomalous, orange: ramp)")
    save(figure, "metrics-ramp.svg")


def draw_zones() -> None:
    labels = np.zeros(40, bool)
    labels[6:10] = labels[17:19] = labels[30:35] = True
    detected = [3, 4, 8, 22, 23]
    bounds = zone_bounds(labels)
    figure, axis = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for number, (left, right) in enumerate(pairwise(bounds)):
        axis.axvspan(left, right, color=EDGE, alpha=0.10 + 0.12 * (number % 2), lw=0)
        axis.text((left + right) / 2, 2.45, f"zone {number + 1}", ha="center", fontsize=9)
    for edge in bounds[1:-1]:
        axis.axvline(edge, color=EDGE, ls="--", lw=1)
    for step in np.flatnonzero(labels):
        axis.add_patch(plt.Rectangle((step, 1.3), 1, 0.7, color=ANOMALY, lw=0))
    for step in detected:
        axis.add_patch(plt.Rectangle((step, 0.3), 1, 0.7, color=DETECTION, lw=0))
    axis.annotate("", (19, 0.65), (22, 0.65), arrowprops={"arrowstyle": "->"})
    axis.text(20.3, 0.12, "distance", ha="center", va="bottom", fontsize=9)
    axis.text(33.3, 0.5, "no detection:\nrecall 0,\nno precision", ha="center", va="center", fontsize=9)
    axis.set(xlim=(0, len(labels)), ylim=(0, 2.9), xlabel="time step", yticks=[0.65, 1.65])
    axis.set_yticklabels(["detected", "anomalous"])
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, "metrics-affiliation.svg")


def save(figure: plt.Figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / name, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "cometad"
    draw_ramp()
    draw_zones()
