"""Where events and scores go: webhooks, Alertmanager, topics of brokers, and Prometheus by remote write."""

from cometad.connect.out.notice import Notice, NoticedVariable
from cometad.connect.out.notifier import NOTIFIERS, Notifier, Rejected, notifier_of

__all__ = ["NOTIFIERS", "Notice", "NoticedVariable", "Notifier", "Rejected", "notifier_of"]
