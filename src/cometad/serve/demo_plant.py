"""The "Try it" of the page: fits a detector on the demo plant and feeds its readings as if they were live."""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from cometad.comet import Comet
from cometad.connect.contract import Busy, ReadingBatch
from cometad.datasets.synthetic import Plant, synthetic_plant
from cometad.errors import CometadError, InputError
from cometad.serve.models import DemoState, StreamSettings
from cometad.serve.recorder import Recorder
from cometad.serve.stored_detectors import StoredDetectors
from cometad.serve.stored_streams import StoredStreams

NAME = "demo"
PERIOD = 0.1  # seconds between readings
AHEAD = 600  # readings that are there at once, so that the chart is not empty
SETTINGS = StreamSettings(detector=NAME, period="100ms", late="drop", min_length=3, merge_gap=30)

_log = structlog.get_logger("cometad.serve")


class DemoPlant:
    """Feeds the stream "demo" from a thread, until it is stopped or the plant ends; then the plant begins anew."""

    def __init__(
        self,
        streams: StoredStreams,
        detectors: StoredDetectors,
        recorder: Recorder,
        put_stream: Callable[[str, StreamSettings], Any],
    ) -> None:
        self._streams, self._detectors, self._recorder, self._put_stream = streams, detectors, recorder, put_stream
        self._end = threading.Event()
        self._thread = threading.Thread()
        self._state = DemoState(stream=NAME, state="stopped")
        self._lock = threading.Lock()

    def start(self) -> DemoState:
        with self._lock:
            if not self._thread.is_alive():
                self._end.clear()
                self._state = DemoState(stream=NAME, state="starting")
                self._thread = threading.Thread(target=self._run, name="cometad-demo", daemon=True)
                self._thread.start()
        return self._state

    def stop(self) -> DemoState:
        with self._lock:
            self._end.set()
            if self._thread.is_alive():
                self._thread.join()
        return self._state

    def _run(self) -> None:
        error = None
        try:
            plant = synthetic_plant(seed=1)
            if self._streams.find(NAME) is None:
                self._detectors.add(NAME, Comet().fit(plant.frames()[0]).to_bytes())
                self._put_stream(NAME, SETTINGS)
            self._state = DemoState(stream=NAME, state="running")
            while not self._end.is_set():
                self._feed(plant)
        except CometadError as found:
            error = str(found)
            _log.error("demo stopped", problem=error)
        finally:
            self._state = DemoState(stream=NAME, state="stopped", error=error)

    def _feed(self, plant: Plant) -> None:
        """Send the test part once: ten readings a second, the first ones at once, with times that end now."""
        at = 0
        while at < len(plant.test) and not self._end.is_set():
            rows = plant.test[at : at + (AHEAD if at == 0 else 1)]
            now = time.time()
            times = [now - PERIOD * (len(rows) - 1 - i) for i in range(len(rows))]
            try:
                receipt = self._recorder.submit([ReadingBatch.on_grid(NAME, plant.names, times, rows)]).result()
                for _, reason in receipt.elsewhere:
                    raise reason
                if receipt.refused:  # its stream was deleted
                    raise InputError(receipt.refused[0].reason)
                at += len(rows)
                self._end.wait(PERIOD)
            except Busy:
                self._end.wait(1.0)
