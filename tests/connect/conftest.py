"""Fixtures of the tests of sources."""

from broker_case import pump, service  # noqa: F401
from plant_case import gappy_file, pump_file  # noqa: F401
from servers.mosquitto import mosquitto  # noqa: F401
