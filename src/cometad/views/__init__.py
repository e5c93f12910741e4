"""Ways to expect a reading, one per file; a `Comet` combines several of them.

In: scaled rows (time, variable). Out: one error per view and variable, and what was expected.
Equal to the bit: a batch and a stream in chunks of any size, on any number of threads; the order of additions in the
kernels (tiles, sums, nearest, kmeans) decides it. To add a view, write its file and a row in `VIEWS`.
"""

from typing import TYPE_CHECKING, Any

from cometad.errors import imported_for
from cometad.lazy import LazyTable
from cometad.registry import register_later
from cometad.views.activity import Activity
from cometad.views.balance import Balance
from cometad.views.forecast import Forecast
from cometad.views.joint import Joint
from cometad.views.patterns import Patterns
from cometad.views.view import View

if TYPE_CHECKING:
    from cometad.views.trained import NetworkView

VIEWS: LazyTable[type[View]] = LazyTable(
    "view",
    {
        "patterns": "cometad.views.patterns:Patterns",
        "joint": "cometad.views.joint:Joint",
        "forecast": "cometad.views.forecast:Forecast",
        "balance": "cometad.views.balance:Balance",
        "activity": "cometad.views.activity:Activity",
        "network": "cometad.views.trained:NetworkView",
    },
)

__all__ = ["VIEWS", "Activity", "Balance", "Forecast", "Joint", "NetworkView", "Patterns"]

register_later("NetworkView", "cometad.views.trained")


def __getattr__(name: str) -> Any:
    if name == "NetworkView":  # imported on first use, because it needs torch
        return imported_for(name, "cometad.views.trained").NetworkView
    raise AttributeError(f"module 'cometad.views' has no attribute {name!r}")
