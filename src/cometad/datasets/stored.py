"""Datasets that are read when used: in the distribution cometad-bench; this is the name of earlier versions."""

import sys

from cometad.errors import imported_for

sys.modules[__name__] = imported_for(__name__, "cometad_bench.datasets.stored")
