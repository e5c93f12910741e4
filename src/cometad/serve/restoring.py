"""A stream as the database has it, put into memory."""

import json
import time
from typing import Any

import structlog
from sqlalchemy import select

from cometad.comet import Comet
from cometad.errors import CometadError
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import StreamSettings
from cometad.serve.storage import schema
from cometad.serve.storage.history import next_number
from cometad.serve.storage.store import Store
from cometad.serve.stored_detectors import StoredDetectors

_log = structlog.get_logger("cometad.serve")


def restored(store: Store, detectors: StoredDetectors, row: Any) -> LiveStream:
    """The stream in a row of the database, with what its next readings are compared with, but not opened yet."""
    settings = StreamSettings.model_validate_json(row.settings)
    lost = None
    try:
        detector, layout = detectors.for_stream(settings)
    except CometadError as error:
        lost = f"Its detector cannot be used: {error}"
        detector, layout = Comet(), detectors.stored_layout(settings.detector)  # an unfitted placeholder
        _log.error("stream paused", stream=row.name, problem=lost)
    stream = LiveStream(row.id, row.name, settings, detector, layout, row.first_seq, row.first_step)
    stream.first_event, stream.lost_detector = row.first_event, lost is not None
    stream.paused, stream.reason = row.paused or lost is not None, lost or row.reason
    stream.owned, stream.epoch = store.is_sqlite, row.epoch
    stream.stored_dates = json.loads(row.dates)
    stream.arrivals.dates.restore(stream.stored_dates)
    with store.read() as connection:
        table = schema.readings
        own = table.c.stream_id == row.id
        newest = connection.execute(select(table).where(own).order_by(table.c.first.desc()).limit(1)).one_or_none()
        arrivals = stream.arrivals
        arrivals.next_seq = next_number(connection, table, row.id)
    if newest is not None:
        arrivals.last_at, arrivals.last_sequence = newest.last_at, newest.last_sequence
        arrivals.timed = json.loads(newest.last_time) is not None
        stream.last_received = time.time()  # silence counts from the start of the service
    return stream
