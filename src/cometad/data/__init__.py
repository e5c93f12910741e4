"""Data preparation: tables, gaps, resampling, quality findings, trends, scaling, windows."""

from cometad.data.gaps import GAPS, ForwardFill, Interpolate, RefuseGaps, ScoreMeasured
from cometad.data.resample import resample

__all__ = ["GAPS", "ForwardFill", "Interpolate", "RefuseGaps", "ScoreMeasured", "resample"]
