from cometad.metrics.adjusted import *
from cometad.metrics.affiliation import *
from cometad.metrics.pointwise import *
