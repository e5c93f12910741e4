"""Benchmark datasets and their readers, the synthetic plant, and controlled drift and faults."""
