"""Progress of a fleet: entities done, rate and time left."""

import time

from cometad.progress import ProgressCallback


class FleetPace:
    """Reports progress with the rate and the time left."""

    def __init__(self, total: int, report: ProgressCallback) -> None:
        self._total, self._report = total, report
        self._began, self._done = time.monotonic(), 0
        report(0, total, "")

    def lap(self, more: str = "") -> None:
        """Count one more; `more` is appended to the note."""
        self._done += 1
        seconds = max(time.monotonic() - self._began, 1e-9)
        left = (self._total - self._done) * seconds / self._done
        note = f"{self._done / seconds:.3g} a second, about {in_words(left)} left"
        self._report(self._done, self._total, f"{note}, {more}" if more else note)


def in_words(seconds: float) -> str:
    """A duration in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
