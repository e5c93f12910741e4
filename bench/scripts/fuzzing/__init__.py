"""Inputs that nobody meant to write, one module per kind: each has `run(cases, seed)`, which counts outcomes."""
