"""Prometheus remote write, version 1: scores, thresholds and open events, as protobuf in snappy's block format."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cometad.arrays import Floats
from cometad.connect.out.notifier import Destination
from cometad.connect.out.posting import HttpNotifier
from cometad.errors import needs_extra

ADVICE = "Prometheus accepts only scores of about the last hour. If these are recent, check its url."
NAMES = ("anomaly_score", "anomaly_threshold", "anomaly_event_open")  # the same as at /metrics
HEADERS = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
    "user-agent": "cometad",
}


class ScoreSamples(NamedTuple):
    """Scores of a stream, oldest first."""

    stream: str
    ats: Floats  # (time,)  seconds since 1970
    values: Floats  # (time, 3)  alert score, threshold, 1 where an event is open


class RemoteWriter(HttpNotifier):
    """Writes scores to a remote-write server: `remote-write+http://prometheus:9090/api/v1/write`."""

    def __init__(self, destination: Destination) -> None:
        self._snappy: Any = needs_extra("cramjam", "connect").snappy
        super().__init__(destination)

    async def write(self, samples: Sequence[ScoreSamples]) -> None:
        """Write samples; raises `Lost` or `Rejected`."""
        body = bytes(self._snappy.compress_raw(write_request(samples, self.destination.labels)))
        await self.post(self.destination.url, body, HEADERS, ADVICE)


def write_request(samples: Iterable[ScoreSamples], labels: dict[str, str]) -> bytes:
    """A `WriteRequest`: field 1 holds time series, each with labels (1) and samples (2)."""
    return b"".join(_series(one, column, labels) for one in samples for column in range(len(NAMES)))


def _series(samples: ScoreSamples, column: int, labels: dict[str, str]) -> bytes:
    named = {**labels, "stream": samples.stream, "__name__": NAMES[column]}
    parts = [_field(1, _text(1, name) + _text(2, named[name])) for name in sorted(named)]  # must be sorted
    for at, value in zip(samples.ats.tolist(), samples.values[:, column].tolist(), strict=True):
        milliseconds = round(1000 * at) % 2**64  # two's complement, as in protobuf
        parts.append(_field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(milliseconds)))
    return _field(1, b"".join(parts))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
