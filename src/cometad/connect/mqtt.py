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
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from cometad.connect.address import Address
from cometad.connect.intake import Intake, Message
from cometad.connect.mqtt_link import VERSIONS, BrokerAddress, MqttLink, MqttMessage, TidySocket, UnsupportedVersion
from cometad.connect.tag_feed import TagFeed, checked_period, checked_stream
from cometad.connect.tags import HOLD
from cometad.errors import InputError, ParameterError, unknown
from cometad.live.dates import StreamDates
from cometad.live.numbers import StreamNumbers

OPTIONS = ("client", "version", "hold", "ca", "certificate", "key")
PORTS = {"mqtt": 1883, "mqtts": 8883}
TOKEN = "{stream}"
TIMES = ("time", "timestamp", "ts")  # fields with the time of a value
MOST_TICK, LEAST_TICK = 1.0, 0.05  # seconds between clock checks


class MqttSource:
    """Readings from an MQTT broker.

    The path of the URL is the topic: `mqtt://host/plant/pump`. Its level `{stream}`, as in `plant/{stream}/readings`,
    names the stream. A message is a reading in JSON, or a list of readings. With tags, each variable has its own topic:
    a message is a number, or an object with `value` and `time`; `topic#field` takes another field of an object.
    """

    def __init__(self, address: Address) -> None:
        address.check_options(OPTIONS)
        if not address.host:
            raise ParameterError(f"{address.shown!r} names no broker. Write something like mqtt://host/topic.")
        self._address = address
        self._version = address.option("version", "")
        if self._version not in ("", *VERSIONS):
            raise unknown("version of MQTT", self._version, VERSIONS)
        self._hold = _checked_hold(address.option("hold", str(HOLD)))
        self._topic = address.path
        if address.tags:
            checked_stream(address)
            checked_period(address)
            if self._topic:
                raise ParameterError(f"The address {address.shown} has both a topic and tags. Remove the topic.")
            self._places = [_place(name, tag) for name, tag in address.tags.items()]
            self.filters = sorted({place.topic for place in self._places})
        else:
            self.filters = [_checked_filter(self._topic, address)]
        self._broker = self._make_broker()

    def _make_broker(self) -> BrokerAddress:
        address = self._address
        digest = hashlib.sha256("\n".join(self.filters).encode()).hexdigest()[:8]
        client = address.option("client", f"cometad-{address.name}-{digest}")  # other topics, another session
        tls = _tls(address) if address.scheme == "mqtts" else None
        port = address.port(PORTS[address.scheme])
        return BrokerAddress(address.host, port, client, address.username, address.password, tls)

    async def run(self, intake: Intake) -> None:
        """Read until cancelled; raises `Lost` if the broker is gone."""
        taker = await asyncio.to_thread(self._taker, intake)
        link = await self._open()
        try:
            await link.subscribe(self.filters)
            intake.connected()
            while True:
                messages = await link.messages(taker.tick)
                await taker.take(messages)
                link.acknowledge(messages)
        finally:
            await link.close()

    def _taker(self, intake: Intake) -> "_Taker":
        if not self._address.tags:
            return _JsonTaker(intake, self._topic, self._address.stream)
        return _TagTaker(TagFeed(self._address, intake, self._hold), self._places, intake)

    async def _open(self) -> MqttLink:
        """Connect with MQTT 5, which lets the client limit messages in flight, or with 3.1.1 if that is refused."""
        for version in [self._version] if self._version else VERSIONS:
            link = MqttLink(self._broker, version)
            try:
                await link.open()
            except UnsupportedVersion:
                await link.close()
                if version == [*VERSIONS][-1] or self._version:
                    raise
            except BaseException:
                await link.close()
                raise
            else:
                return link
        raise AssertionError("unreachable")


class _Taker(Protocol):
    """Interprets messages."""

    tick: float | None  # seconds until the clock is checked if nothing arrives

    async def take(self, messages: Sequence[MqttMessage]) -> None:
        """Store messages; they are on disk when this returns."""


class _JsonTaker:
    """Readings in JSON."""

    tick: float | None = None

    def __init__(self, intake: Intake, topic: str, stream: str | None) -> None:
        self._intake, self._stream = intake, stream
        levels = topic.split("/")
        self._level = levels.index(TOKEN) if TOKEN in levels else None

    async def take(self, messages: Sequence[MqttMessage]) -> None:
        fresh = [Message(one.body, one.topic, self._stream_of(one.topic)) for one in messages if not one.retained]
        if fresh:
            await self._take(fresh)

    async def _take(self, messages: Sequence[Message]) -> None:
        try:
            await self._intake.take(messages)
        except InputError as error:  # more readings than fit into one request
            if len(messages) == 1:
                (one,) = messages
                await self._intake.put_aside(one.where, one.body, str(error), one.stream or "")
                return
            for one in messages:
                await self._take([one])

    def _stream_of(self, topic: str) -> str | None:
        return self._stream if self._level is None else topic.split("/")[self._level]


class _Place(NamedTuple):
    """Where the values of a variable are."""

    name: str
    topic: str
    field: str | None


class _TagTaker:
    """One topic per variable."""

    def __init__(self, feed: TagFeed, places: Sequence[_Place], intake: Intake) -> None:
        self._feed, self._intake = feed, intake
        self._places: dict[str, list[_Place]] = {}
        for place in places:
            self._places.setdefault(place.topic, []).append(place)
        self._dates = {place.name: StreamDates() for place in places}
        self._numbers = StreamNumbers(gaps=True)
        self.tick: float | None = min(max(feed.period / 2, LEAST_TICK), MOST_TICK)
        self._looked = time.monotonic()

    async def take(self, messages: Sequence[MqttMessage]) -> None:
        for message in messages:
            for place in self._places.get(message.topic, ()):
                try:
                    at, value = self._value(message.body, place)
                except InputError as error:
                    self._feed.set_aside(message.topic, message.body, str(error))
                else:
                    self._feed.add(place.name, at, value, message.topic)
        if not messages:
            self._feed.pass_time()
        await self._feed.store(news=bool(messages))
        if messages:
            self._intake.connection.last_message = time.time()

    def _value(self, payload: bytes, place: _Place) -> tuple[float, float]:
        """The time and the value in a message."""
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
    """The JSON in a message, or its text if it is not JSON."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"A message of {place.topic!r} is not UTF-8. Publish numbers as text, or JSON.") from error
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def _checked_filter(topic: str, address: Address) -> str:
    """The subscription filter for a topic with wildcards and a level {stream}."""
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


def _checked_hold(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise ParameterError(f"The option hold is {text!r}. Write a number of periods from 1 to 1000.")
    return int(text)


def _tls(address: Address) -> ssl.SSLContext:
    certificate = address.option("certificate", "")
    try:
        context = ssl.create_default_context(cafile=address.option("ca", "") or None)
        context.sslsocket_class = TidySocket
        if certificate:
            context.load_cert_chain(certificate, address.option("key", "") or None)
    except (OSError, ssl.SSLError) as error:
        raise ParameterError(
            f"The certificates of {address.shown} cannot be read ({error.strerror or error}). Check the options ca, "
            "certificate and key."
        ) from error
    return context
