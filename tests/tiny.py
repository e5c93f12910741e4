"""Parameters that make detectors small enough to fit quickly."""

from cometad.network import Epochs, OneCycle

TRAINED = {"window": 20, "window_stride": 10, "batch_size": 16, "schedule": Epochs(2, learning_rate=1e-3)}
TINY = {
    "lstm-ae": {**TRAINED, "hidden": 8},
    "lstm-vae": {**TRAINED, "hidden": 8, "latent": 4},
    "usad": {**TRAINED, "latent": 8},
    "anomaly-transformer": {**TRAINED, "dim": 8, "heads": 2, "layers": 1},
    "vtt": {**TRAINED, "dim": 4, "heads": 2, "layers": 1},
    "catch": {**TRAINED, "patch_size": 8, "channel_dim": 8, "head_dim": 4, "feed_dim": 8, "dim": 4, "layers": 1},
    "d3r": {**TRAINED, "dim": 8, "heads": 2, "feed_dim": 16, "period": 50, "draws": 2},
}
# A small NetworkComet whose patches leave steps at the end of a window uncovered: those of 5 and 8 do.
UNEVEN = {
    "window": 24,
    "window_stride": 8,
    "patch_sizes": (2, 5, 8),
    "patch_strides": (1, 2, 5),
    "dim": 8,
    "core_dim": 5,
    "codebook_size": 12,
    "batch_size": 16,
    "test_batch": 2,
}
NETWORK_VIEW = {
    "patch_sizes": (2, 4),
    "window": 16,
    "dim": 4,
    "core_dim": 2,
    "codebook_size": 8,
    "schedule": OneCycle(2),
}
