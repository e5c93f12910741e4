"""What the service measures of itself, for Prometheus; docs/operations.md says what each figure means."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
        self._registry.register(_DeliveryGauges(counts))

    def watch(self, read: Callable[[], dict[str, float]], streams: Callable[[], Iterable[LiveStream]]) -> None:
        """Also show gauges of the service and of its streams, as they are when the page is asked for."""
        self._registry.register(_Gauges(read, streams))

    def page(self) -> bytes:
        """All figures, in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Gauges:
    """Gauges that are read when somebody asks."""

    def __init__(self, read: Callable[[], dict[str, float]], streams: Callable[[], Iterable[LiveStream]]) -> None:
        self._read, self._streams = read, streams

    def collect(self) -> Iterator[Any]:
        """The gauges."""
        for name, value in self._read().items():
            yield GaugeMetricFamily(f"cometad_{name}", GAUGES[name], value)
        score = GaugeMetricFamily("anomaly_score", "The last alert score of a stream.", labels=["stream"])
        threshold = GaugeMetricFamily("anomaly_threshold", "The threshold it was compared with.", labels=["stream"])
        opened = GaugeMetricFamily("anomaly_event_open", "1 while an event is open.", labels=["stream"])
        alert = GaugeMetricFamily("anomaly_alert_open", "1 while an alert is open.", labels=["stream"])
        used = GaugeMetricFamily("anomaly_budget_used", "Share of the budget used; 1 is all.", labels=["stream"])
        for stream in self._streams():
            numbers = stream.shown
            if numbers.score is not None and numbers.threshold is not None:
                score.add_metric([stream.name], numbers.score)
                threshold.add_metric([stream.name], numbers.threshold)
            event, used_share = numbers.open_event, stream.budget_used
            opened.add_metric([stream.name], float(event is not None))
            alert.add_metric([stream.name], float(event is not None and event.level == "alert"))
            if used_share is not None:
                used.add_metric([stream.name], used_share)
        yield from (score, threshold, opened, alert, used)


class _DeliveryGauges:
    """Messages that are not delivered, counted when somebody asks."""

    def __init__(self, counts: Callable[[], dict[tuple[str, str], int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Any]:
        """The gauges."""
        waiting = GaugeMetricFamily(
            "cometad_deliveries_waiting", "Messages that wait for a receiver.", labels=["receiver"]
        )
        lost = GaugeMetricFamily("cometad_deliveries_undelivered", "Messages given up.", labels=["receiver"])
        gauges = {"waiting": waiting, "undelivered": lost}
        for (receiver, state), count in self._counts().items():
            if state in gauges:
                gauges[state].add_metric([receiver], count)
        yield from gauges.values()
