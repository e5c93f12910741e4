"""Who may do what: tokens and their scopes, and requests that web pages elsewhere may not make."""

import re
import sqlite3

import pytest
from fastapi.routing import APIRoute
from typer.testing import CliRunner

from cometad.cli.verbs import app
from cometad.serve.api.app import make_app
from cometad.serve.tokens import SCOPES
from contract import is_a_sentence
from serve_case import Server, in_process, is_refusal, put, until, upload

OPEN = {"/healthz", "/readyz", "/openapi.json", "/", "/page/{name:path}", "/favicon.ico"}
ADMIN = {("DELETE", "/v1/streams/{name}"), ("DELETE", "/v1/detectors/{name}")}
BAD_TOKENS = ("cmt_guess", "-", "cmt_" + "x" * 5000)


def cometad(*arguments):
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, pump):
    """A service with a token of each scope."""
    with in_process(tmp_path_factory.mktemp("guarded")) as (service, client):
        upload(client, "pump", pump[1])
        put(client, "s")
        secrets = {scope: service.tokens.create(f"the-{scope}", scope) for scope in SCOPES}
        yield service, client, secrets


def routes(service):
    """Method and path of every route of the application."""
    schema = make_app(service).openapi()["paths"]
    found = {(method.upper(), path) for path, methods in schema.items() for method in methods}
    assert len(found) > 20
    return sorted(found)


def needed(method, path):
    if (method, path) in ADMIN:
        return "admin"
    return "read" if method == "GET" else "write"


def asked(client, method, path, secret):
    """The status of a request for something that does not exist or with a body that is refused."""
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    place = re.sub(r"\{event\}", "99-99", path.replace("{name}", "none"))
    if path == "/v1/demo" and secret is not None:
        method = "DELETE"  # stops what does not run
    if path == "/v1/live":
        with client.stream(method, place, headers=headers) as answer:
            return answer.status_code
    answer = client.request(method, place, headers=headers, content=b"?" if method in ("PUT", "POST") else None)
    assert answer.status_code < 400 or is_refusal(answer)
    return answer.status_code


def test_every_route_needs_its_scope(guarded):
    service, client, secrets = guarded
    for method, path in routes(service):
        if path in OPEN:
            continue
        scope = needed(method, path)
        for secret in (None, *BAD_TOKENS):
            assert asked(client, method, path, secret) == 401, (method, path)
        for own, secret in secrets.items():
            status = asked(client, method, path, secret)
            if SCOPES.index(own) < SCOPES.index(scope):
                assert status == 403, (method, path, own)
            else:
                assert status not in (401, 403), (method, path, own)


def test_every_route_of_the_application_is_in_its_schema_or_open(guarded):
    service, _, _ = guarded
    made = make_app(service)
    known = {path for _, path in routes(service)} | OPEN
    hidden = [route.path for route in made.routes if isinstance(route, APIRoute) and not route.include_in_schema]
    assert set(hidden) <= OPEN
    assert all(path.startswith(("/v1", "/metrics")) or path in OPEN for path in known)


def test_what_is_open_says_nothing_of_the_streams(guarded):
    _, client, _ = guarded
    for path in ("/healthz", "/readyz", "/openapi.json", "/", "/favicon.ico"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert b"pump" not in answer.content or path in ("/", "/openapi.json")


def test_the_session_tells_what_a_client_may_do(guarded):
    _, client, secrets = guarded
    for i, scope in enumerate(SCOPES):
        info = client.get("/v1/session", headers={"authorization": f"bearer {secrets[scope]}"}).json()
        assert info["scopes"] == list(SCOPES[: i + 1])
        assert info["tokens"] is True
    refused = client.get("/v1/session")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/session", headers={"authorization": secrets["admin"]}).status_code == 401


def test_without_a_token_a_request_for_another_name_is_refused(tmp_path):
    with in_process(tmp_path) as (service, client):
        _check_names(client)
        secret = service.tokens.create("reader", "read")  # no other page can know it
        headers = {"host": "plant.example", "authorization": f"Bearer {secret}"}
        assert client.get("/v1/streams", headers=headers).status_code == 200


def _check_names(client):
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "0.0.0.0", ""):
        answer = client.get("/healthz", headers={"host": host})
        assert is_refusal(answer, 400)
    for host in ("localhost", "localhost:80", "127.0.0.1", "[::1]:8080", "LOCALHOST"):
        assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_web_page_elsewhere_cannot_change_anything(guarded, headers):
    _, client, secrets = guarded
    own = {"authorization": f"Bearer {secrets['admin']}"}
    for method, path in (("POST", "/v1/demo"), ("DELETE", "/v1/streams/s"), ("PUT", "/v1/streams/s")):
        answer = client.request(method, path, headers=headers | own)
        assert is_refusal(answer, 403)
    same = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert client.delete("/v1/streams/none", headers=same | own).status_code == 404


def test_answers_have_headers_that_protect_and_none_that_open(guarded):
    _, client, _ = guarded
    for path in ("/", "/v1/streams", "/healthz", "/nothing"):
        answer = client.get(path, headers={"origin": "https://evil.example"})
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert client.get("/v1/streams").headers["cache-control"] == "no-store"
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.options("/v1/streams", headers=preflight)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_revoking_the_last_token_never_opens_a_service_that_others_can_reach(tmp_path):
    with in_process(tmp_path / "local") as (service, client):
        assert client.get("/v1/session").json()["scopes"] == list(SCOPES)
        service.tokens.create("last", "admin")
        assert client.get("/v1/streams").status_code == 401
        service.tokens.revoke("last")
        assert client.get("/v1/streams").status_code == 200
    with in_process(tmp_path / "far", host="0.0.0.0") as (service, client):
        secret = service.tokens.create("last", "admin")
        own = {"authorization": f"Bearer {secret}"}
        assert client.get("/v1/streams", headers=own).status_code == 200
        service.tokens.revoke("last")
        for headers in ({}, own):
            assert client.get("/v1/streams", headers=headers).status_code == 401


def test_tokens_are_created_listed_and_revoked_on_the_command_line(tmp_path):
    data = f"--data-dir={tmp_path / 'data'}"
    created = cometad("token", "create", "gateway-3", "--scope", "write", data)
    secret = created.stdout.strip()
    assert created.exit_code == 0
    assert re.fullmatch(r"cmt_[A-Za-z0-9_-]{40,}", secret)
    assert secret not in created.stderr
    listed = cometad("token", "list", data)
    assert listed.stdout.split("\t")[:2] == ["gateway-3", "write"]
    for file in (tmp_path / "data").iterdir():
        assert secret.encode() not in file.read_bytes()
    connection = sqlite3.connect(tmp_path / "data" / "cometad.sqlite")
    assert secret not in "\n".join(connection.iterdump())
    connection.close()
    again = cometad("token", "create", "gateway-3", data)
    assert (again.exit_code, again.stdout) == (2, "")
    assert is_a_sentence(again.stderr.strip().removeprefix("cometad: "))
    with Server(tmp_path, "--host=0.0.0.0", token=secret) as server:
        assert server.client.get("/v1/session").json()["scopes"] == ["read", "write"]
        assert server.client.post("/v1/demo", headers={"authorization": "Bearer no"}).status_code == 401
        assert server.client.delete("/v1/streams/none").status_code == 403
        assert cometad("token", "revoke", "gateway-3", data).exit_code == 0
        until(lambda: server.client.get("/v1/session").status_code == 401, 10)
        assert secret not in server.logs.read_text()
    assert cometad("token", "list", data).stdout == ""
