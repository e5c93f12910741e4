"""From scores to flags and events: thresholds, alerts, severity.

In: one alert score per time step. Out: a threshold, a flag, and events that open, update and close once.
Equal to the bit: scores in chunks of any size; the bound of `Budget` holds for any scores (tests/naive_alerts.py).
"""

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.budget import Budget
from cometad.alerting.spot import DriftingSpot, Spot
from cometad.alerting.thresholds import THRESHOLDS, Conformal, Quantile
from cometad.lazy import keep_names

keep_names(__name__, {"judge": "cometad.alerting.alerts"})

__all__ = ["THRESHOLDS", "Alerts", "Budget", "Conformal", "DriftingSpot", "Event", "Quantile", "Spot"]
