"""Sends events and scores: to webhooks, Alertmanager, broker topics, and Prometheus by remote write."""

from cometad.connect.out.message import EventMessage, MessageVariable
from cometad.connect.out.notifier import NOTIFIERS, Notifier, Rejected, notifier_of

__all__ = ["NOTIFIERS", "EventMessage", "MessageVariable", "Notifier", "Rejected", "notifier_of"]
