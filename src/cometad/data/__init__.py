"""Files, frames and streams become rows of numbers.

In: CSV, JSON lines, Parquet, arrays, frames. Out: a `Series`, and rows that are complete, detrended and scaled.
Equal to the bit: what a file gives and what the same readings give one by one (tests/live/test_stream.py).
"""

from cometad.data.gaps import GAPS, ForwardFill, Interpolate, RefuseGaps, ScoreMeasured
from cometad.data.resample import resample
from cometad.lazy import keep_names

__all__ = ["GAPS", "ForwardFill", "Interpolate", "RefuseGaps", "ScoreMeasured", "resample"]

keep_names(__name__, {"trends": "cometad.data.prepare"})
