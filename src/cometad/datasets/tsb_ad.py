"""The series of TSB-AD-M: in the distribution cometad-bench; this is the name of earlier versions."""

import sys

from cometad.errors import imported_for

sys.modules[__name__] = imported_for(__name__, "cometad_bench.datasets.tsb_ad")
