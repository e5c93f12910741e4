"""Results for tests of tables, figures and reports: with everything that they read, as if trials had run."""

from cometad.metrics import METRICS
from cometad_bench.frame import frame_of
from cometad_bench.results import Results

AT_THRESHOLD = {"precision": 0.5, "recall": 0.4, "f1": 0.44, "anomalies": 5, "anomalies_found": 3, "alarms": 6}
AT_THRESHOLD |= {"false_alarms": 3, "false_alarms_per_day": 1.5, "threshold": 0.9}


def trial(arm, value=0.7, dataset="MSL", entity="all", seed=0, **others):
    """One result; `value` is that of every metric."""
    return {
        **{"experiment": "main", "dataset": dataset, "entity": entity, "fingerprint": f"{dataset} {entity}"},
        **{"arm": arm, "seed": seed, "setting": {}, "detector": arm.split(",")[0], "hyper_parameters": {}},
        **{"parameters": None, "fit_seconds": 2.0, "score_seconds": 0.5, "peak_bytes": 2**20, "device": "a processor"},
        **{"metrics": dict.fromkeys(METRICS, value), "untied": {"vus_pr": value}, "at_threshold": AT_THRESHOLD},
        **{"error": None, **others},
    }


def trials(figures, **others):
    """Results from figures by arm and dataset, one for each entity."""
    return [
        trial(arm, value, dataset, f"{dataset}-{i}", **others)
        for arm, datasets in figures.items()
        for dataset, values in datasets.items()
        for i, value in enumerate(values)
    ]


def frame(figures, **others):
    """The same as a frame."""
    return frame_of(trials(figures, **others))


def stored(path, records):
    """Write results to a file, as a run does, and return its folder."""
    path.parent.mkdir(exist_ok=True, parents=True)
    for record in records:
        Results(path).append(record)
    return path.parent
