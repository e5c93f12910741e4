"""The columns of a table matched with the variables of a detector, by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cometad.errors import InputError

if TYPE_CHECKING:
    import polars as pl

MOST_NAMES = 5  # listed in a sentence


class Matching:
    """Selects the columns that a detector was fitted on, in its order; `gaps` allows some to be missing."""

    def __init__(self, names: Sequence[str], gaps: bool) -> None:
        self._names, self._gaps = names, gaps

    def __call__(self, frame: "pl.DataFrame") -> "pl.DataFrame":
        """The table with its times and the detector's columns; refuses one that lacks too many."""
        columns = set(frame.columns)
        found = [name for name in self._names if name in columns]
        lacking = [name for name in self._names if name not in columns]
        if lacking and not (self._gaps and found):
            extra = self._extra(frame)
            hint = f" (the file also has {listed(extra)})" if extra else ""
            problem = f"The detector was fitted on {listed(lacking)}, which the file lacks{hint}."
            if not found:  # no rule can replace all of them
                raise InputError(f"{problem} Pass the same variables as at fit.")
            raise InputError(problem, advice="lacking")
        times = [name for name in _times(frame) if name not in found]
        return frame.select(*times, *found)

    def note(self, frame: "pl.DataFrame") -> str | None:
        """A sentence about the columns that are ignored, if any."""
        extra = self._extra(frame)
        return ignored(extra) if extra else None

    def _extra(self, frame: "pl.DataFrame") -> list[str]:
        known = {*self._names, *_times(frame)}
        return [name for name in frame.columns if name not in known]


def ignored(extra: Sequence[str]) -> str:
    """The sentence about columns that are ignored."""
    columns = "column" if len(extra) == 1 else "columns"
    return f"Ignored {len(extra)} {columns} the detector was not fitted on: {listed(extra)}."


def listed(names: Sequence[str]) -> str:
    """The first names, in quotes, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(repr(name) for name in names[:MOST_NAMES]) + more


def _times(frame: "pl.DataFrame") -> list[str]:
    return [name for name, dtype in frame.schema.items() if dtype.is_temporal()]
