"""Webhooks, signed according to https://www.standardwebhooks.com."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Sequence

from cometad.connect.out.destination import Destination
from cometad.connect.out.message import EventMessage
from cometad.connect.out.posting import Poster
from cometad.errors import ParameterError

PREFIX = "whsec_"  # of a secret in base64


class Webhook:
    """Posts each message as a JSON object, or as rendered by the template.

    The header `webhook-id` has the id of the message, which is the same in a redelivery.
    """

    most = 1
    resend: float | None = None

    def __init__(self, destination: Destination) -> None:
        self._destination, self._poster = destination, Poster(destination)
        secret = destination.secret()
        self._key = None if secret is None else key_of(secret)

    async def send(self, messages: Sequence[EventMessage]) -> None:
        """Post messages, one after the other."""
        for message in messages:
            body, now = self._body(message), int(time.time())
            headers = {
                "content-type": self._destination.content_type,
                "user-agent": "cometad",
                "webhook-id": message.id,
                "webhook-timestamp": str(now),
            }
            if self._key is not None:
                headers["webhook-signature"] = signature(self._key, message.id, now, body)
            await self._poster.post(self._destination.url, body, headers)

    async def close(self) -> None:
        """Close the connection."""
        await self._poster.close()

    def _body(self, message: EventMessage) -> bytes:
        template = self._destination.template
        text = json.dumps(message.content) if template is None else template.text(message)
        return text.encode()


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
