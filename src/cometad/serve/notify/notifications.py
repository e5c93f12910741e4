"""All outgoing messages: events to receivers through the outbox, and copies of scores."""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cometad.connect.out.message import EXAMPLE
from cometad.connect.out.notifier import SCORE_WRITERS, notifier_of
from cometad.connect.out.remote_write import RemoteWriter
from cometad.errors import ParameterError
from cometad.serve.figures import Figures
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import DeliveryState, ReceiverState
from cometad.serve.notify.delivering import Deliveries, EventReceiver
from cometad.serve.notify.messages import MessageWriter
from cometad.serve.notify.notify_settings import NotifySettings
from cometad.serve.notify.outbox import Outbox
from cometad.serve.notify.score_copies import ScoreCopies
from cometad.serve.scorer import FreshScores
from cometad.serve.settings import Settings, address
from cometad.serve.storage.store import Store
from cometad.serve.stored_detectors import Missing


class Receivers(NamedTuple):
    """The configured receivers."""

    told: dict[str, EventReceiver]  # of events, by name
    written: list[tuple[NotifySettings, str, RemoteWriter]]  # of scores, with their addresses for display


class Notifications:
    """Sends to the configured receivers. `url` is the public address of the service."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        receivers: Receivers,
        streams: dict[str, LiveStream],
        figures: Figures,
        in_charge: Callable[[Collection[int]], Collection[int]],
    ) -> None:
        self.url = settings.public_url or address(settings.host, settings.port)
        self._streams, self._settings = streams, {one.name: one for one in settings.notify}
        events = [one for one in settings.notify if one.name in receivers.told]
        self.outbox = Outbox(store, events, lambda: {one.id: one.name for one in list(streams.values())}, in_charge)
        writer = MessageWriter(store, lambda: {one.id: one for one in list(streams.values())}, self._link)
        self.copies = [ScoreCopies(one, url, writer, figures.copied) for one, url, writer in receivers.written]
        others = [one.run for one in self.copies]
        self._deliveries = Deliveries(self.outbox, writer, list(receivers.told.values()), figures.delivery, others)
        figures.watch_deliveries(self.outbox.counts)

    def start(self) -> None:
        """Start sending."""
        self._deliveries.start()

    def stop(self) -> None:
        """Stop sending; unsent messages wait for the next start."""
        self._deliveries.stop()

    def _link(self, event: str) -> str:
        return f"{self.url.rstrip('/')}/#/events/{event}"

    def told(self) -> Iterator[EventReceiver]:
        """The receivers of events."""
        yield from self._deliveries.receivers.values()

    def scored(self, scores: FreshScores) -> None:
        """Queue new scores for copying; called by the scoring thread."""
        for one in self.copies:
            one.add(scores)

    # -- people -----------------------------------------------------------------------------------------------------

    def receivers(self) -> list[ReceiverState]:
        """The state of the receivers."""
        counts = self.outbox.counts()
        told = [
            ReceiverState(
                name=one.name,
                url=one.url,
                gets="events",
                waiting=counts.get((one.name, "waiting"), 0),
                delivered=counts.get((one.name, "delivered"), 0),
                undelivered=counts.get((one.name, "undelivered"), 0),
                last_delivered=one.last_delivered,
                error=one.error,
            )
            for one in self.told()
        ]
        written = [
            ReceiverState(
                name=one.name,
                url=one.url,
                gets="scores",
                waiting=one.waiting,
                delivered=one.written,
                undelivered=one.lost,
                last_delivered=one.last_written,
                error=one.error,
            )
            for one in self.copies
        ]
        return told + written

    def deliveries(self, state: str | None, receiver: str | None, limit: int) -> list[DeliveryState]:
        """Messages to receivers, newest first."""
        names = {one.id: one.name for one in list(self._streams.values())}
        return [
            DeliveryState(
                id=row.id,
                receiver=row.receiver,
                message=row.uid,
                event=f"{row.stream_id}-{row.number}",
                stream=names[row.stream_id],
                change=row.change,
                state=row.state,
                created=row.created,
                attempts=row.attempts,
                next_attempt=row.next_at if row.state == "waiting" else None,
                error=row.error,
                done_at=row.done_at,
            )
            for row in self.outbox.listed(state, receiver, limit)
            if row.stream_id in names
        ]

    async def send_example(self, receiver: str) -> None:
        """Send an example to a receiver now, ahead of waiting messages; raises `Lost` or `Rejected`."""
        settings = self._settings.get(receiver)
        if settings is None or receiver not in self._deliveries.receivers:
            raise _no_receiver(receiver)
        notifier = notifier_of(settings.destination())
        now = time.time()
        example = replace(EXAMPLE, id=uuid.uuid4().hex, link=self._link(EXAMPLE.event), opened_at=now)
        try:
            await notifier.send([replace(example, start_time=now, stop_time=now)])
        finally:
            await notifier.close()

    def retry_one(self, delivery: int) -> int:
        """Retry an undelivered message; returns 0 if it was delivered meanwhile."""
        if not self.outbox.exists(delivery):
            raise Missing(f"There is no delivery {delivery}.")
        return self.outbox.retry(delivery=delivery)

    def retry_all(self, receiver: str) -> int:
        """Retry everything a receiver missed; returns the number of messages."""
        if receiver not in self._deliveries.receivers:
            raise _no_receiver(receiver)
        return self.outbox.retry(receiver=receiver)


def _no_receiver(name: str) -> Missing:
    return Missing(f"There is no receiver {name!r} of events. Add a [[notify]] table for it to cometad.toml.")


def receivers_of(notify: Sequence[NotifySettings]) -> Receivers:
    """The configured receivers; a bad one is refused in one sentence."""
    names = [one.name for one in notify]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"Two receivers have the name {twice!r}. Give each [[notify]] table its own.")
    found = Receivers({}, [])
    for one in notify:
        to = one.destination()
        if to.address.scheme in SCORE_WRITERS:
            found.written.append((one, to.shown, RemoteWriter(to)))
        else:
            found.told[one.name] = EventReceiver(one.name, to.shown, notifier_of(to), one.give_up_hours)
    return found
