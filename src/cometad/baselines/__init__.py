"""The detectors Comet is compared with, all held to the same contract.

To add one, write its file and add a row to `BASELINES`; the contract tests and the command line pick it up from there.
A baseline is imported when it is looked up; the deep ones are in the distribution cometad-bench.
"""

from cometad.baselines.baseline import Baseline
from cometad.lazy import LazyTable, keep_names

__all__ = ["BASELINES"]

_SIMPLE = ("random_score", "sensor_range", "squared_norm")
keep_names(__name__, {"window_knn": "cometad.baselines.knn_distance"} | dict.fromkeys(_SIMPLE, f"{__name__}.simple"))
BASELINES: LazyTable[type[Baseline]] = LazyTable(
    "baseline",
    {
        "random": "cometad.baselines.simple:RandomScore",
        "sensor-range": "cometad.baselines.simple:SensorRange",
        "squared-norm": "cometad.baselines.simple:SquaredNorm",
        "pca": "cometad.baselines.pca_error:PcaError",
        "window-pca": "cometad.baselines.window_pca:WindowPca",
        "forecast-error": "cometad.baselines.forecast_error:ForecastError",
        "knn": "cometad.baselines.knn_distance:KnnDistance",
        "window-knn": "cometad.baselines.knn_distance:WindowKnn",
        "kmeans": "cometad.baselines.kmeans_ad:KMeansAD",
        "hbos": "cometad.baselines.hbos:Hbos",
        "isolation-forest": "cometad.baselines.isolation_forest:IsolationForest",
        "lstm-ae": "cometad_bench.baselines.lstm_ae:LstmAe",
        "lstm-vae": "cometad_bench.baselines.lstm_vae:LstmVae",
        "usad": "cometad_bench.baselines.usad:Usad",
        "anomaly-transformer": "cometad_bench.baselines.anomaly_transformer:AnomalyTransformer",
        "vtt": "cometad_bench.baselines.vtt:Vtt",
        "catch": "cometad_bench.baselines.catch:Catch",
        "d3r": "cometad_bench.baselines.d3r:D3r",
    },
)
