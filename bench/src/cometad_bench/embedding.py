"""A map of the embedding space (UMAP): training patches, normal and anomalous test patches, and active codes."""

import os
import time
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.data.network_windows import cut, window_starts
from cometad.datasets.dataset import Dataset
from cometad.errors import InputError
from cometad.network.patches import patches
from cometad.network_comet import NetworkComet
from cometad.report.plots import save_figure
from cometad_bench.experiments import NETWORK_DETECTORS, Arm
from cometad_bench.trial import Measure, Measured, built, costs, training_series

EACH = 500  # embeddings per kind and scale
WINDOWS = 300  # windows they are sampled from
KINDS = ("train normal", "test normal", "test anomaly", "code")
COLORS = ("#b8bcc4", "#7fb2d6", "#e0679a")  # for embeddings, as in the paper: gray, light blue, pink
CODES = (("o", "#2f8f4e"), ("s", "#6b4fa0"), ("^", "#d9822b"), ("D", "#30343f"))  # for codes, by scale


def embedding(dataset: Dataset, device: str) -> Measure:
    return lambda arm, plan: _embedded(dataset, arm, plan["seed"], device)


def _embedded(dataset: Dataset, arm: Arm, seed: int, device: str) -> Measured:
    if arm.detector not in NETWORK_DETECTORS:
        raise InputError(f"The arm {arm.name!r} has no embeddings. Choose an arm of {' or '.join(NETWORK_DETECTORS)}.")
    started = time.monotonic()
    detector = cast(NetworkComet, built(arm, dataset, seed, device)).fit(training_series(arm, dataset))
    fitted = time.monotonic()
    vectors, scales, kinds = sampled(detector, dataset, np.random.default_rng(seed))
    import umap  # here, because no other trial needs it

    places = umap.UMAP(random_state=seed, n_jobs=1).fit_transform(vectors)
    return costs(detector, fitted - started, time.monotonic() - fitted) | {
        "points": {
            "kind": [KINDS[kind] for kind in kinds],
            "patch": [int(detector.patch_sizes[scale]) for scale in scales],
            "x": [round(float(x), 3) for x in places[:, 0]],
            "y": [round(float(y), 3) for y in places[:, 1]],
        },
    }


def sampled(
    detector: NetworkComet, dataset: Dataset, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return a sample of embeddings and all active codes of a fitted detector (point, dim), with scales and kinds.

    Kinds are indices into KINDS. A test patch is anomalous if any of its time steps is.
    """
    vectors, scales, kinds = [], [], []
    for k, scale in enumerate(detector.network_):
        train = _embeddings(detector, k, dataset.train, None, rng)
        test = _embeddings(detector, k, dataset.test, dataset.labels, rng)
        codes = scale.codebook.vectors.detach().cpu().numpy()[detector.active_[k]]
        for kind, points in enumerate((train[0], test[0], test[1], codes)):
            vectors.append(points)
            scales.append(np.full(len(points), k))
            kinds.append(np.full(len(points), kind))
    return np.concatenate(vectors), np.concatenate(scales), np.concatenate(kinds)


@torch.no_grad()
def _embeddings(
    detector: NetworkComet, k: int, values: NDArray[Any], labels: NDArray[np.bool_] | None, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return sampled embeddings (patch, dim) of a series at one scale: of normal patches, and of anomalous ones."""
    starts = window_starts(len(values), detector.window, detector.window)
    if labels is not None:  # half of the windows contain anomalies; a plain sample would have too few
        marked = np.array([labels[start : start + detector.window].any() for start in starts])
        starts = np.concatenate(
            [_sample(starts[~marked], WINDOWS // 2, rng), _sample(starts[marked], WINDOWS // 2, rng)]
        )
    else:
        starts = _sample(starts, WINDOWS, rng)
    scale = list(detector.network_)[k]
    windows = torch.as_tensor(cut(detector.scaling_(values), starts, detector.window), device=detector.device)
    embeddings = scale.embed(windows)  # (window, patch, variable, dim)
    truth = np.zeros(len(values), bool) if labels is None else labels
    patch_labels = patches(
        torch.as_tensor(truth[starts[:, None] + np.arange(detector.window)])[..., None].float(),
        scale.size,
        scale.stride,
    )
    anomalous = patch_labels.amax(dim=(2, 3)) > 0  # (window, patch)
    return tuple(  # type: ignore[return-value]
        _sample(embeddings[mask].flatten(0, 1).cpu().numpy(), EACH, rng) for mask in (~anomalous, anomalous)
    )


def _sample(rows: NDArray[Any], limit: int, rng: np.random.Generator) -> NDArray[Any]:
    return rows[np.sort(rng.permutation(len(rows))[:limit])]


def plot_embedding(axes: Any, points: dict[str, list[Any]]) -> None:
    """Draw projected embeddings and codes: anomalous embeddings over normal ones, and codes on top."""
    kinds, sizes = np.array(points["kind"]), np.array(points["patch"])
    x, y = np.array(points["x"], float), np.array(points["y"], float)
    for kind, color in zip(KINDS[:3], COLORS, strict=True):
        here = kinds == kind
        if here.any():
            axes.scatter(x[here], y[here], s=9, color=color, alpha=0.6, linewidth=0, label=kind)
    for size, (marker, color) in zip(np.unique(sizes), CODES, strict=False):
        here = (kinds == KINDS[3]) & (sizes == size)
        style = {"marker": marker, "color": color, "edgecolor": "white", "linewidth": 0.4}
        if here.any():
            axes.scatter(x[here], y[here], s=20, label=f"codes of patches of {size}", **style)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def save_embedding(path: str | os.PathLike[str], points: dict[str, list[Any]]) -> None:
    from matplotlib.figure import Figure  # here, because trials do not need it

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    plot_embedding(figure.subplots(), points)
    save_figure(path, figure)
