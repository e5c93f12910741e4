"""Notifications: events to receivers through the outbox, copies of scores, and what people ask about them."""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from cometad.connect.out.message import EXAMPLE
from cometad.connect.out.notifier import SCORE_WRITERS, Notifier, notifier_of
from cometad.connect.out.posting import RemoteWriter
from cometad.errors import ParameterError
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import ReceiverState
from cometad.serve.notify.outbox import Outbox
from cometad.serve.notify.receivers import COUNTS, EventReceiver, ScoreReceiver, guarded
from cometad.serve.regular import LoopThread
from cometad.serve.settings import NotifySettings, Settings, address
from cometad.serve.storage.store import Store
from cometad.serve.stored_detectors import Missing
from cometad.serve.watching import Figures

FORGET_EVERY = 3600.0  # seconds
STOP_WITHIN = 5.0  # seconds for running requests when the service stops


def notifiers_of(notify: Sequence[NotifySettings]) -> dict[str, Notifier]:
    found: dict[str, Notifier] = {}
    names = [one.name for one in notify]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"Two receivers have the name {twice!r}. Give each [[notify]] table its own.")
    for one in notify:
        to = one.destination()
        found[one.name] = RemoteWriter(to) if to.address.scheme in SCORE_WRITERS else notifier_of(to)
    return found


class Notifications:
    """Sends to the configured receivers: `told` of events by their names, and `copies` of scores."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        notifiers: dict[str, Notifier],
        streams: dict[str, LiveStream],
        figures: Figures,
        in_charge: Callable[[Collection[int]], Collection[int]],
    ) -> None:
        of_events = [one for one in settings.notify if not isinstance(notifiers[one.name], RemoteWriter)]
        url = settings.public_url or address(settings.host, settings.port)
        self.outbox = Outbox(store, of_events, streams, in_charge, url)
        self.told: dict[str, EventReceiver] = {}
        self.copies: list[ScoreReceiver] = []
        for one in settings.notify:
            to = notifiers[one.name]
            if isinstance(to, RemoteWriter):
                self.copies.append(ScoreReceiver(one, to, figures))
            else:
                self.told[one.name] = EventReceiver(one, to, figures, self.outbox)
        self._thread = LoopThread("cometad-deliveries", self._sending)
        figures.watch_deliveries(self.outbox.counts)

    def start(self) -> None:
        self.outbox.give_up_unknown()
        if self.told or self.copies:
            self.outbox.wake = lambda asked: self._thread.call(self._wake, asked)
            self._thread.start()

    def stop(self) -> None:
        """Stop sending; unsent messages wait for the next start."""
        self._thread.stop(STOP_WITHIN)

    def _sending(self) -> list[Coroutine[Any, Any, Any]]:
        copying = [guarded(one.run()) for one in self.copies]
        return [*(one.run() for one in self.told.values()), *copying, self._forget()]

    def _wake(self, asked: bool) -> None:
        for receiver in self.told.values():
            receiver.wake(asked)

    async def _forget(self) -> None:
        while True:
            await guarded(asyncio.to_thread(self.outbox.forget_old))
            await asyncio.sleep(FORGET_EVERY)

    # -- people -----------------------------------------------------------------------------------------------------

    def receivers(self) -> list[ReceiverState]:
        counts = self.outbox.counts()
        told = [one.state_with(*(counts.get((one.name, state), 0) for state in COUNTS)) for one in self.told.values()]
        return told + [one.state_with(one.waiting, one.written, one.lost) for one in self.copies]

    async def send_example(self, receiver: str) -> None:
        """Send an example to a receiver now, ahead of waiting messages; raises `Lost` or `Rejected`."""
        notifier = notifier_of(self._receiver(receiver).settings.destination())
        now = time.time()
        example = replace(EXAMPLE, id=uuid.uuid4().hex, link=self.outbox.link(EXAMPLE.event), opened_at=now)
        try:
            await notifier.send([replace(example, start_time=now, stop_time=now)])
        finally:
            await notifier.close()

    def retry_one(self, delivery: int) -> int:
        """Retry an undelivered message; returns 0 if it was delivered meanwhile."""
        if not self.outbox.exists(delivery):
            raise Missing(f"There is no delivery {delivery}.")
        return self.outbox.retry(id=delivery)

    def retry_all(self, receiver: str) -> int:
        return self.outbox.retry(receiver=self._receiver(receiver).name)

    def _receiver(self, name: str) -> EventReceiver:
        if name not in self.told:
            raise Missing(f"There is no receiver {name!r} of events. Add a [[notify]] table for it to cometad.toml.")
        return self.told[name]
