"""Readers of public archives, drift and plants of five characters.

In: official files, or a seed. Out: a `Dataset`, a `Plant` or a `Controlled` series. Equal to the bit: series
of equal seeds; the order in which random numbers are drawn decides it.
"""
