"""Ways to expect a reading, one per file; a `Comet` combines several of them."""

from cometad.views.activity import Activity
from cometad.views.balance import Balance
from cometad.views.forecast import Forecast
from cometad.views.joint import Joint
from cometad.views.patterns import Patterns

VIEWS = {"patterns": Patterns, "joint": Joint, "forecast": Forecast, "balance": Balance, "activity": Activity}

__all__ = ["VIEWS", "Activity", "Balance", "Forecast", "Joint", "Patterns"]
