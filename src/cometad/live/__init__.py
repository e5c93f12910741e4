"""Live scoring: streams, and sessions that first check the order of readings or resample them.

In: one reading or many, in any chunks. Out: scores, flags and changes of events as they become final.
Equal to the bit: a stream and a batch; a stream resumed from its snapshot and one that was never interrupted.
"""

from cometad.live.clock import Clock
from cometad.live.grid import Grid
from cometad.live.session import Session
from cometad.live.stream import Scored, Stream

__all__ = ["Clock", "Grid", "Scored", "Session", "Stream"]
