"""Live scoring: streams, and sessions that first check the order of readings or resample them.

In: one reading or many, in any chunks. Out: scores, flags and changes of events as they become final.
Equal to the bit: a stream and a batch; a stream resumed from its snapshot and one that was never interrupted.
"""

from cometad.lazy import keep_names
from cometad.live.session import Clock, Grid, Session
from cometad.live.stream import Scored, Stream

keep_names(__name__, dict.fromkeys(("clock", "grid"), "cometad.live.session"))

__all__ = ["Clock", "Grid", "Scored", "Session", "Stream"]
