"""One source and its streams, without HTTP: what `cometad connect` does."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from cometad.connect.address import Address
from cometad.connect.intake import Connection
from cometad.errors import CometadError, InputError, ParameterError
from cometad.serve.live_stream import top_of
from cometad.serve.models import StreamSettings, is_name
from cometad.serve.scorer import FreshScores
from cometad.serve.service import Service
from cometad.serve.settings import Settings

TOP = 3  # variables listed with each score
WAIT = 0.2  # seconds between looks at the state; the main thread must hear of Ctrl-C

Line = dict[str, Any]


def follow(
    settings: Settings,
    address: Address,
    write: Callable[[list[Line]], None],
    say: Callable[[str], None],
    *,
    detector: Path | None = None,
    stream_settings: dict[str, Any] | None = None,
) -> None:
    """Read from a source until interrupted or until it ends; `write` gets a line for each score, `say` what happens.

    With a detector, the stream is created if there is none of its name. `write` runs in the thread that scores: if it
    waits, so does the source. A source that never answered because of a mistake raises an error; one that vanishes is
    tried again.
    """
    relay = _Relay(write, say)
    with closing(Service(settings)) as service:
        service.watchers.append(relay.scores)
        service.start()
        if detector is not None:
            _create(service, address.stream, detector, stream_settings or {})
        elif address.stream is not None and service.streams.find(address.stream) is None:
            raise ParameterError(
                f"There is no stream {address.stream!r} in the data folder. Create it with --detector FILE."
            )
        service.connect([address], relay.changed)
        while not service.connections.ended.wait(WAIT) and relay.error is None:
            pass
    if relay.error is not None:
        raise relay.error
    (one,) = service.connections.by_name.values()
    say(f"Took {one.readings:,} readings; set {one.set_aside:,} messages aside.")


class _Relay:
    """Passes scores and states on, and keeps the first error for the main thread."""

    def __init__(self, write: Callable[[list[Line]], None], say: Callable[[str], None]) -> None:
        self._write, self._say = write, say
        self._was_connected = self._is_connected = False
        self.error: Exception | None = None

    def scores(self, scores: FreshScores) -> None:
        """Write the lines of new scores; an output that fails ends the run, and must not pause the stream."""
        if self.error is not None:
            return
        try:
            self._write(lines_of(scores))
        except (OSError, CometadError) as error:
            self.error = error

    def changed(self, connection: Connection) -> None:
        """Say how the connection is; a mistake before the first connection ends the run."""
        if connection.state == "connected":
            if connection.reason is not None:
                self._say(connection.reason)
            elif not self._is_connected:
                self._say(f"Connected to {connection.url}.")
            self._was_connected = True
        elif connection.state == "failed" and not self._was_connected:
            self.error = self.error or InputError(connection.reason or "The source cannot be used.")
        elif connection.state in ("lost", "failed"):
            self._say(f"{connection.reason} Trying again.")
        self._is_connected = connection.state == "connected"


def _create(service: Service, name: str | None, file: Path, options: dict[str, Any]) -> None:
    """Create a stream of a detector in a file, unless there is one of this name."""
    if name is None:
        raise ParameterError("A detector creates a stream, which needs a name. Pass --stream NAME.")
    if not is_name(name):
        raise ParameterError(f"{name!r} cannot name a stream. Use letters, digits, dots, dashes and underscores.")
    if service.streams.find(name) is not None:
        return
    if not file.is_file():
        raise ParameterError(f"There is no file '{file}'. Name a detector written by cometad fit.")
    service.detectors.add(name, file.read_bytes())
    service.put_stream(name, StreamSettings(detector=name, **options))


def lines_of(scores: FreshScores) -> list[Line]:
    """A line for each new score, ready for JSON."""
    stream = scores.stream
    events: dict[int, list[Line]] = {}
    for change, event in scores.events:
        step = {"opened": event.start, "updated": event.peak}.get(change, event.stop)
        place = min(max(step, scores.first), scores.first + len(scores.ats) - 1)
        shown = {"id", "number", "level", "new_level", "start", "stop", "peak", "start_time", "stop_time", "peak_time"}
        shown |= {"peak_score", "severity", "rarity", "meaning"}
        events.setdefault(place, []).append({"change": change, **event.model_dump(include=shown)})
    lines: list[Line] = []
    rows = zip(scores.ats.tolist(), scores.cells.tolist(), scores.variables, strict=True)
    for step, (at, (score, threshold, flag), variables) in enumerate(rows, scores.first):
        line: Line = {"stream": stream.name, "step": step, "time": at, "alert_score": score, "threshold": threshold}
        line |= {"anomaly": int(flag), "variables": dict(top_of(stream.detector.names_, variables, TOP))}
        lines.append(line | ({"events": events[step]} if step in events else {}))
    return lines
