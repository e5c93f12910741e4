"""A client of the Prometheus HTTP API: queries in, series out, and every refusal in one sentence."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import urlunsplit

import httpx

from cometad.connect.address import Address
from cometad.connect.contract import Lost
from cometad.errors import CometadError, InputError, ParameterError

LARGEST_ANSWER = 64 * 2**20  # bytes
AT_ONCE = 4  # concurrent requests; Prometheus evaluates 20 queries at once for all its clients
TRANSFER = 10.0  # seconds that a response may take beyond the query's evaluation
SHOWN = 300  # characters shown of a server message or a query

_KINDS = {"matrix": "ranges of samples", "string": "a text"}
_log = logging.getLogger("cometad")


class Labeled(NamedTuple):
    labels: Mapping[str, str]
    samples: list[tuple[float, str]]  # seconds since 1970, and the value as text


class BadEvaluation(InputError):
    """A valid query that cannot be evaluated over this range; a shorter range may work."""


class SlowQuery(Lost):
    """The server aborted a query that took too long; a shorter range may work."""


class PrometheusApi:
    """A client of the API; make all requests inside `async with api.opened()`."""

    def __init__(self, address: Address, options: Mapping[str, Any]) -> None:
        if not address.host:
            raise ParameterError(f"{address.shown!r} names no host. Write something like prometheus+http://host:9090.")
        host = address.parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((address.scheme.partition("+")[2], host, address.parts.path, "", "")).rstrip("/")
        self._headers = {"accept": "application/json", "user-agent": "cometad"}
        token, self._seconds = options["token_variable"], options["timeout"]
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        name, password = address.username, address.password
        if token is not None and name is not None:
            raise ParameterError("Both a user and a token are set. Remove the user or token_variable.")
        if password is not None and name is None:
            raise ParameterError("A password needs a user. Add user = NAME, or use token_variable.")
        self._login = None if name is None else (name, password or "")
        self._warned: set[str] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._slots = asyncio.Semaphore(AT_ONCE)
        # No redirects: they would leak login and token. `_ask` limits the time of the whole response.
        client = httpx.AsyncClient(headers=self._headers, auth=self._login, timeout=None, follow_redirects=False)
        async with client as self._client:
            yield

    async def now(self) -> float:
        """The server's clock, which timestamps the samples, in seconds since 1970."""
        found = await self._ask("query", {"query": "time()"}, "time()")
        result: Any = found.get("result")
        try:
            if found.get("resultType") == "vector":  # VictoriaMetrics
                result = result[0]["value"]
            return float(result[1])
        except (TypeError, ValueError, LookupError) as error:
            raise self._no_prometheus() from error

    async def at(self, query: str, moment: int) -> list[Labeled]:
        found = await self._ask("query", {"query": query, "time": _as_seconds(moment)}, query)
        kind, result = str(found.get("resultType")), cast(Any, found.get("result"))
        if kind == "scalar":
            return [Labeled({}, [result])]
        if kind != "vector":
            raise ParameterError(
                f"The query {shortened(query)} returns {_KINDS.get(kind, 'something else')}, not a number per step. "
                "Wrap it in a function such as rate(...) or last_over_time(...)."
            )
        return self._series(query, result, "value")

    async def over(self, query: str, first: int, last: int, step: int) -> list[Labeled]:
        """The series of a query from `first` to `last` inclusive; all times in milliseconds."""
        # Not "step": 0.57, which Prometheus truncates to 569 ms.
        span = {"start": _as_seconds(first), "end": _as_seconds(last), "step": f"{step}ms"}
        found = await self._ask("query_range", {"query": query, **span}, query)
        return self._series(query, found.get("result"), "values")

    def _series(self, query: str, result: Any, field: str) -> list[Labeled]:
        try:
            if any(field not in one for one in result):
                raise ParameterError(
                    f"The query {shortened(query)} returns histograms, not numbers. "
                    "Wrap it in histogram_quantile(0.99, ...)."
                )
            return [Labeled(one["metric"], one[field] if field == "values" else [one[field]]) for one in result]
        except (TypeError, LookupError) as error:
            raise self._no_prometheus() from error

    async def _ask(self, what: str, form: dict[str, str], query: str) -> dict[str, Any]:
        """The data of a response; `query` names the request in errors."""
        limit = self._seconds + TRANSFER
        form = {**form, "timeout": f"{round(1000 * self._seconds)}ms"}
        request = self._client.stream("POST", f"{self.url}/api/v1/{what}", data=form)
        try:
            async with self._slots, asyncio.timeout(limit), request as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > LARGEST_ANSWER:
                        raise BadEvaluation(
                            f"The answer to {shortened(query)} is larger than {LARGEST_ANSWER // 2**20} MiB. "
                            "Aggregate it, for example avg by (instance) (...)."
                        )
        except TimeoutError as error:
            raise Lost(f"The server {self.url} did not respond within {limit:g} s. Check its health.") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise ParameterError(
                f"Cannot use the address {self.url}. Write something like prometheus+http://host:9090."
            ) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise ParameterError(
                    f"Cannot verify the certificate of {self.url}. Set the environment variable SSL_CERT_FILE to the "
                    "certificate file of its CA."
                ) from error
            raise Lost(
                f"The server {self.url} does not respond: {plain(reason)}. "
                "Check that it is running and that the address is correct."
            ) from error
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        data = answer.get("data")
        if response.status_code == 200 and isinstance(data, dict):
            self._warn(answer.get("warnings") or [])
            return data
        raise self._refusal(response, answer, query)

    def _refusal(self, response: httpx.Response, problem: Mapping[str, Any], query: str) -> CometadError:
        status, said = response.status_code, plain(str(problem.get("error", "")))
        if said and status == 400:
            return ParameterError(f"Prometheus cannot read the query {shortened(query)}: {said}. Correct it.")
        if said and status == 422:
            return BadEvaluation(f"Prometheus cannot evaluate the query {shortened(query)}: {said}. Correct it.")
        if problem.get("errorType") == "timeout":
            return SlowQuery(
                f"Prometheus aborted the query {shortened(query)} after {self._seconds:g} s. "
                "Raise the option timeout, or make it a recording rule."
            )
        if status == 401:
            return ParameterError(
                f"The server {self.url} requires a login, or refused this one. "
                "Set user and password_variable, or token_variable, and check the value of the variable."
            )
        if status == 403:
            return ParameterError(f"This user may not query the server {self.url}. Ask its owner for permission.")
        if 300 <= status < 400:
            where = plain(response.headers.get("location", "somewhere else"))
            return ParameterError(f"The server {self.url} redirects to {where}. Use that address instead.")
        if status == 429 or status >= 500:
            return Lost(
                f"The server {self.url} responded with HTTP status {status}{said and f': {said}'}. See its log."
            )
        return self._no_prometheus(status)

    def _no_prometheus(self, status: int = 200) -> ParameterError:
        which = f" (HTTP status {status})" if status != 200 else ""
        return ParameterError(
            f"The server {self.url} does not respond like Prometheus{which}. "
            "Check host, port and the path before /api/v1."
        )

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            if warning not in self._warned and len(self._warned) < 100:
                self._warned.add(warning)
                _log.warning("Prometheus warns: %s", plain(warning))


def plain(text: str) -> str:
    """A server message on one line, shortened, without the final period."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def shortened(query: str) -> str:
    return f"'{plain(query)}'"


def _as_seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}"


def token_in(variable: str) -> str | None:
    found = os.environ.get(variable) if variable else None
    if variable and not found:
        raise ParameterError(f"The environment variable {variable!r} with the token is not set. Set it first.")
    return found
