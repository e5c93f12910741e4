"""The tables of `bench/scripts/thresholds.py`, one per file."""
