"""MQTT: readings in JSON, or one topic per variable. A message is acknowledged once it is on disk.

The session is persistent: messages published while this client is away wait at the broker, which also redelivers
unacknowledged ones. Redelivered readings with a time or a sequence number are recognized and ignored.

Retained messages: the broker sends the last message of a topic at every connection, however old it is. Retained JSON
readings are ignored. A single-variable topic often publishes only changes, so its retained value is used: at its own
time or, if it has none, as of now.
"""

import asyncio
import hashlib
import json
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, NamedTuple

from cometad.connect.address import Address, Option, choice, whole_number
from cometad.connect.contract import Message
from cometad.connect.intake import Intake
from cometad.connect.mqtt_link import VERSIONS, BrokerAddress, Incoming, MqttLink, TidySocket, UnsupportedVersion
from cometad.connect.source import ConnectedSource
from cometad.connect.tags import HOLD, LONGEST_HOLD, TagFeed, stream_and_period
from cometad.data.cells import StreamDates, StreamNumbers
from cometad.errors import InputError, ParameterError

PORTS = {"mqtt": 1883, "mqtts": 8883}
TOKEN = "{stream}"
TIMES = ("time", "timestamp", "ts")  # fields with the time of a value
MOST_TICK, LEAST_TICK = 1.0, 0.05  # seconds


class MqttSource(ConnectedSource):
    """Readings from an MQTT broker.

    The path of the URL is the topic: `mqtt://host/plant/pump`. Its level `{stream}`, as in `plant/{stream}/readings`,
    names the stream. A message is a reading in JSON, or a list of readings. With tags, each variable has its own topic:
    a message is a number, or an object with `value` and `time`; `topic#field` takes another field of an object.
    """

    OPTIONS: ClassVar = {
        "client": Option(),
        "version": choice("version of MQTT", VERSIONS, ""),
        "hold": whole_number(
            LONGEST_HOLD, "The option hold is {}. Write a number of periods from 1 to 1000.", str(HOLD)
        ),
        "ca": Option(),
        "certificate": Option(),
        "key": Option(),
    }

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if not address.host:
            raise ParameterError(f"{address.shown!r} names no broker. Write something like mqtt://host/topic.")
        if address.tags:
            stream_and_period(address)
            if address.path:
                raise ParameterError(f"The address {address.shown} has both a topic and tags. Remove the topic.")
            self._places = [_place(name, tag) for name, tag in address.tags.items()]
            self.filters = sorted({place.topic for place in self._places})
        else:
            self.filters = [_checked_filter(address.path, address)]
            levels = address.path.split("/")
            self._level = levels.index(TOKEN) if TOKEN in levels else None
        digest = hashlib.sha256("\n".join(self.filters).encode()).hexdigest()[:8]
        client = self.options["client"] or f"cometad-{address.name}-{digest}"  # other topics, another session
        tls = _tls(address, self.options) if address.scheme == "mqtts" else None
        port = address.port(PORTS[address.scheme])
        self._broker = BrokerAddress(address.host, port, client, address.username, address.password, tls)

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        """Connect with MQTT 5, which lets the client limit messages in flight, or with 3.1.1 if that is refused."""
        self._tags = None
        if self.address.tags:
            feed = await asyncio.to_thread(TagFeed, self.address, intake, self.options["hold"])
            self._tags = _TagTaker(feed, self._places)
        versions = [self.options["version"]] if self.options["version"] else list(VERSIONS)
        for version in versions:
            self._link = MqttLink(self._broker, version)
            closing.push_async_callback(self._link.close)
            try:
                await self._link.open()
                break
            except UnsupportedVersion:
                if version == versions[-1]:
                    raise
        await self._link.subscribe(self.filters)

    async def pull(self, intake: Intake) -> None:
        while True:
            messages = await self._link.messages(None if self._tags is None else self._tags.tick)
            if self._tags is not None:
                await self._tags.take(messages)
            elif fresh := [self._message(one) for one in messages if not one.retain]:
                await intake.take(fresh)
            self._link.acknowledge(messages)

    def _message(self, one: Incoming) -> Message:
        stream = self.address.stream if self._level is None else one.topic.split("/")[self._level]
        return Message(bytes(one.payload), one.topic, stream)


