"""Receivers over HTTP: webhooks, Alertmanager's API v2, and Prometheus by remote write, version 1.

Webhooks are signed according to https://www.standardwebhooks.com. Remote write gets scores, thresholds and open events,
as protobuf in snappy's block format.
"""

import base64
import binascii
import hashlib
import hmac
import json
import struct
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple

import httpx

from cometad.arrays import Floats
from cometad.connect.address import Option
from cometad.connect.contract import Lost
from cometad.connect.out.message import LATEST, EventMessage
from cometad.connect.out.notifier import JSON, Destination, Notifier, Rejected
from cometad.errors import ParameterError, needs_extra

AGAIN = (408, 425, 429)  # and 500 and above: worth a retry
SHOWN = 200  # characters of a response shown in a message
ADVICE = "Check its url and its template."
PREFIX = "whsec_"  # of a secret in base64
PATH = "/api/v2/alerts"
EVERY = 60.0  # seconds between resends of an open event
LASTS = 5  # resend intervals until an alert expires, as with Prometheus: four may be missed
PLAUSIBLE = 946_684_800.0  # 2000-01-01: earlier times are relative, not dates
RECENT = "Prometheus accepts only scores of about the last hour. If these are recent, check its url."
NAMES = ("anomaly_score", "anomaly_threshold", "anomaly_event_open")  # the same as at /metrics
REMOTE_WRITE = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
    "user-agent": "cometad",
}


class HttpNotifier(Notifier):
    """A receiver that requests are posted to; it keeps the connection open. Every failure is one sentence.

    Redirects are refused: a signed message goes only to the configured address.
    """

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        if not destination.address.host:
            raise ParameterError(f"{destination.shown!r} names no host. Write something like https://host/path.")
        self._headers = destination.filled_headers()
        user = destination.address.username
        self._auth = None if user is None else (user, destination.address.password or "")
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str], advice: str = ADVICE) -> None:
        """Post a body; raises `Lost` or `Rejected` unless the status is 2xx. A refusal ends with `advice`."""
        if self._client is None:  # created here because it belongs to the running event loop
            timeout = self.destination.timeout
            self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=False, auth=self._auth)
        try:
            answer = await self._client.post(url, content=body, headers={**headers, **self._headers})
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise Rejected(f"{self.who} has an invalid address: {error}. Correct its url.") from error
        except httpx.HTTPError as error:
            problem = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise self.unreachable(problem) from error
        if not answer.is_success:
            raise _failure(self.who, answer, advice)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _failure(who: str, answer: httpx.Response, advice: str) -> Lost | Rejected:
    status = answer.status_code
    said = " ".join(answer.text.split())[:SHOWN].rstrip(".")
    said = f": {said}" if said else ""
    if status in AGAIN or status >= 500:
        return Lost(f"{who} answered with status {status}{said}.")
    if status in (401, 403):
        return Rejected(f"{who} refused with status {status}{said}. Check its credentials: user, headers or secret.")
    if answer.is_redirect:
        return Rejected(f"{who} answered with a redirect (status {status}). Write the new address into its url.")
    return Rejected(f"{who} refused with status {status}{said}. {advice}", status)


class Webhook(HttpNotifier):
    """Posts each message as a JSON object, or as rendered by the template.

    The header `webhook-id` has the id of the message, which is the same in a redelivery.
    """

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        secret = destination.secret()
        self._key = None if secret is None else key_of(secret)

    async def send(self, messages: Sequence[EventMessage]) -> None:
        for message in messages:
            body, now = self.destination.body_of(message), int(time.time())
            headers = {
                "content-type": self.destination.content_type,
                "user-agent": "cometad",
                "webhook-id": message.id,
                "webhook-timestamp": str(now),
            }
            if self._key is not None:
                headers["webhook-signature"] = signature(self._key, message.id, now, body)
            await self.post(self.destination.url, body, headers)


def key_of(secret: str) -> bytes:
    """The key in a secret: base64 after `whsec_`, or the text itself."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ParameterError("A secret that begins with whsec_ must continue in base64. Copy it again.") from error


def signature(key: bytes, message: str, at: int, body: bytes) -> str:
    """The value of the header `webhook-signature`: HMAC-SHA256 over the id, the time and the body."""
    signed = f"{message}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _resend_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise ParameterError(f"The option resend must be a number of seconds up to 3600. Got {text!r} instead.")
    return found


class Alertmanager(HttpNotifier):
    """Posts events as alerts, which are resent until they close. `?resend=60` in the URL sets how often.

    Labels never change while an event is open; what changes, such as the severity, is an annotation.
    """

    OPTIONS: ClassVar = {"resend": Option(str(EVERY), _resend_seconds)}
    most = 200

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._url = destination.url.partition("?")[0].rstrip("/").removesuffix(PATH) + PATH
        self.resend = self.options["resend"]

    async def send(self, messages: Sequence[EventMessage]) -> None:
        alerts = [self._alert(message, time.time()) for message in messages]
        await self.post(self._url, json.dumps(alerts).encode(), {"content-type": JSON})

    def _alert(self, message: EventMessage, now: float) -> dict[str, Any]:
        closed = message.closed_at
        template = self.destination.template
        began = message.start_time
        start = began if began is not None and PLAUSIBLE <= began <= message.opened_at else message.opened_at
        labels = {"alertname": "CometadAnomaly", "stream": message.stream, "detector": message.detector}
        return {
            "labels": {**labels, "event": message.event, **self.destination.labels},
            "annotations": {
                "summary": f"{message.stream}: {_variables_in(message)}",
                "description": message.text if template is None else template.text(message),
                "severity": f"{message.severity:.2f}",
                "meaning": message.meaning,
                "score": f"{message.score:.4g}",
                "threshold": f"{message.threshold:.4g}",
            },
            "startsAt": _date(start),
            "endsAt": _date(now + LASTS * (self.resend or EVERY) if closed is None else max(closed, start)),
            "generatorURL": message.link,
        }


def _variables_in(message: EventMessage) -> str:
    return ", ".join(one.name for one in message.variables[:3]) or "anomaly"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(min(seconds, LATEST - 1), UTC).isoformat(timespec="milliseconds")


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
        body = bytes(self._snappy.compress_raw(write_request(samples, self.destination.labels)))
        await self.post(self.destination.url, body, REMOTE_WRITE, RECENT)


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
