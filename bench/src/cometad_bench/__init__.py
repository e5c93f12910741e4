"""Benchmarks: experiments, their trials and results, and the tables and figures made from them."""
