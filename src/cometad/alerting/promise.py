"""Compare the share of flagged readings with the share that a threshold rule promises."""

from collections import Counter
from collections.abc import Iterable

FACTOR = 3  # a share this many times above or below the promised one is worth a warning
LEAST = 30  # flagged readings, or promised ones: fewer may be chance
SOME = 500  # readings: among fewer, a single fault is a large share
NAMED = 3  # variables, at most


class Promise:
    """Counts flagged readings, in constant memory, and says when they are far more or fewer than promised."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._judged, self._flagged = rate, 0, 0
        self._blamed: Counter[str] = Counter()

    def push(self, judged: int, blamed: Iterable[str]) -> None:
        """Count more readings that were judged, and the variable behind each flagged one: "" if it is unknown."""
        variables = list(blamed)
        self._judged += judged
        self._flagged += len(variables)
        self._blamed.update(name for name in variables if name)

    def warning(self) -> str | None:
        """What to know if the promise is broken, else None; there is none without a rate."""
        if self._rate is None:
            return None
        promised = self._rate * self._judged
        if self._judged >= SOME and self._flagged >= LEAST and self._flagged > FACTOR * promised:
            return (
                f"{self._share()} of {self._judged:,} readings are flagged, {self._flagged / promised:.2g} times the "
                f"promised {_percent(self._rate)}{self._because()}. Unless these are faults, the readings are no "
                "longer like those of training: fit on newer ones."
            )
        if promised >= LEAST and FACTOR * self._flagged < promised:
            return (
                f"Only {self._share()} of {self._judged:,} readings are flagged, less than a third of the promised "
                f"{_percent(self._rate)}. The readings vary less than those of training, so faults may go unnoticed: "
                "fit on newer ones."
            )
        return None

    def _share(self) -> str:
        return _percent(self._flagged / self._judged)

    def _because(self) -> str:
        names = [name for name, _ in self._blamed.most_common(NAMED)]
        if not names:
            return ""
        before = f"{', '.join(names[:-1])} and " if names[1:] else ""
        return f", mostly because of {before}{names[-1]}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
