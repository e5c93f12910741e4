"""The tables of `benchmarks/alerts.py`, one per file."""
