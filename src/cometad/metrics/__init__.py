"""Metrics of anomaly scores: fast, pure functions of `(labels, scores)`, exact over all thresholds.

In: labels of 0 or 1 and scores, higher is more anomalous. Out: fractions; a point is detected if its score reaches the
threshold. Equal to rounding: tests/naive_metrics.py.
"""

from cometad.lazy import keep_names
from cometad.metrics.adjusted import (
    Events,
    adjusted_f1_area,
    adjusted_f1_at,
    adjusted_f1_curve,
    best_adjusted_f1,
    events_at,
)
from cometad.metrics.affiliation import AffiliationCurve, affiliation_at, affiliation_curve, best_affiliation
from cometad.metrics.pointwise import auc_pr, auc_roc, best_f1, f1_at
from cometad.metrics.protocol import (
    METRICS,
    PROTOCOLS,
    Evaluation,
    Metric,
    MetricValue,
    Protocol,
    Reference,
    evaluate,
    reference,
    report,
    sliding_window,
    tsb_ad,
)
from cometad.metrics.ranking import AtThreshold
from cometad.metrics.volume import FLAVORS, Areas, Flavor, range_auc, vus

__all__ = [
    "FLAVORS",
    "METRICS",
    "PROTOCOLS",
    "AffiliationCurve",
    "Areas",
    "AtThreshold",
    "Evaluation",
    "Events",
    "Flavor",
    "Metric",
    "MetricValue",
    "Protocol",
    "Reference",
    "adjusted_f1_area",
    "adjusted_f1_at",
    "adjusted_f1_curve",
    "affiliation_at",
    "affiliation_curve",
    "auc_pr",
    "auc_roc",
    "best_adjusted_f1",
    "best_affiliation",
    "best_f1",
    "evaluate",
    "events_at",
    "f1_at",
    "range_auc",
    "reference",
    "report",
    "sliding_window",
    "tsb_ad",
    "vus",
]

keep_names(__name__, {"events": f"{__name__}.adjusted", "windows": f"{__name__}.protocol"})
