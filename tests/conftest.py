"""Settings of the whole suite.

Hypothesis: no deadlines (compiling counts as time), and few examples of many shapes. Torch: one thread, since the
detectors here are tiny and a second one would only wait for the first.
"""

import torch
from hypothesis import settings

settings.register_profile("cometad", deadline=None, max_examples=20)
settings.load_profile("cometad")

torch.set_num_threads(1)
