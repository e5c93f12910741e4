"""The tables of `bench/scripts/alerts.py`, one per file."""
