"""Sends events and scores: to webhooks, Alertmanager, broker topics, and Prometheus by remote write.

In: messages from the outbox. Out: requests to receivers. Always: at least once, a repeated message has the same id.
"""

from cometad.connect.out.message import EventMessage, MessageVariable
from cometad.connect.out.notifier import NOTIFIERS, Notifier, Rejected, notifier_of

__all__ = ["NOTIFIERS", "EventMessage", "MessageVariable", "Notifier", "Rejected", "notifier_of"]