class _Place(NamedTuple):
    name: str
    topic: str
    field: str | None


class _TagTaker:
    """One topic per variable."""

    def __init__(self, feed: TagFeed, places: Sequence[_Place]) -> None:
        self._feed, self._by_topic = feed, dict[str, list[_Place]]()
        for place in places:
            self._by_topic.setdefault(place.topic, []).append(place)
        self._dates = {place.name: StreamDates() for place in places}
        self._numbers = StreamNumbers(gaps=True)
        self.tick = min(max(feed.period / 2, LEAST_TICK), MOST_TICK)  # seconds between clock checks

    async def take(self, messages: Sequence[Incoming]) -> None:
        for message in messages:
            topic, body = message.topic, bytes(message.payload)
            for place in self._by_topic.get(topic, ()):
                try:
                    self._feed.add(place.name, *self._value(body, place), topic)
                except InputError as error:
                    self._feed.reject(topic, body, str(error))
        if not messages:
            self._feed.pass_time()
        await self._feed.store(news=bool(messages))

    def _value(self, payload: bytes, place: _Place) -> tuple[float, float]:
        found = _content_of(payload, place)
        sent = None
        if isinstance(found, dict):
            field = place.field or "value"
            if field not in found:
                raise InputError(f"A message of {place.topic!r} has no field {field!r}. Name another with topic#field.")
            sent = next((found[name] for name in TIMES if found.get(name) is not None), None)
            found = found[field]
        elif place.field is not None:
            raise InputError(f"A message of {place.topic!r} is not a JSON object, so it has no field {place.field!r}.")
        value = self._numbers.value(place.name, found, f"Topic {place.topic!r}")
        return self._time(sent, place), value

    def _time(self, sent: Any, place: _Place) -> float:
        if sent is None:
            return time.time()
        if isinstance(sent, bool) or not isinstance(sent, str | int | float):
            raise InputError(f"Topic {place.topic!r}: the time {sent!r} is neither text nor a number. Correct it.")
        try:
            at = self._dates[place.name].seconds(sent, 1)
        except InputError as error:
            raise InputError(f"Topic {place.topic!r}: {str(error).removeprefix('Line 1: ')}") from error
        assert at is not None
        return at


def _content_of(payload: bytes, place: _Place) -> Any:
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"A message of {place.topic!r} is not UTF-8. Publish numbers as text, or JSON.") from error
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def _checked_filter(topic: str, address: Address) -> str:
    if not topic:
        raise ParameterError(f"{address.shown!r} names no topic. Write something like mqtt://host/plant/pump, or tags.")
    levels = topic.split("/")
    if "#" in levels[:-1]:
        raise ParameterError(f"The wildcard # must be the last level of a topic. Correct {topic!r}.")
    for level in levels:
        if level not in ("+", "#", TOKEN) and re.search(r"[+#{}\0]", level):
            raise ParameterError(
                f"The level {level!r} of the topic {topic!r} mixes text with a wildcard. A wildcard (+, #, {TOKEN}) "
                "must be a whole level."
            )
    if levels.count(TOKEN) > 1:
        raise ParameterError(f"The topic {topic!r} has {TOKEN} twice. Keep one, and write + for the other.")
    if TOKEN in levels and address.stream is not None:
        raise ParameterError(f"The topic {topic!r} names the stream, and so does stream. Remove one of them.")
    return "/".join("+" if level == TOKEN else level for level in levels)


def _place(name: str, tag: str) -> _Place:
    topic, sharp, field = tag.partition("#")
    if not topic or "+" in topic or (sharp and not field) or "\0" in topic:
        raise ParameterError(
            f"The tag {tag!r} of variable {name!r} is not a topic. Write one without wildcards, such as "
            "plant/pump/flow, or topic#field for a field of a JSON object."
        )
    return _Place(name, topic, field or None)


def _tls(address: Address, options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options["ca"] or None)
        context.sslsocket_class = TidySocket
        if options["certificate"]:
            context.load_cert_chain(options["certificate"], options["key"] or None)
    except (OSError, ssl.SSLError) as error:
        raise ParameterError(
            f"The certificates of {address.shown} cannot be read ({error.strerror or error}). Check the options ca, "
            "certificate and key."
        ) from error
    return context
