"""Alertmanager, API v2: an event is an alert that is resent until it closes."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cometad.connect.out.destination import Destination
from cometad.connect.out.message import LATEST, EventMessage
from cometad.connect.out.posting import Poster
from cometad.errors import ParameterError

PATH = "/api/v2/alerts"
EVERY = 60.0  # seconds between resends of an open event
LASTS = 5  # resend intervals until an alert expires, as with Prometheus: four may be missed
PLAUSIBLE = 946_684_800.0  # 2000-01-01: earlier times are relative, not dates


class Alertmanager:
    """Posts events as alerts. `?resend=60` in the URL sets how often open ones are resent.

    Labels never change while an event is open; what changes, such as the severity, is an annotation.
    """

    most = 200

    def __init__(self, destination: Destination) -> None:
        destination.address.check_options(("resend",))
        self._destination, self._poster = destination, Poster(destination)
        self._url = destination.url.partition("?")[0].rstrip("/").removesuffix(PATH) + PATH
        self.resend: float | None = _resend_seconds(destination.address.option("resend", str(EVERY)))

    async def send(self, messages: Sequence[EventMessage]) -> None:
        """Post messages as alerts."""
        alerts = [self._alert(message, time.time()) for message in messages]
        await self._poster.post(self._url, json.dumps(alerts).encode(), {"content-type": "application/json"})

    async def close(self) -> None:
        """Close the connection."""
        await self._poster.close()

    def _alert(self, message: EventMessage, now: float) -> dict[str, Any]:
        closed = message.closed_at
        template = self._destination.template
        began = message.start_time
        start = began if began is not None and PLAUSIBLE <= began <= message.opened_at else message.opened_at
        labels = {"alertname": "CometadAnomaly", "stream": message.stream, "detector": message.detector}
        return {
            "labels": {**labels, "event": message.event, **self._destination.labels},
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


def _resend_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise ParameterError(f"The option resend must be a number of seconds up to 3600. Got {text!r} instead.")
    return found
