"""A labeled series, and the synthetic plant of the demo. Readers of archives are in the distribution cometad-bench.

In: a seed. Out: readings of normal operation, readings with planted faults, and where they are.
Equal to the bit: the same seed gives the same plant.
"""

from cometad.lazy import keep_names

_RESEARCH = ("characters", "drift", "readers", "stored", "tsb_ad")
keep_names(__name__, {name: f"cometad_bench.datasets.{name}" for name in _RESEARCH})
