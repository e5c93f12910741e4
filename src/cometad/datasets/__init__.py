"""Benchmark datasets and their readers, synthetic plants, and controlled drift and faults."""
