"""The tables of `benchmarks/thresholds.py`, one per file."""
