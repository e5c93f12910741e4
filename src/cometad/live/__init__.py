"""Live scoring: streams, and sessions that first check the order of readings or resample them."""

from cometad.live.clock import Clock
from cometad.live.grid import Grid
from cometad.live.session import Session
from cometad.live.stream import Scored, Stream

__all__ = ["Clock", "Grid", "Scored", "Session", "Stream"]
