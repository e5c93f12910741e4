"""Parameters that make each baseline quick to fit in tests."""

from cometad.network import Epochs

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
