"""The drift experiment: trials on controlled series, their tables and figures.

In: a normal series, and a detector fitted on its first half. Out: figures before, during and after a drift, adapting
and as fitted. Equal to the bit: without drift and adaptation, equal readings get equal figures.
"""
