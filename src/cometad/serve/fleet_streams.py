"""A fleet behind the service: an entity becomes a stream with its first reading.

The detector of an entity is copied from the folder of the fleet into the service, and a stream of the same name is
created, when the first reading for it comes. From then on it is a stream like any other: it is stored, survives a
restart, and keeps its detector when the fleet is fitted again. Delete the stream and its detector to take the new one.
"""

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from cometad.connect.contract import UnknownStream
from cometad.errors import CometadError, ParameterError
from cometad.fleet.fleet import Fleet
from cometad.serve.models import StreamSettings, is_name
from cometad.serve.stored_detectors import StoredDetectors
from cometad.serve.stored_streams import StoredStreams

LONGEST = 80  # characters of an entity's name that are kept in a name that had to be changed

_log = structlog.get_logger("cometad.serve")


def stream_name(entity: str) -> str:
    """The name of the stream of an entity: its own if the API allows it, else one made from it and a hash.

    Each character that is not allowed becomes a hyphen; the first eight digits of the SHA-256 of the entity's name
    keep two of them apart.
    """
    if is_name(entity):
        return entity
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", entity)[:LONGEST].lstrip("._-") or "entity"
    return f"{plain}-{hashlib.sha256(entity.encode(errors='surrogatepass')).hexdigest()[:8]}"


class FleetStreams:
    """Opens the streams of a fleet; without a fleet, it opens none. `create` creates a stream."""

    def __init__(
        self,
        folder: Path | None,
        streams: StoredStreams,
        detectors: StoredDetectors,
        create: Callable[[str, StreamSettings], Any],
    ) -> None:
        self._streams, self._detectors, self._create = streams, detectors, create
        self._lock = threading.Lock()
        self._fleet = None if folder is None else Fleet.load(folder)
        self.entities = {stream_name(entity): entity for entity in self._fleet or ()}
        if self._fleet is not None and len(self.entities) < len(self._fleet):
            raise ParameterError(f"Two entities of the fleet '{folder}' have the same name as streams. Rename one.")

    def open(self, name: str) -> None:
        """Create the stream of an entity, if the fleet has one of this name; raises `UnknownStream` if that fails."""
        if self._fleet is None or name not in self.entities or self._streams.find(name) is not None:
            return
        with self._lock:
            if self._streams.find(name) is not None:  # another request was quicker
                return
            try:
                self._detectors.add(name, self._fleet.content(self.entities[name]))
                self._create(name, StreamSettings(detector=name))
            except CometadError as error:
                _log.error("stream of the fleet not opened", stream=name, problem=str(error))
                raise UnknownStream(name, str(error)) from error
