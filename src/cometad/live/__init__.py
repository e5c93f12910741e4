"""Live scoring: streams, and sessions that put readings in order or on a grid first."""

from cometad.live.clock import Clock
from cometad.live.grid import Grid
from cometad.live.session import Session
from cometad.live.stream import Scored, Stream

__all__ = ["Clock", "Grid", "Scored", "Session", "Stream"]
