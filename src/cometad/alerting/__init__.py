"""From scores to flags and events: thresholds, alerts, severity."""

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.budget import Budget
from cometad.alerting.spot import DriftingSpot, Spot
from cometad.alerting.thresholds import THRESHOLDS, Conformal, Quantile

__all__ = ["THRESHOLDS", "Alerts", "Budget", "Conformal", "DriftingSpot", "Event", "Quantile", "Spot"]
