"""What the service measures of itself, for Prometheus; docs/operations.md says what each figure means."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from cometad.connect.contract import Receipt
from cometad.serve.live_stream import LiveStream

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
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody needs the time at which a counter was made


class Figures:
    """Counters and times of the service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._readings = Counter(
            "cometad_readings", "Readings by what became of them.", ["result"], registry=self._registry
        )
        self._scores = Counter("cometad_scores", "Scores given.", registry=self._registry)
        self._events = Counter("cometad_events", "Changes of events.", ["change"], registry=self._registry)
        self._waited = Histogram(
            "cometad_accepted_to_scored_seconds",
            "Time from a reading being on disk until it was scored.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._deliveries = Counter(
            "cometad_deliveries", "Messages to receivers by result.", ["receiver", "result"], registry=self._registry
        )
        self._copied = Counter(
            "cometad_scores_copied", "Scores for receivers by result.", ["receiver", "result"], registry=self._registry
        )
        self._requests = Counter("cometad_requests", "Requests by status.", ["status"], registry=self._registry)

    def received(self, receipt: Receipt) -> None:
        """Count readings that arrived."""
        counts = {"accepted": receipt.accepted, "repeated": receipt.repeated, "dropped": receipt.dropped}
        for result, count in (counts | {"refused": len(receipt.refused)}).items():
            if count:
                self._readings.labels(result).inc(count)

    def scored(self, count: int, seconds: float) -> None:
        """Count scores, and how long the oldest reading had waited."""
        self._scores.inc(count)
        self._waited.observe(seconds)

    def event(self, change: str) -> None:
        """Count a change of an event."""
        self._events.labels(change).inc()

    def delivery(self, receiver: str, result: str, count: int) -> None:
        """Count messages to a receiver."""
        self._deliveries.labels(receiver, result).inc(count)

    def copied(self, receiver: str, result: str, count: int) -> None:
        """Count scores that were copied to a receiver, or not."""
        self._copied.labels(receiver, result).inc(count)

    def request(self, status: int) -> None:
        """Count a request."""
        self._requests.labels(str(status)).inc()

    def watch_deliveries(self, counts: Callable[[], dict[tuple[str, str], int]]) -> None:
        """Also show how many messages wait for each receiver, or were given up."""
        self._registry.register(_Collector(lambda: _delivery_gauges(counts())))

    def watch(self, read: Callable[[], dict[str, float]], streams: Callable[[], Iterable[LiveStream]]) -> None:
        """Also show gauges of the service and of its streams, as they are when the page is asked for."""
        self._registry.register(_Collector(lambda: _gauges(read(), list(streams()))))

    def page(self) -> bytes:
        """All figures, in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Collector(NamedTuple):
    """Figures that are read when somebody asks."""

    collect: Callable[[], Iterator[GaugeMetricFamily]]


def _gauges(service: dict[str, float], streams: Collection[LiveStream]) -> Iterator[GaugeMetricFamily]:
    for name, value in service.items():
        yield GaugeMetricFamily(f"cometad_{name}", GAUGES[name], value)
    for name, (meaning, value_of) in STREAM_GAUGES.items():
        found = ((stream.name, value_of(stream)) for stream in streams)
        yield _labeled(name, meaning, "stream", [(label, value) for label, value in found if value is not None])


def _delivery_gauges(counts: dict[tuple[str, str], int]) -> Iterator[GaugeMetricFamily]:
    for state, meaning in DELIVERY_GAUGES.items():
        found = [(receiver, count) for (receiver, own), count in counts.items() if own == state]
        yield _labeled(f"cometad_deliveries_{state}", meaning, "receiver", found)


def _labeled(name: str, meaning: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for value in values:
        family.add_metric([value[0]], value[1])
    return family
