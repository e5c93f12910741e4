"""Sends events and scores: to webhooks, Alertmanager, broker topics, and Prometheus by remote write.

In: messages from the outbox. Out: requests to receivers. Always: at least once, a repeated message has the same id.
"""

from cometad.connect.out.message import EventMessage, MessageVariable
from cometad.connect.out.notifier import NOTIFIERS, Notifier, Rejected, notifier_of
from cometad.lazy import keep_names

__all__ = ["NOTIFIERS", "EventMessage", "MessageVariable", "Notifier", "Rejected", "notifier_of"]

keep_names(__name__, {"templates": "cometad.connect.out.message"})
