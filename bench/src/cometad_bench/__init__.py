"""Benchmarks: `experiments` are run trial by trial (`runner`, `trial`, `isolation`), and `report` turns their results
into tables and figures.

In: labeled datasets. Out: results as JSON lines (`results`), then as one frame with a trial per row (`frame`), of which
each section of a report is a function. Equal to the bit: the figures of a trial in any process, and a report written
again from the same results.
"""
