"""The schema of the API is complete, and generated requests never break the service."""

import re

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from serve_case import as_readings, in_process, plant, post, put, settled, upload

ROUTES = {
    ("put", "/v1/detectors/{name}"),
    ("post", "/v1/detectors/{name}/fit"),
    ("put", "/v1/streams/{name}"),
    ("post", "/v1/streams/{name}/readings"),
    ("post", "/v1/readings"),
    ("get", "/v1/streams"),
    ("get", "/v1/streams/{name}"),
    ("get", "/v1/streams/{name}/scores"),
    ("get", "/v1/streams/{name}/events"),
    ("get", "/v1/events/{event}"),
    ("post", "/v1/events/{event}/verdict"),
    ("get", "/v1/live"),
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
}
LEFT_OUT = {"/v1/live", "/v1/demo", "/v1/detectors/{name}/fit"}  # never end, or start work that takes long
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def service(tmp_path_factory, pump):
    """A service with a stream that has events, and a token."""
    with in_process(tmp_path_factory.mktemp("schema")) as (service, client):
        upload(client, "pump", pump[1])
        for name in ("pump-7", "A", "0"):
            put(client, name)
        post(client, "pump-7", as_readings(plant(200)))
        settled(client, "pump-7", 200)
        yield service, client


def test_the_schema_lists_every_route(service):
    _, client = service
    schema = client.get("/openapi.json").json()
    found = {(method, path) for path, methods in schema["paths"].items() for method in methods}
    assert found >= ROUTES
    assert schema["openapi"].startswith("3.")
    for method, path in found:
        operation = schema["paths"][path][method]
        assert operation.get("summary")
        assert operation["responses"]
        if path.startswith("/v1/"):
            assert {"401", "403", "422", "429"} <= set(operation["responses"]), (method, path)
    names = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', client.get("/openapi.json").text)
    assert set(names) <= set(schema["components"]["schemas"])


def operations(client):
    loaded = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    found = [result.ok() for result in loaded.get_all_operations()]
    return [operation for operation in found if operation.path not in LEFT_OUT]


@pytest.mark.parametrize("token", [None, "admin"])
def test_generated_requests_get_answers_as_the_schema_says(service, token):
    running, client = service
    if token is not None:
        secret = running.tokens.create("generated", token)
        headers = {"authorization": f"Bearer {secret}"}
    else:
        headers = {}
    known = st.sampled_from(["pump-7", "A", "0", "none"])
    asked = []
    for operation in operations(client):

        @seed(7)
        @settings(
            max_examples=12,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), name=known, real=st.booleans())
        def send(case, name, real):
            if real and "name" in case.path_parameters:
                case.path_parameters["name"] = name
            response = case.call(base_url=str(client.base_url), headers=headers, timeout=30)
            asked.append(response.status_code)
            case.validate_response(response, checks=CHECKS)

        send()
    assert len(asked) > 150
    assert max(asked) < 500
    assert 200 in asked
    if token is not None:
        running.tokens.revoke("generated")
        assert client.get("/readyz").status_code == 200


def test_without_a_token_nothing_can_be_written_once_there_is_one(service):
    running, client = service
    running.tokens.create("any", "read")
    before = client.get("/healthz").status_code
    written = []
    for operation in operations(client):
        if operation.method == "get":
            continue

        @seed(3)
        @settings(max_examples=5, deadline=None, database=None, phases=[Phase.generate])
        @given(case=operation.as_strategy())
        def send(case):
            response = case.call(base_url=str(client.base_url), timeout=30)
            written.append(response.status_code)

        send()
    running.tokens.revoke("any")
    assert before == 200
    assert set(written) <= {401, 422}
    assert 401 in written
