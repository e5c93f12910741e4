"""Where embeddings and codes lie: those of training, of normal and of anomalous patches, drawn in the plane by UMAP."""

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.bench.experiments import Arm
from cometad.comet import Comet
from cometad.data.dataset import Dataset
from cometad.data.windows import cut, window_starts
from cometad.errors import InputError, needs_extra
from cometad.model.patches import patches

EACH = 500  # embeddings of each kind and scale
WINDOWS = 300  # that they are drawn from
KINDS = ("train normal", "test normal", "test anomaly", "code")


def embedding_trial(dataset: Dataset, arm: Arm, seed: int, device: str) -> dict[str, Any]:
    """Fit a Comet and lay its embeddings and codes out in the plane; what comes back is ready for JSON."""
    begun = time.monotonic()
    detector = arm.build(dataset.name, seed, device).fit(dataset.train)
    fitted = time.monotonic()
    if not isinstance(detector, Comet):
        raise InputError(f"The arm {arm.name!r} has no embeddings. Choose one of comet.")
    vectors, scales, kinds = sampled(detector, dataset, np.random.default_rng(seed))
    places = needs_extra("umap", "viz").UMAP(random_state=seed, n_jobs=1).fit_transform(vectors)
    return {
        "parameters": sum(parameter.numel() for parameter in detector.network_.parameters()),
        "fit_seconds": round(fitted - begun, 3),
        "score_seconds": round(time.monotonic() - fitted, 3),
        "points": {
            "kind": [KINDS[kind] for kind in kinds],
            "patch": [int(detector.patch_sizes[scale]) for scale in scales],
            "x": [round(float(x), 3) for x in places[:, 0]],
            "y": [round(float(y), 3) for y in places[:, 1]],
        },
    }


def sampled(
    detector: Comet, dataset: Dataset, chance: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Some embeddings and all active codes of a fitted Comet (point, dim), the scale of each and its place in KINDS.

    A patch of the test part is anomalous where any of its time steps is.
    """
    vectors, scales, kinds = [], [], []
    for k, scale in enumerate(detector.network_):
        train = _embeddings(detector, k, dataset.train, None, chance)
        test = _embeddings(detector, k, dataset.test, dataset.labels, chance)
        codes = scale.codebook.vectors.detach().cpu().numpy()[detector.active_[k]]
        for kind, some in enumerate((train[0], test[0], test[1], codes)):
            vectors.append(some)
            scales.append(np.full(len(some), k))
            kinds.append(np.full(len(some), kind))
    return np.concatenate(vectors), np.concatenate(scales), np.concatenate(kinds)


@torch.no_grad()
def _embeddings(
    detector: Comet, k: int, values: NDArray[Any], labels: NDArray[np.bool_] | None, chance: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Some embeddings (patch, dim) of a series at one scale: of normal patches, and of anomalous ones."""
    starts = window_starts(len(values), detector.window, detector.window)
    if labels is not None:  # half of the windows from where anomalies are, else few would be seen
        marked = np.array([labels[start : start + detector.window].any() for start in starts])
        starts = np.concatenate(
            [_some(starts[~marked], WINDOWS // 2, chance), _some(starts[marked], WINDOWS // 2, chance)]
        )
    else:
        starts = _some(starts, WINDOWS, chance)
    scale = list(detector.network_)[k]
    windows = torch.as_tensor(cut(detector.scaling_(values), starts, detector.window), device=detector.device)
    found = scale.embed(windows)  # (window, patch, variable, dim)
    truth = np.zeros(len(values), bool) if labels is None else labels
    over = patches(
        torch.as_tensor(truth[starts[:, None] + np.arange(detector.window)])[..., None].float(),
        scale.size,
        scale.stride,
    )
    anomalous = over.amax(dim=(2, 3)) > 0  # (window, patch)
    return tuple(  # type: ignore[return-value]
        _some(found[which].flatten(0, 1).cpu().numpy(), EACH, chance) for which in (~anomalous, anomalous)
    )


def _some(rows: NDArray[Any], most: int, chance: np.random.Generator) -> NDArray[Any]:
    return rows[np.sort(chance.permutation(len(rows))[:most])]
