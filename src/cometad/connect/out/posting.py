"""HTTP requests to receivers: with a timeout, no redirects, and every failure in one sentence."""

from types import TracebackType

import httpx

from cometad.connect.contract import Lost
from cometad.connect.out.destination import Destination
from cometad.connect.out.notifier import Rejected
from cometad.errors import ParameterError

AGAIN = (408, 425, 429)  # and 500 and above: worth a retry
SHOWN = 200  # characters of a response shown in a message
ADVICE = "Check its url and its template."


class Poster:
    """Posts to one receiver and keeps the connection open.

    Redirects are refused: a signed message goes only to the configured address.
    """

    def __init__(self, destination: Destination) -> None:
        if not destination.address.host:
            raise ParameterError(f"{destination.shown!r} names no host. Write something like https://host/path.")
        self._destination = destination
        self._headers = destination.filled_headers()
        user = destination.address.username
        self._auth = None if user is None else (user, destination.address.password or "")
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str], advice: str = ADVICE) -> None:
        """Post a body; raises `Lost` or `Rejected` unless the status is 2xx. A refusal ends with `advice`."""
        who = f"The receiver {self._destination.name!r}"
        if self._client is None:  # created here because it belongs to the running event loop
            self._client = httpx.AsyncClient(timeout=self._destination.timeout, follow_redirects=False, auth=self._auth)
        try:
            answer = await self._client.post(url, content=body, headers={**headers, **self._headers})
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise Rejected(f"{who} has an invalid address: {error}. Correct its url.") from error
        except httpx.HTTPError as error:
            problem = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise Lost(f"{who} cannot be reached at {self._destination.shown}: {problem}.") from error
        if answer.is_success:
            return
        raise _failure(who, answer, advice)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def __aenter__(self) -> "Poster":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _failure(who: str, answer: httpx.Response, advice: str) -> Lost | Rejected:
    status = answer.status_code
    said = " ".join(answer.text.split())[:SHOWN].rstrip(".")
    said = f": {said}" if said else ""
    if status in AGAIN or status >= 500:
        return Lost(f"{who} answered with status {status}{said}.")
    if status in (401, 403):
        return Rejected(f"{who} refused with status {status}{said}. Check its credentials: user, headers or secret.")
    if answer.is_redirect:
        return Rejected(f"{who} answered with a redirect (status {status}). Write the new address into its url.")
    return Rejected(f"{who} refused with status {status}{said}. {advice}", status)
