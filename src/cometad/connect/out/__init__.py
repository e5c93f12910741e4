"""Sends events and scores: to webhooks, Alertmanager, broker topics, and Prometheus by remote write."""

from cometad.connect.out.notice import Notice, NoticedVariable
from cometad.connect.out.notifier import NOTIFIERS, Notifier, Rejected, notifier_of

__all__ = ["NOTIFIERS", "Notice", "NoticedVariable", "Notifier", "Rejected", "notifier_of"]
