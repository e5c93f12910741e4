"""Draw the pictures of docs/concepts.md from a detector fitted on the synthetic plant.

python docs/draw_concepts.py
"""

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from cometad import Alerts, NetworkComet, Quantile
from cometad.alerting import Spot
from cometad.datasets.synthetic import Fault, Plant, synthetic_plant
from cometad.network import NoAdaptation, OneCycle

matplotlib.use("svg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent / "images"
# Text, grid and background have a second color for dark mode; the other colors work on both.
INK, FAINT, GROUND = "#30343f", "#b9bec7", "#ffffff"
DARK = {INK: "#d5d9e0", FAINT: "#5a606c", GROUND: "#1f222b"}
BLUE, RED, GREEN, ORANGE = "#2f86b5", "#d1495b", "#3b9a62", "#e0862f"
SCALES = (BLUE, GREEN, ORANGE)


def draw_window(plant: Plant, detector: NetworkComet) -> None:
    rows, shown = 3 * detector.window, (0, 1, 2, 3)
    figure, axes = plt.subplots(len(shown), 1, figsize=(6, 3.4), sharex=True, layout="constrained")
    for axis, variable in zip(axes, shown, strict=True):
        axis.plot(plant.test[:rows, variable], color=BLUE, lw=1)
        axis.set_ylabel(plant.names[variable].split("_")[1], rotation=0, ha="right", va="center")
        axis.set_yticks([])
        for border in range(0, rows + 1, detector.window):
            axis.axvline(border, color=INK, lw=1, ls="--")
        axis.axvspan(detector.window, 2 * detector.window, color=ORANGE, alpha=0.15, lw=0)
    axes[0].set_title(f"one window: {detector.window} readings of every variable", loc="center", fontsize=10)
    axes[-1].set(xlabel="time step", xlim=(0, rows), xticks=range(0, rows + 1, detector.window))
    save(figure, "concept-window.svg")


def draw_patches(plant: Plant, detector: NetworkComet) -> None:
    length = 48
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(6, 3.6), sharex=True, height_ratios=(3, 4), layout="constrained"
    )
    above.plot(plant.test[:length, 0], color=BLUE, lw=1.5, marker=".", ms=4)
    above.set_ylabel(plant.names[0].split("_")[1])
    above.set_yticks([])
    places, labels, row = [], [], 0.0
    for color, size, stride in zip(SCALES, detector.patch_sizes, detector.patch_strides, strict=True):
        for number, start in enumerate(range(0, length - size + 1, stride)):
            below.barh(row + 0.8 * (number % 2), size - 0.4, left=start - 0.3, height=0.6, color=color, lw=0)
        places.append(row + 0.4)
        labels.append(f"{size} readings, every {stride}")
        row += 2.4
    below.set_yticks(places, labels)
    below.invert_yaxis()
    below.set(xlabel="time step of the window", xlim=(-1, length))
    save(figure, "concept-patches.svg")


