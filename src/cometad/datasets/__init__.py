"""A labeled series, and the synthetic plant of the demo. Readers of archives are in the distribution cometad-bench.

In: a seed. Out: readings of normal operation, readings with planted faults, and where they are.
Equal to the bit: the same seed gives the same plant.
"""
