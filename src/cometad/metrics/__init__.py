"""Metrics of anomaly scores: fast, pure functions of `(labels, scores)`, exact over all thresholds.

In: labels of 0 or 1 and scores, higher is more anomalous. Out: fractions; a point is detected if its score reaches the
threshold. Equal to rounding: tests/naive_metrics.py.
"""

from cometad.metrics.adjusted import adjusted_f1_area, adjusted_f1_at, adjusted_f1_curve, best_adjusted_f1
from cometad.metrics.affiliation import AffiliationCurve, affiliation_at, affiliation_curve, best_affiliation
from cometad.metrics.events import Events, events_at
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
    tsb_ad,
)
from cometad.metrics.ranking import AtThreshold
from cometad.metrics.volume import FLAVORS, Areas, Flavor, range_auc, vus
from cometad.metrics.windows import sliding_window

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
