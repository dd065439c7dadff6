"""Bounds: a database that is locked, silent or without its tables is an answer in time, never a server that hangs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

import httpx
import psycopg
import pytest

from tests.servers import Private
from tests.umavez_systems.conftest import emptied
from umavez import StoreError, StoreUncertain
from umavez_systems.database import open_database
from umavez_systems.settings import Settings

BOUND = 1.0
SLACK = 3.0
"""Seconds that a busy machine may add."""
CLIENTE = {"nome": "a", "email": "a@b"}


def bounded(database: str, **more: Any) -> Settings:
    return Settings(
        database=database, threads=4, waiting=200, wait_seconds=BOUND, database_timeout_seconds=BOUND, **more
    )


@contextmanager
def locked(database: str, table: str = "clientes") -> Iterator[None]:
    """Somebody else holds the table (PostgreSQL) or the file (SQLite)."""
    if database.startswith("sqlite"):
        holder: Any = sqlite3.connect(database.partition(":///")[2], isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN IMMEDIATE")
    else:
        holder = psycopg.connect(database)
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    try:
        yield
    finally:
        holder.rollback()
        holder.close()


class Probe:
    """Asks one path again and again, and keeps the longest time that it took."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self.longest = 0.0
        self.statuses: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(client, path))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self, client: httpx.Client, path: str) -> None:
        while not self._stop.wait(0.02):
            began = time.monotonic()
            self.statuses.add(client.get(path).status_code)
            self.longest = max(self.longest, time.monotonic() - began)


