"""What a repeat is answered: as HTTP has it for the status, and an entity whole, whatever the request asked of it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from umavez import AsyncOnce, Once
from umavez.http import ANONYMOUS, asgi, wsgi


class Sent(NamedTuple):
    """A response as a client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes


Does = Callable[[str, str, dict[str, str]], Sent]
"""What the app answers to a method, a path and headers."""


def over_asgi(does: Does, headers: dict[str, str], **options: Any) -> list[Sent]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, named, body = does(scope["method"], scope["path"], asked)
        lines = [(name.encode(), value.encode()) for name, value in named.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    async def ask(shell: Any) -> Sent:
        parts: list[Any] = []
        lines = [(name.encode(), value.encode()) for name, value in {**headers, "idempotency-key": "k"}.items()]

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: Any) -> None:
            parts.append(message)

        await shell({"type": "http", "method": "POST", "path": "/o", "headers": lines}, receive, send)
        named = {name.decode(): value.decode() for name, value in parts[0]["headers"]}
        return Sent(parts[0]["status"], named, b"".join(part["body"] for part in parts[1:]))

    async def twice() -> list[Sent]:
        once = AsyncOnce("memory:", scope="api")
        shell = asgi.Idempotency(app, once=once, principal=ANONYMOUS, unknown="hold", **options)
        return [await ask(shell), await ask(shell)]

    return asyncio.run(twice())


def over_wsgi(does: Does, headers: dict[str, str], **options: Any) -> list[Sent]:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode()
        names = {name.removeprefix("HTTP_").lower().replace("_", "-"): str(environ[name]) for name in environ}
        status, named, body = does(environ["REQUEST_METHOD"], path, names)
        start_response(f"{status} Said", list(named.items()))
        return [body]

    with Once("memory:", scope="api") as once:
        shell = wsgi.Idempotency(app, once=once, principal=ANONYMOUS, unknown="hold", **options)

        def ask() -> Sent:
            begun: list[Any] = []
            named = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
            asked = {"REQUEST_METHOD": "POST", "PATH_INFO": "/o", "CONTENT_LENGTH": "2", "HTTP_IDEMPOTENCY_KEY": "k"}
            environ = {**asked, **named, "wsgi.input": io.BytesIO(b"{}")}
            body = b"".join(shell(environ, lambda line, lines: begun.extend((line, lines))))
            return Sent(int(begun[0][:3]), dict(begun[1]), body)

        return [ask(), ask()]


shells = pytest.mark.parametrize("shell", [over_asgi, over_wsgi], ids=lambda shell: shell.__name__)


@shells
def test_a_response_without_a_body_is_replayed_without_a_length(shell: Any) -> None:
    first, again = shell(lambda *_: Sent(204, {"etag": '"2"'}, b""), {})
    assert (first.status, again.status, again.body, again.headers["etag"]) == (204, 204, b"", '"2"')
    assert "content-length" not in again.headers


@shells
def test_a_refused_method_is_replayed_with_those_that_are_taken(shell: Any) -> None:
    first, again = shell(lambda *_: Sent(405, {"allow": "GET, PUT"}, b"no"), {})
    assert (first.headers["allow"], again.headers["allow"]) == ("GET, PUT", "GET, PUT")


def entity(location: str, status: int = 201) -> tuple[Does, list[str]]:
    """An app that makes an entity, and tells it by the conditions of whoever asks; and the paths that were asked."""
    asked: list[str] = []

    def does(method: str, path: str, headers: dict[str, str]) -> Sent:
        if method == "POST":
            return Sent(status, {"location": location}, b"" if status == 204 else b"made")
        asked.append(path)
        if {"if-match", "if-none-match", "if-unmodified-since", "if-modified-since"} & headers.keys():
            return Sent(412, {}, b"")
        return Sent(206, {}, b"n") if "range" in headers else Sent(200, {}, b"now")

    return does, asked


@shells
@pytest.mark.parametrize(
    ("location", "path"), [("/o/caf%C3%A9", "/o/café"), ("/o/a%20b", "/o/a b"), ("/o/1#paid", "/o/1"), ("/o/1", "/o/1")]
)
def test_an_entity_is_asked_for_by_the_path_that_its_location_names(shell: Any, location: str, path: str) -> None:
    does, asked = entity(location)
    _, again = shell(does, {}, replay="entity")
    assert (again.status, again.body, again.headers["location"], asked) == (201, b"now", location, [path])


@shells
@pytest.mark.parametrize("name", ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range"])
def test_the_conditions_of_a_request_do_not_hold_for_the_entity(shell: Any, name: str) -> None:
    does, _ = entity("/o/1")
    _, again = shell(does, {name: '"1"'}, replay="entity")
    assert (again.status, again.body) == (201, b"now")


@shells
def test_an_entity_behind_a_status_without_a_body_is_not_shown(shell: Any) -> None:
    does, _ = entity("/o/1", 204)
    _, again = shell(does, {}, replay="entity")
    assert (again.status, again.body, "content-length" in again.headers) == (204, b"", False)
