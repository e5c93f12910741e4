"""What others see of the service while it runs: figures for Prometheus, and scores for whoever listens.

docs/operations.md says what each figure means. Each listener has its own box, emptied at its own pace, that never
grows.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from cometad.arrays import Floats
from cometad.connect.contract import Receipt
from cometad.serve.live_stream import LiveStream
from cometad.serve.scorer import FreshScores

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TIMES = partial(Histogram, buckets=SECONDS)
COUNTED: dict[str, tuple[Callable[..., Any], str, tuple[str, ...]]] = {  # kind, meaning and labels
    "readings": (Counter, "Readings by what became of them.", ("result",)),
    "scores": (Counter, "Scores given.", ()),
    "events": (Counter, "Changes of events.", ("change",)),
    "accepted_to_scored_seconds": (TIMES, "Time from a reading being on disk until it was scored.", ()),
    "deliveries": (Counter, "Messages to receivers by result.", ("receiver", "result")),
    "scores_copied": (Counter, "Scores for receivers by result.", ("receiver", "result")),
    "requests": (Counter, "Requests by status.", ("status",)),
}
GAUGES = {
    "streams": "Streams.",
    "streams_paused": "Streams that are not scored.",
    "readings_unstored": "Readings that wait to be stored.",
    "readings_unscored": "Readings on disk that wait to be scored.",
    "transaction_seconds": "Duration of the last transaction.",
    "listeners": "Clients of /v1/live.",
    "connections": "Sources of readings in cometad.toml.",
    "connections_lost": "Sources that do not answer.",
    "stored_bytes": "Size of the data.",
}
STREAM_GAUGES: dict[str, tuple[str, Callable[[LiveStream], float | None]]] = {
    "anomaly_score": ("The last alert score of a stream.", lambda stream: stream.shown.score),
    "anomaly_threshold": ("The threshold it was compared with.", lambda stream: stream.shown.threshold),
    "anomaly_event_open": ("1 while an event is open.", lambda stream: float(stream.shown.open_event is not None)),
    "anomaly_alert_open": ("1 while an alert is open.", lambda stream: float(stream.has_alert)),
    "anomaly_budget_used": ("Share of the budget used; 1 is all.", lambda stream: stream.budget_used),
}
DELIVERY_GAUGES = {"waiting": "Messages that wait for a receiver.", "undelivered": "Messages given up."}
MOST_POINTS = 120  # of a stream in one message; of more, the last are kept
MOST_NEWS = 1000  # events and states in one message
MOST_LISTENERS = 200

disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody needs the time at which a counter was made


class Figures:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counted = {
            name: kind(f"cometad_{name}", meaning, labels, registry=self._registry)
            for name, (kind, meaning, labels) in COUNTED.items()
        }

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Count something of `COUNTED`."""
        figure = self._counted[name]
        (figure.labels(*labels) if labels else figure).inc(by)

    def received(self, receipt: Receipt) -> None:
        counts = {"accepted": receipt.accepted, "repeated": receipt.repeated, "dropped": receipt.dropped}
        for result, count in (counts | {"refused": len(receipt.refused)}).items():
            if count:
                self.count("readings", result, by=count)

    def scored(self, scores: FreshScores) -> None:
        """Count scores, changes of events, and how long the oldest reading had waited."""
        self.count("scores", by=len(scores.ats))
        self._counted["accepted_to_scored_seconds"].observe(scores.waited)
        for change, _ in scores.events:
            self.count("events", change)

    def watch(self, gauges: Callable[[], Iterator[GaugeMetricFamily]]) -> None:
        """Also show gauges, as they are when the page is asked for."""
        self._registry.register(_Collector(gauges))

    def page(self) -> bytes:
        return generate_latest(self._registry)


class _Collector(NamedTuple):
    collect: Callable[[], Iterator[GaugeMetricFamily]]


def service_gauges(service: dict[str, float], streams: Collection[LiveStream]) -> Iterator[GaugeMetricFamily]:
    for name, value in service.items():
        yield GaugeMetricFamily(f"cometad_{name}", GAUGES[name], value)
    for name, (meaning, value_of) in STREAM_GAUGES.items():
        found = ((stream.name, value_of(stream)) for stream in streams)
        yield _labeled(name, meaning, "stream", [(label, value) for label, value in found if value is not None])


def delivery_gauges(counts: dict[tuple[str, str], int]) -> Iterator[GaugeMetricFamily]:
    """How many messages wait for each receiver, or were given up."""
    for state, meaning in DELIVERY_GAUGES.items():
        found = [(receiver, count) for (receiver, own), count in counts.items() if own == state]
        yield _labeled(f"cometad_deliveries_{state}", meaning, "receiver", found)


def _labeled(name: str, meaning: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for of, value in values:
        family.add_metric([of], value)
    return family


# -- listeners ---------------------------------------------------------------------------------------------------------


class Box:
    """What a listener has not fetched yet: points of scores by stream, and news in order."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self._names = names  # None for all streams
        self._lock = threading.Lock()
        self._points: dict[str, tuple[LiveStream, deque[tuple[float, list[float]]]]] = {}
        self._news = deque[tuple[str, Any]](maxlen=MOST_NEWS)

    def add_points(self, stream: LiveStream, ats: Floats, cells: Floats) -> None:
        if self._names is None or stream.name in self._names:
            points = zip(ats[-MOST_POINTS:].tolist(), cells[-MOST_POINTS:].tolist(), strict=True)
            with self._lock:
                self._points.setdefault(stream.name, (stream, deque(maxlen=MOST_POINTS)))[1].extend(points)

    def add_news(self, kind: str, stream: str, what: Any) -> None:
        if self._names is None or stream in self._names:
            with self._lock:
                self._news.append((kind, what))

    def fetch(self) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        """The new points by stream, with its last numbers, and the news; empties the box."""
        with self._lock:
            points, self._points = self._points, {}
            news = list(self._news)
            self._news.clear()
        return {name: _message(stream, found) for name, (stream, found) in points.items()}, news


def _message(stream: LiveStream, found: Iterable[tuple[float, list[float]]]) -> dict[str, Any]:
    points = [[at, score, threshold, int(flag)] for at, (score, threshold, flag) in found]
    state = "event" if stream.shown.open_event is not None else "normal"
    return {"state": state, "time": points[-1][0], **stream.numbers(), "points": points}


class Listeners:
    """The boxes of all who listen."""

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
        with self._lock:
            self._boxes = self._boxes - {box}

    def scored(self, scores: FreshScores) -> None:
        for box in self._boxes:
            box.add_points(scores.stream, scores.ats, scores.cells)
        for change, event in scores.events:
            self.news("event", scores.stream.name, {**event.model_dump(), "change": change})

    def news(self, kind: str, stream: str, what: Any) -> None:
        """Tell about an event or the state of a stream."""
        for box in self._boxes:
            box.add_news(kind, stream, what)
