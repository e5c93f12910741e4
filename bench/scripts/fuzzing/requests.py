"""Generated requests to every route of `cometad serve`, valid and invalid, without tokens and with each kind.

Half of the names are those of a stream, a detector and an event that exist. Wrong are answers with 5xx, refused
connections and, once there is a token, a success without the scope that the route needs.
"""

import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from cometad.serve.storage.store import Store
from cometad.serve.tokens import Tokens
from serving import NAMES, START, Service, fitted, plant, served

OPEN = ("/healthz", "/readyz", "/openapi.json")  # need no token
SCOPES = ("read", "write", "admin")
ADMIN = (("DELETE", "/v1/streams/{name}"), ("DELETE", "/v1/detectors/{name}"))
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
TOO_LONG = 30.0  # seconds for one answer


def run(cases: int, seed: int) -> Counter[str]:
    """Counts of outcomes."""
    counts: Counter[str] = Counter()
    detector = fitted(rows=600)[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder) as service:
            _prepare(service, detector)
            schema = schemathesis.openapi.from_dict(service.get("/openapi.json"))
            operations = [one.ok() for one in schema.get_all_operations()]
            tokens: dict[str, str | None] = {"before any token": None}
            generated = _enough(operations, -(-cases // 6), seed)  # the same requests from each of six clients
            _send(service, generated, tokens, seed, counts)
            store = Store.in_folder(folder)
            secrets = {scope: Tokens(store).create(scope, scope) for scope in SCOPES}
            store.close()
            tokens = {"without a token": None, "with a wrong token": "cmt_wrong", **secrets}
            _until_noticed(service)
            _send(service, generated, tokens, seed, counts)
    return Counter(dict(sorted(counts.items())))


def _prepare(service: Service, detector: bytes) -> None:
    """A detector, a stream with readings, and an event."""
    service.put("/v1/detectors/plant", detector)
    service.put("/v1/streams/plant", {"detector": "plant"})
    rows = plant(300, seed=0)
    rows[200:220] += 9.0
    header = "time," + ",".join(NAMES)
    lines = [f"{START + i}," + ",".join(map(str, row)) for i, row in enumerate(rows.tolist())]
    status, answer = service.ask("POST", "/v1/streams/plant/readings", "\n".join([header, *lines]).encode(), "text/csv")
    if status != 200:
        raise RuntimeError(answer.decode())


def _until_noticed(service: Service) -> None:
    """Wait until the service knows that there are tokens."""
    end = time.monotonic() + TOO_LONG
    while service.ask("GET", "/v1/session")[0] != 401:
        if time.monotonic() > end:
            raise RuntimeError("The service did not notice that there are tokens.")
        time.sleep(0.1)


def _send(
    service: Service, cases: Sequence[Any], tokens: dict[str, str | None], seed: int, counts: Counter[str]
) -> None:
    """Send all requests with each token, or without any."""
    session, base = requests.Session(), f"http://127.0.0.1:{service.port}"
    for who, token in tokens.items():
        chance = random.Random(seed)
        for case in cases:
            _existing(case, chance)
            counts[_outcome(session, base, case, who, token)] += 1


def _enough(operations: Sequence[Any], count: int, seed: int) -> list[Any]:
    """At least so many requests, about as many to each route; some routes have few that differ."""
    each, found = -(-count // (len(operations) * len(MODES))), list[Any]()
    while len(found) < count:
        found += [case for one in operations for mode in MODES for case in _generated(one, mode, each, seed)]
        seed += 1
    return found


def _generated(operation: Any, mode: GenerationMode, count: int, seed: int) -> list[Any]:
    """Requests to one route; none if nothing of this kind can be sent to it."""
    found: list[Any] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        found.append(case)

    with contextlib.suppress(Unsatisfiable):  # a route without anything to get wrong
        one()
    return found


def _existing(case: Any, chance: random.Random) -> None:
    """Let half of the requests be about something that exists."""
    parameters = case.path_parameters
    if parameters and chance.random() < 0.5:
        for name in parameters:
            parameters[name] = "1-1" if "event" in case.path or name in ("id", "event_id") else "plant"


def _outcome(session: Any, base: str, case: Any, who: str, token: str | None) -> str:
    """What a request led to, in words."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        question = case.as_transport_kwargs(base_url=base)
        given = {name: value for name, value in (question.get("headers") or {}).items() if name != "Authorization"}
        question["headers"] = given | headers
        question.pop("cookies", None)
        with session.request(**question, stream=True, timeout=TOO_LONG) as answer:
            status, path = answer.status_code, case.operation.path
            if path != "/v1/live":
                _ = answer.content
    except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
        return "cannot be sent"
    except requests.RequestException as error:
        return f"{case.method} {case.operation.path}: {type(error).__name__}: wrong"
    if status >= 500 and status != 503:
        return f"{status} {case.method} {path} {who}: wrong"
    if status < 400 and not _allowed(case.method, path, who):
        return f"{status} {case.method} {path} {who} should be refused: wrong"
    return f"{status} {who}"


def _allowed(method: str, path: str, who: str) -> bool:
    """Whether somebody may succeed."""
    if path in OPEN or who == "before any token":
        return True
    if who not in SCOPES:
        return False
    needed = "admin" if (method, path) in ADMIN else "read" if method in ("GET", "HEAD") else "write"
    return SCOPES.index(who) >= SCOPES.index(needed)
