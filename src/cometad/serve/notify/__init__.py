"""Outgoing messages: events to receivers through an outbox, and copies of scores to Prometheus."""
