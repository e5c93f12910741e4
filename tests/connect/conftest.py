"""Fixtures of the tests of brokers."""

from broker_case import pump, service  # noqa: F401
