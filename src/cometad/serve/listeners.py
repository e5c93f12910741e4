"""Whoever listens to scores as they come: each has its own box, emptied at its own pace, that never grows."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from cometad.arrays import Floats
from cometad.serve.live_stream import LiveStream

MOST_POINTS = 120  # of a stream in one message; of more, the last are kept
MOST_NEWS = 1000  # events and states in one message
MOST_LISTENERS = 200


class Box:
    """What a listener has not fetched yet: points of scores by stream, and news in order."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self._names = names  # None for all streams
        self._lock = threading.Lock()
        self._points: dict[str, tuple[LiveStream, list[tuple[Floats, Floats]]]] = {}
        self._news: list[tuple[str, Any]] = []

    def wants(self, stream: str) -> bool:
        """Whether the listener asked for a stream."""
        return self._names is None or stream in self._names

    def add_points(self, stream: LiveStream, ats: Floats, cells: Floats) -> None:
        """Add scores of a stream."""
        with self._lock:
            _, parts = self._points.setdefault(stream.name, (stream, []))
            parts.append((ats[-MOST_POINTS:].copy(), cells[-MOST_POINTS:].copy()))  # a view would keep all of them
            if len(parts) > 2 * MOST_POINTS:
                del parts[:-MOST_POINTS]

    def add_news(self, kind: str, what: Any) -> None:
        """Add an event or the state of a stream."""
        with self._lock:
            self._news.append((kind, what))
            if len(self._news) > MOST_NEWS:
                del self._news[0]

    def fetch(self) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        """The new points by stream, with its last numbers, and the news; empties the box."""
        with self._lock:
            points, self._points = self._points, {}
            news, self._news = self._news, []
        return {name: _message(stream, parts) for name, (stream, parts) in points.items()}, news


def _message(stream: LiveStream, parts: Sequence[tuple[Floats, Floats]]) -> dict[str, Any]:
    ats = np.concatenate([part[0] for part in parts])[-MOST_POINTS:]
    cells = np.concatenate([part[1] for part in parts])[-MOST_POINTS:]
    rows = zip(ats.tolist(), cells.tolist(), strict=True)
    points = [[at, score, threshold, int(flag)] for at, (score, threshold, flag) in rows]
    state = "event" if stream.shown.open_event is not None else "normal"
    return {"state": state, "time": points[-1][0], **stream.numbers(), "points": points}


class Listeners:
    """All boxes."""

    def __init__(self) -> None:
        self._boxes: set[Box] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._boxes)

    def join(self, names: frozenset[str] | None) -> Box | None:
        """A new box; None if there are too many."""
        with self._lock:
            if len(self._boxes) >= MOST_LISTENERS:
                return None
            box = Box(names)
            self._boxes = {*self._boxes, box}  # a new set: others may be going through the old one
        return box

    def leave(self, box: Box) -> None:
        """Forget a box."""
        with self._lock:
            self._boxes = self._boxes - {box}

    def points(self, stream: LiveStream, ats: Floats, cells: Floats) -> None:
        """Send scores of a stream to its listeners."""
        for box in self._boxes:
            if box.wants(stream.name):
                box.add_points(stream, ats, cells)

    def news(self, kind: str, stream: str, what: Any) -> None:
        """Send an event or the state of a stream to its listeners."""
        for box in self._boxes:
            if box.wants(stream):
                box.add_news(kind, what)
