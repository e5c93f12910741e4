"""The detectors Comet is compared with: one per file, all held to the same contract.

To add one, write its file and add a row to `BASELINES`; the contract tests and the command line pick it up from there.
"""

from cometad.baselines.anomaly_transformer import AnomalyTransformer
from cometad.baselines.baseline import Baseline
from cometad.baselines.catch import Catch
from cometad.baselines.d3r import D3r
from cometad.baselines.hbos import Hbos
from cometad.baselines.isolation_forest import IsolationForest
from cometad.baselines.kmeans_ad import KMeansAD
from cometad.baselines.knn_distance import KnnDistance
from cometad.baselines.lstm_ae import LstmAe
from cometad.baselines.lstm_vae import LstmVae
from cometad.baselines.pca_error import PcaError
from cometad.baselines.random_score import RandomScore
from cometad.baselines.sensor_range import SensorRange
from cometad.baselines.squared_norm import SquaredNorm
from cometad.baselines.usad import Usad
from cometad.baselines.vtt import Vtt

__all__ = ["BASELINES"]

BASELINES: dict[str, type[Baseline]] = {
    "random": RandomScore,
    "sensor-range": SensorRange,
    "squared-norm": SquaredNorm,
    "pca": PcaError,
    "knn": KnnDistance,
    "kmeans": KMeansAD,
    "hbos": Hbos,
    "isolation-forest": IsolationForest,
    "lstm-ae": LstmAe,
    "lstm-vae": LstmVae,
    "usad": Usad,
    "anomaly-transformer": AnomalyTransformer,
    "vtt": Vtt,
    "catch": Catch,
    "d3r": D3r,
}
