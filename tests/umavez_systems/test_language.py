"""Whatever goes wrong at whichever operation is told in Portuguese, as a problem document, and never as a 5xx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.umavez_systems.conftest import served
from umavez_systems.server import create_app
from umavez_systems.settings import Settings

ENGLISH = re.compile(
    r"\b(the|is|are|was|must|should|not|and|with|from|than|this|cannot|expected|unexpected|missing|required|found|field"
    r"|input|string|undefined|tag|unable|allowed|error|boundary not|greater|less)\b",
    re.IGNORECASE,
)
DOCUMENT = create_app(Settings(database="sqlite:///unused.db")).openapi()
OPERATIONS = [
    (method.upper(), path, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
NAMED = [f"{method} {path}" for method, path, _ in OPERATIONS]
BODIES = ("", "{", "[]", "null", "{}", '{"a": 1e999}', '{"a": "\\u0000"}', '{"a": 1, "a": 2}', "[" * 99)
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "", "²", [], {}, "x" * 3000)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("language")
    settings = Settings(
        database=f"sqlite:///{folder}/s.db", fiscal_dir=f"{folder}/fiscal", portal_url="http://127.0.0.1:1"
    )
    with served(settings) as made:
        yield made


def told(answer: httpx.Response) -> None:
    """Nothing is said where it went well; else a problem in Portuguese."""
    assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, answer.text)
    if answer.status_code < 400:
        return
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    for text in (said["title"], said["detail"]):
        assert not ENGLISH.search(text), text


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


def mistakes(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Requests that are wrong in one way each."""
    for key in ("", "a,b", "²".encode(), b'"', "x" * 400):
        yield {"headers": {"Idempotency-Key": key}}
    for parameter in operation.get("parameters", ()):
        if parameter.get("in") == "query":
            yield from ({"params": {parameter["name"]: text}} for text in ("", "²", "-1", "1e400", "nan", "x" * 3000))
    content = operation.get("requestBody", {}).get("content", {})
    for kind in (*content, "text/plain", "multipart/form-data", "multipart/form-data; boundary=b", "x"):
        yield {"content": "x", "headers": {"Content-Type": kind}}
    if "application/json" in content:
        yield from wrong_bodies(content["application/json"])


def wrong_bodies(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from ({"content": body, "headers": {"Content-Type": "application/json"}} for body in BODIES)
    right = described.get("example", {})
    for name in resolved(described["schema"]).get("properties", right):
        yield from ({"json": {**right, name: value}} for value in WRONG)


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=NAMED)
def test_every_mistake_is_told_in_portuguese(
    client: httpx.Client, method: str, path: str, operation: dict[str, Any]
) -> None:
    address = re.sub(r"\{[^}]+\}", "1", path)
    for mistake in mistakes(operation):
        told(client.request(method, address, **mistake))


def test_what_the_framework_says_is_told_in_portuguese(client: httpx.Client) -> None:
    for answer in (client.get("/nada"), client.delete("/health"), client.get("/api/v1/propostas/%00")):
        assert answer.status_code in (400, 404, 405)
        told(answer)


def test_mistakes_in_lists_templates_and_fences_are_told_in_portuguese(client: httpx.Client) -> None:
    for fields in ({"texto": "{{"}, {"texto": "{% nada %}"}, {"texto": "{{ x.y.z }}"}, {"remetente": "x"}):
        told(client.post("/mailings/previa", data=fields, files={"file": ("a.csv", b"email\na@b.com\n")}))
    for content in (b"", b"\xff\xfea\0", b'email\n"a\rb\nc', b"email\ra\rb\n", b"PK\x03\x04", b"x" * 200_000):
        told(client.post("/mailings/previa", data={"texto": "a"}, files={"file": ("a.csv", content)}))
    ring = [[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]
    fence = {"type": "Feature", "id": "c", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    answer = client.put("/api/governance/communities", json=fence)
    assert answer.status_code == 422
    told(answer)


def test_every_parameter_says_what_it_takes() -> None:
    """E: one whose kinds got lost allows everything on paper, and refuses it at the door."""
    said = {"type", "enum", "anyOf", "$ref", "const", "allOf"}
    silent = [
        (path, method, parameter["name"])
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", [])
        if "$ref" not in parameter and not said & set(parameter["schema"])
    ]
    assert not silent