def draw_codebook(plant: Plant, detector: NetworkComet, fault: Fault) -> None:
    """Draw embeddings and codes in a plane that shows the faulty patch, and two patches next to their codes."""
    k, variable = 2, fault.variables[0]
    scale = list(detector.network_)[k]
    with torch.no_grad():
        normal = scale(_windows(detector, plant.train, range(0, 40 * detector.window, detector.window)))
        faulty = scale(_windows(detector, plant.test, [fault.start - detector.window // 2]))
        decoded = scale.decoder(faulty.quantized.vectors)[0, :, variable].numpy()
    embeddings = normal.embeddings[:, :, variable].reshape(-1, detector.dim).numpy()
    used = np.unique(normal.quantized.codes[:, :, variable].numpy())
    codes = scale.codebook.vectors.detach().numpy()[used]
    own = faulty.embeddings[0, :, variable].numpy()  # (patch, dim)
    nearest = faulty.quantized.vectors[0, :, variable].numpy()
    errors = np.linalg.norm(own - nearest, axis=1)
    calm, strange = int(errors[: len(errors) // 4].argmin()), int(errors.argmax())
    center = embeddings.mean(axis=0)
    along = np.linalg.svd(embeddings - center, full_matrices=False)[2][0]
    plane = np.linalg.qr(np.stack([along, own[strange] - nearest[strange]], axis=1))[0]  # (dim, 2)

    figure = plt.figure(figsize=(6, 3.6), layout="constrained")
    left, right = figure.add_gridspec(1, 2, width_ratios=(3, 2))
    axis = figure.add_subplot(left)
    axis.scatter(*((embeddings - center) @ plane).T, s=4, color=FAINT, label="training patches", rasterized=False)
    axis.scatter(*((codes - center) @ plane).T, s=24, marker="x", color=BLUE, lw=1.2, label="codes")
    for patch, color in ((calm, GREEN), (strange, RED)):
        ends = (np.stack([own[patch], nearest[patch]]) - center) @ plane
        axis.plot(*ends.T, color=color, lw=2, marker="o", ms=5, markevery=[0])
    axis.set(xticks=[], yticks=[], title=f"{plant.names[variable]}, patches of {scale.size}")
    axis.legend(frameon=False, fontsize=8, loc="best", labelcolor=INK)
    cells = right.subgridspec(2, 1)
    for cell, patch, color, word in ((0, calm, GREEN, "near a code"), (1, strange, RED, "far from every code")):
        small = figure.add_subplot(cells[cell])
        small.plot(faulty.patches[0, patch, variable].numpy(), color=color, marker=".", lw=1.5)
        small.plot(decoded[patch], color=BLUE, ls="--", lw=1.2)
        small.set_title(f"{word}: {errors[patch]:.2f}", fontsize=9, loc="left")
        small.set(xticks=[], yticks=[])
    small.set_xlabel("solid: the patch\ndashed: its code, decoded")
    save(figure, "concept-codebook.svg")


def draw_scores(plant: Plant, detector: NetworkComet, fault: Fault) -> None:
    around = _around(fault, detector, len(plant.test))
    variable = fault.variables[0]
    maps = detector.score_map(plant.test)
    figure, axes = plt.subplots(3, 1, figsize=(6, 4.6), sharex=True, layout="constrained")
    axes[0].plot(range(around.start, around.stop), plant.test[around, variable], color=INK, lw=1)
    axes[0].set_title(plant.names[variable], fontsize=9, loc="left")
    pairs = (
        ("quantization score: how far from the nearest code", maps.quantization),
        ("memory score: how unusual that code is", maps.memory),
    )
    for axis, (title, scores) in zip(axes[1:], pairs, strict=True):
        for color, size, line in zip(SCALES, detector.patch_sizes, scores[:, around, variable], strict=True):
            axis.plot(range(around.start, around.stop), line, color=color, lw=1, label=f"patches of {size}")
        axis.set_title(title, fontsize=9, loc="left")
    figure.legend(handles=axes[1].lines, frameon=False, fontsize=8, ncols=3, loc="upper right", labelcolor=INK)
    for axis in axes:
        axis.axvspan(fault.start, fault.stop, color=RED, alpha=0.12, lw=0)
        axis.set_yticks([])
    axes[-1].set(xlabel=f"time step (shaded: a planted fault, {fault.kind})", xlim=(around.start, around.stop))
    save(figure, "concept-scores.svg")


def draw_selection(plant: Plant, detector: NetworkComet, fault: Fault) -> None:
    around = _around(fault, detector, len(plant.test))
    scored = detector.stream(adaptation=NoAdaptation()).update_many(plant.test)
    raw = detector.score_map(plant.test).quantization.mean(axis=0)[around]
    own = scored.variables[around]
    figure, axes = plt.subplots(3, 1, figsize=(6, 5.4), sharex=True, height_ratios=(3, 3, 2), layout="constrained")
    names = [name.replace("_", " ") for name in plant.names]
    edges = (around.start, around.stop, len(names) - 0.5, -0.5)
    for axis, values, high, title in (
        (axes[0], raw, np.quantile(raw, 0.995), "raw: some variables always fit their codes worse"),
        (
            axes[1],
            own,
            np.quantile(own, 0.995),
            "calibrated: one training reading in 100 scores above 1",
        ),
    ):
        low = np.quantile(values, 0.02)
        axis.imshow(values.T, aspect="auto", extent=edges, vmin=low, vmax=high, cmap="cividis", interpolation="nearest")
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_yticks(range(len(names)), names, fontsize=6)
    axes[2].plot(range(around.start, around.stop), scored.scores[around], color=BLUE, lw=1)
    axes[2].axhline(detector.threshold_, color=RED, lw=1, ls="--")
    axes[2].set_title("selected: the mean of the 3 highest, and the threshold", fontsize=9, loc="left")
    axes[2].axvspan(fault.start, fault.stop, color=RED, alpha=0.12, lw=0)
    axes[2].set(xlabel="time step", xlim=(around.start, around.stop))
    save(figure, "concept-selection.svg")


def draw_adaptation(detector: NetworkComet) -> None:
    """Draw the median scores of a long normal series with drift, with and without adaptation."""
    drifting = synthetic_plant(test_rows=60_000, variables=12, faults_per_kind=0, drift=2.0).test
    batch = detector.window * detector.test_batch
    streams = {"as fitted": detector.stream(adaptation=NoAdaptation()), "adapting": detector.stream()}
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for (name, stream), color in zip(streams.items(), (FAINT, BLUE), strict=True):
        scores = stream.update_many(drifting).scores
        typical = np.median(scores[: len(scores) // batch * batch].reshape(-1, batch), axis=1)
        axis.step(batch * np.arange(len(typical)), typical, where="post", color=color, lw=1.8, label=name)
    axis.legend(frameon=False, fontsize=9, labelcolor=INK)
    axis.set(xlabel="time step", ylabel="median score of a batch", xlim=(0, len(drifting)))
    axis.set_title(f"drift without any fault; one learning step after every {batch} readings", fontsize=9, loc="left")
    save(figure, "concept-adaptation.svg")


def draw_events(plant: Plant, detector: NetworkComet) -> None:
    lenient, strict = (detector.with_threshold(rule) for rule in (Quantile(rate=0.01), Spot(rate=1e-4)))
    alerts = Alerts(min_length=3, merge_gap=16)
    scores = strict.decision_function(plant.test)
    worst = sorted(strict.events(plant.test, alerts), key=lambda event: -event.severity)[:3]
    around = slice(min(event.start for event in worst) - 200, max(event.stop for event in worst) + 200)
    top = 4 * strict.threshold_  # clip higher peaks
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axis.plot(range(around.start, around.stop), scores[around], color=BLUE, lw=1)
    for line, color, name in ((lenient, ORANGE, "Quantile(rate=0.01)"), (strict, RED, "Spot(rate=1e-4)")):
        axis.axhline(line.threshold_, color=color, lw=1.2, ls="--", label=name)
    for event in strict.events(plant.test, alerts):
        if around.start <= event.start < around.stop:
            axis.axvspan(event.start, event.stop, color=RED, alpha=0.2, lw=0)
            if event.severity > 0.1:
                axis.text((event.start + event.stop) / 2, top, f"{event.severity:.2f}", ha="center", va="bottom")
    axis.legend(frameon=False, fontsize=8, loc=(0.6, 0.5), labelcolor=INK)
    axis.set(xlabel="time step (shaded: events, with their severity if above 0.1)", ylabel="score")
    axis.set(xlim=(around.start, around.stop), ylim=(scores[around].min(), 1.1 * top))
    save(figure, "concept-events.svg")


def _windows(detector: NetworkComet, series: np.ndarray, starts: Any) -> torch.Tensor:
    scaled = detector.scaling_(series)
    return torch.as_tensor(np.stack([scaled[start : start + detector.window] for start in starts]))


def _around(fault: Fault, detector: NetworkComet, rows: int) -> slice:
    return slice(max(0, fault.start - 2 * detector.window), min(rows, fault.stop + 2 * detector.window))


def save(figure: Any, name: str) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = IMAGES / name
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    path.write_text(two_colored(path.read_text()))


def two_colored(svg: str) -> str:
    """Add a second set of colors for dark mode."""
    rules = "".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}\n'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>\n@media (prefers-color-scheme: dark) {{\n{rules}}}\n</style>\n"
    return re.sub(r"(<svg [^>]*>\n)", lambda match: match[0] + style, svg, count=1)


def main() -> None:
    plt.rcParams.update(
        {"svg.hashsalt": "cometad", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
    )
    plt.rcParams.update(dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK))
    plt.rcParams.update({"xtick.color": INK, "ytick.color": INK, "figure.facecolor": GROUND, "axes.facecolor": "none"})
    plant = synthetic_plant(train_rows=6000, test_rows=6000, variables=12, faults_per_kind=1)
    detector = NetworkComet(schedule=OneCycle(200), codebook_size=256).fit(plant.train)
    fault = next(fault for fault in plant.faults if fault.kind == "shape")
    draw_window(plant, detector)
    draw_patches(plant, detector)
    draw_codebook(plant, detector, fault)
    draw_scores(plant, detector, fault)
    draw_selection(plant, detector, fault)
    draw_events(plant, detector)
    draw_adaptation(detector)


if __name__ == "__main__":
    main()