class Standstill(Probe):
    """The longest time for which this process was not let run: what no server in it can be blamed for."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sleep)

    def _sleep(self) -> None:
        while True:
            began = time.monotonic()
            if self._stop.wait(0.02):
                return
            self.longest = max(self.longest, time.monotonic() - began - 0.02)


async def crowded(address: str, number: int) -> list[tuple[httpx.Response, float]]:
    """What `number` callers at once are told, and the last a neighbour of another system, each with its seconds.

    As tasks of one thread: a hundred threads of this process would keep the server in it from its own work.
    """
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as crowd:

        async def timed(call: Awaitable[httpx.Response]) -> tuple[httpx.Response, float]:
            began = time.monotonic()
            return await call, time.monotonic() - began

        asked = [
            crowd.post(
                "/api/v1/clientes",
                json={"nome": "a", "email": f"{one}@b"},
                headers={"Idempotency-Key": f"k{one % 50}"},
            )
            for one in range(number)
        ]
        return await asyncio.gather(*map(timed, [*asked, crowd.get("/api/governance/drivers")]))


def timed(call: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def test_a_hundred_requests_at_a_locked_table_are_answered_in_time(database: str, serving: Any) -> None:
    with serving(bounded(database)) as client:
        with (
            locked(database),
            Standstill() as standstill,
            Probe(client, "/health") as health,
            Probe(client, "/ready") as ready,
        ):
            *answers, (neighbour, neighbour_took) = asyncio.run(crowded(str(client.base_url), 100))

        assert {answer.status_code for answer, _ in answers} == {503}
        assert {answer.headers["content-type"] for answer, _ in answers} == {"application/problem+json"}
        assert all(answer.headers["retry-after"] == "1" and answer.json()["retryable"] for answer, _ in answers)
        assert {answer.json()["type"].rpartition("/")[2] for answer, _ in answers} == {"indisponivel", "sobrecarga"}
        assert max(took for _, took in answers) < 2 * BOUND + SLACK + standstill.longest
        assert neighbour_took < 2 * BOUND + SLACK + standstill.longest
        assert neighbour.status_code == 200, "a system that is not locked has threads of its own"
        assert health.statuses == {200}
        assert health.longest < 1.0 + standstill.longest
        assert ready.longest < 1.0 + standstill.longest
        assert ready.statuses == {200} or standstill.longest > BOUND / 2

        assert client.post("/api/v1/clientes", json=CLIENTE).status_code == 201


NEIGHBOURS = (
    "/api/governance/drivers",
    "/api/governance/rides?passengerId=p",
    "/mailings",
    "/mailings/supressao",
    "/api/v1/processos",
    "/api/v1/fiscal/pendencias",
)


@pytest.mark.postgres
def test_one_system_that_is_locked_leaves_the_others_answering(postgres_url: str, serving: Any) -> None:
    """All of the shared threads stand before a locked table; every request of the other systems is answered."""
    emptied(postgres_url)
    over = threading.Event()
    with serving(bounded(postgres_url)) as client:
        wanted = {path: client.get(path).status_code for path in NEIGHBOURS}
        assert set(wanted.values()) == {200}, wanted
        limits = httpx.Limits(max_connections=60)
        with (
            httpx.Client(base_url=str(client.base_url), limits=limits, timeout=60) as crowd,
            ThreadPoolExecutor(40) as people,
            locked(postgres_url, "propostas"),
        ):

            def insist() -> set[int]:
                told = set()
                while not over.is_set():
                    told.add(crowd.get("/api/v1/propostas").status_code)
                return told

            insisting = [people.submit(insist) for _ in range(40)]
            try:
                turned_away(crowd)
                found = [(path, client.get(path).status_code) for _ in range(10) for path in NEIGHBOURS]
            finally:
                over.set()
            assert {status for one in insisting for status in one.result(60)} == {503}
    assert {status for _, status in found} == {200}, found


def turned_away(client: httpx.Client) -> None:
    """Return once the locked system has more to do than it may."""
    deadline = time.monotonic() + 30
    while client.get("/api/v1/propostas").json()["type"].rpartition("/")[2] != "sobrecarga":
        assert time.monotonic() < deadline


RIDE = {
    "passengerId": "p",
    "type": "comunidade",
    "passengerLat": -23.5505,
    "passengerLng": -46.6333,
    "origin": "a",
    "destination": "b",
    "price": 15.50,
}


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("table", "path", "body"),
    [
        ("propostas", "/api/v1/propostas", {"cliente_id": 1, "valor": 1}),
        ("idempotency_records", "/api/v1/propostas/1/submeter", {"versao": 1}),
        ("drivers", "/api/governance/ride/request", RIDE),
        ("idempotency_records", "/api/governance/ride/request", RIDE),
    ],
)
def test_rivals_for_one_key_give_way_in_time_too(
    postgres_url: str, serving: Any, table: str, path: str, body: dict[str, Any]
) -> None:
    emptied(postgres_url)
    with serving(bounded(postgres_url)) as client:
        client.post("/api/v1/clientes", json=CLIENTE)
        client.post("/api/v1/propostas", json={"cliente_id": 1, "valor": 1})

        def ask(_: int) -> tuple[httpx.Response, float]:
            return timed(lambda: client.post(path, json=body, headers={"Idempotency-Key": "one-key"}))

        with locked(postgres_url, table), ThreadPoolExecutor(12) as people:
            answers = [*people.map(ask, range(12))]

    # 202: a ride that found nobody in what this process knows of drivers needs none of their rows.
    assert {answer.status_code for answer, _ in answers} <= {202, 409, 503}, answers[0][0].text
    turned_away = [answer for answer, _ in answers if answer.status_code != 202]
    assert turned_away
    assert all("retry-after" in answer.headers and answer.json()["retryable"] for answer in turned_away)
    assert max(took for _, took in answers) < 3 * BOUND + SLACK


def test_a_missing_table_is_not_retryable_and_says_what_creates_it(
    database: str, serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(bounded(database)) as client:
        rename(database, "propostas", "propostas_hidden")
        try:
            with caplog.at_level(logging.WARNING, "umavez.systems"):
                refused = client.get("/api/v1/propostas/1", headers={"Idempotency-Key": "secret-key"})
        finally:
            rename(database, "propostas_hidden", "propostas")

    assert refused.status_code == 503
    assert refused.json()["retryable"] is False
    assert "umavez migrate" in refused.json()["detail"]
    assert "retry-after" not in refused.headers
    (line,) = [record for record in caplog.records if record.name == "umavez.systems"]
    assert line.levelno == logging.ERROR
    assert "/api/v1/propostas/{number}" in line.getMessage()
    assert "key sha256:" in line.getMessage()
    assert "secret-key" not in line.getMessage()


def rename(database: str, old: str, new: str) -> None:
    link: Any = (
        sqlite3.connect(database.partition(":///")[2])
        if database.startswith("sqlite")
        else psycopg.connect(database, autocommit=True)
    )
    link.execute(f"ALTER TABLE {old} RENAME TO {new}")
    link.commit()
    link.close()


def test_a_lock_that_is_not_let_go_is_logged_once_for_each_request(
    database: str, serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(bounded(database)) as client, locked(database), caplog.at_level(logging.WARNING, "umavez.systems"):
        refused = client.post("/api/v1/clientes", json=CLIENTE)

    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    (line,) = [record for record in caplog.records if record.name == "umavez.systems"]
    assert line.levelno == logging.WARNING
    assert "key sha256:none" in line.getMessage()


@pytest.mark.postgres
def test_a_server_that_falls_silent_holds_neither_a_statement_nor_readiness(
    private_server: Callable[[str], Private], serving: Any
) -> None:
    server = private_server("postgres")
    with serving(bounded(server.url)) as client:
        opened = open_database(server.url, 1, BOUND)
        with opened.statements() as connection:
            connection.row("SELECT 1 AS um")
        server.freeze()
        try:
            began = time.monotonic()
            with pytest.raises(StoreUncertain), opened.transaction() as connection:
                connection.row("SELECT 1 AS um")
            silent = time.monotonic() - began
            with pytest.raises(StoreError), opened.statements() as connection:
                connection.row("SELECT 1 AS um")
            again = time.monotonic() - began - silent
            ready, took = timed(lambda: client.get("/ready"))
            health, at_once = timed(lambda: client.get("/health"))
            refused, post = timed(lambda: client.post("/api/v1/clientes", json=CLIENTE))
        finally:
            server.thaw()
        opened.close()

    assert (ready.status_code, health.status_code, refused.status_code) == (503, 200, 503)
    assert silent < 2 * BOUND + SLACK
    assert again < 2 * BOUND + SLACK
    assert took < BOUND + SLACK
    assert at_once < 1.0
    assert post < 3 * BOUND + SLACK
