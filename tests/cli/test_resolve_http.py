"""What an operator decides about an HTTP request can be replayed, or is refused when it is decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Command
from umavez import Happened, NotStorable, Once
from umavez.http import ANONYMOUS, Route, answer_with
from umavez.http.wsgi import Idempotency

DECISION = ("--by", "ana", "--reason", "seen in the warehouse")


class Shop:
    """A service on a file whose only endpoint breaks off: whether it ordered something, nobody knows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.once = Once(url, scope="loja")
        routes = [Route("POST", "/orders", unknown="hold")]
        app = Idempotency(self._broken, once=self.once, principal=ANONYMOUS, routes=routes)
        transport = httpx.WSGITransport(app)  # type: ignore[arg-type]  # a WSGI app
        self.client = httpx.Client(transport=transport, base_url="http://loja")

    def _broken(self, environ: Any, start_response: Any) -> Any:
        raise ConnectionResetError

    def post(self) -> httpx.Response:
        return self.client.post("/orders", headers={"Idempotency-Key": "k-1"}, json={"item": 1})

    def where(self) -> tuple[str, ...]:
        (record,) = self.once.find(every_scope=True)
        return (record.key.scope, record.key.operation, record.key.value, "--store", self.url, *DECISION)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(f"sqlite:///{tmp_path}/loja.db")
    with suppress(ConnectionResetError):
        made.post()
    assert made.post().status_code == 409
    yield made
    made.client.close()
    made.once.close()


def test_a_response_that_was_decided_on_is_what_every_repeat_gets(command: Command, shop: Shop) -> None:
    words = ("--status", "201", "--body", '{"id": 7}', "--header", "Location: /orders/7")
    command("records", "resolve", *shop.where(), *words)

    for _ in range(2):
        again = shop.post()
        assert (again.status_code, again.json(), again.headers["location"]) == (201, {"id": 7}, "/orders/7")
        assert again.headers["content-type"] == "application/json"
        assert again.headers["idempotent-replayed"] == "true"


def test_the_stored_form_of_a_response_is_accepted_and_a_body_may_come_from_elsewhere(
    command: Command, shop: Shop
) -> None:
    command("records", "resolve", *shop.where(), "--happened", json.dumps(answer_with(202, {"id": 8})))
    assert (shop.post().status_code, shop.post().json()) == (202, {"id": 8})
    command("records", "resolve", *shop.where(), "--override", "--status", "200", "--body", "-", stdin="so be it")
    assert (shop.post().text, shop.post().headers["content-type"]) == ("so be it", "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--happened", '{"id": 7}'), "say it with --status 201"),
        (("--happened", "[1, 201, null, 7, 0]"), "say it with --status 201"),
        (("--status", "99"), "from 200 to 599"),
        (("--status", "201", "--header", "Set-Cookie: a=b"), "never replayed"),
        (("--status", "201", "--header", "no header"), "is no header"),
        (("--status", "201", "--header", "x: a\nset-cookie: b"), "is no header"),
        (("--status", "201", "--body", "x" * 1_000_001), "cannot be kept"),
        (("--body", "{}", "--not-happened"), "pass its --status too"),
        (("--status", "201", "--not-happened"), "Pass either"),
    ],
)
def test_what_could_not_be_replayed_is_refused_when_it_is_decided(
    command: Command, shop: Shop, words: tuple[str, ...], sentence: str
) -> None:
    answer = command("records", "resolve", *shop.where(), *words, code=2)

    assert sentence in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert shop.post().status_code == 409, "it is as unknown as before"


def test_a_status_belongs_to_a_request(command: Command, sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        once.migrate()
    words = ("records", "resolve", "loja", "charge", "1", "--status", "200", "--store", sqlite_url)
    assert "is no HTTP request" in command(*words, *DECISION, code=2).stderr


def test_the_engine_refuses_the_same(shop: Shop) -> None:
    (record,) = shop.once.find(every_scope=True)
    for value in (
        {"id": 7},
        [1, "201", "", "", 0],
        [1, 201, "x", "", 0],
        [1, 201, "", "\ud800", 0],
        [1, 201, "", "=", 1],
    ):
        with pytest.raises(NotStorable):
            shop.once.resolve(
                record.key.operation, record.key.value, Happened(value), by="a", reason="b", scope=record.key.scope
            )
    assert shop.post().status_code == 409
