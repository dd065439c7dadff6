"""The short way past psycopg's cursor: taken when it can be, left when it cannot, and never noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from umavez import AsyncOnce, Once, StoreUnavailable
from umavez.stores.postgres._async import joined as async_joined
from umavez.stores.postgres._sync import joined as sync_joined

pytestmark = pytest.mark.postgres


@pytest.fixture
def scope(request: pytest.FixtureRequest) -> str:
    return f"passage {request.node.name}"


@pytest.fixture
def once(postgres_url: str, scope: str) -> Iterator[Once]:
    with Once(postgres_url, scope=scope) as made:
        made.migrate()
        yield made


@pytest.fixture
def cursors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each cursor that was made, since the last look."""
    made: list[str] = []

    def counting(kind: Any) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            made.append(kind.__name__)
            return kind(*args, **kwargs)

        return make

    monkeypatch.setattr(sync_joined, "RawCursor", counting(sync_joined.RawCursor))
    monkeypatch.setattr(async_joined, "AsyncRawCursor", counting(async_joined.AsyncRawCursor))
    return made


def spent(cursors: list[str]) -> int:
    number = len(cursors)
    cursors.clear()
    return number


def join(once: Once, connection: Any, key: str) -> Any:
    with once.joined(connection, "order", key=key) as attempt:
        if not attempt.replayed:
            attempt.succeed({"key": key, "mark": "ção"})
    return attempt.outcome


def test_only_the_first_use_of_a_statement_needs_a_cursor(postgres_url: str, once: Once, cursors: list[str]) -> None:
    with psycopg.connect(postgres_url) as connection:
        for key in ("a", "b", "c", "a"):
            assert join(once, connection, key) == {"key": key, "mark": "ção"}
            connection.commit()

    assert spent(cursors) == 2  # the claim and the settling
    assert [(record.key.value, record.status) for record in once.find()] == [(key, "SUCCESS") for key in "abc"]


def test_what_was_not_committed_does_not_stand(postgres_url: str, once: Once, cursors: list[str]) -> None:
    with psycopg.connect(postgres_url) as connection:
        for key in ("a", "b", "c"):
            join(once, connection, key)
            connection.rollback()
        assert once.find() == []

        # A rollback makes psycopg forget what it has prepared; nothing here may remember it.
        assert spent(cursors) == 6
        assert join(once, connection, "a")["key"] == "a"


@pytest.mark.parametrize("forgetting", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_statements_that_the_caller_has_thrown_away_are_prepared_again(
    postgres_url: str, once: Once, cursors: list[str], forgetting: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for key in ("a", "b"):
            with connection.transaction():
                join(once, connection, key)
            connection.execute(forgetting)

    assert spent(cursors) == 4
    assert len(once.find()) == 2


def test_a_transaction_of_the_callers_own_kind_is_begun_by_psycopg(
    postgres_url: str, once: Once, cursors: list[str]
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        for key in ("a", "b"):
            join(once, connection, key)
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
            connection.commit()

    assert spent(cursors) == 3  # the second claim too, because it begins the transaction


def test_another_encoding_and_connections_that_prepare_nothing_go_by_cursor(
    postgres_url: str, once: Once, cursors: list[str]
) -> None:
    with psycopg.connect(postgres_url, client_encoding="latin1") as connection:
        for key in ("a", "b"):
            assert join(once, connection, key)["mark"] == "ção"
            connection.commit()
        assert spent(cursors) == 4
    with psycopg.connect(postgres_url, prepare_threshold=None) as connection:
        for key in ("c", "d"):
            assert join(once, connection, key)["mark"] == "ção"
            connection.commit()
        assert spent(cursors) == 4


def test_a_pipeline_of_the_callers_is_not_disturbed(postgres_url: str, once: Once, cursors: list[str]) -> None:
    with psycopg.connect(postgres_url) as connection:
        join(once, connection, "a")
        connection.commit()
        with connection.pipeline():
            asked = connection.execute("SELECT 7")
            assert join(once, connection, "b")["key"] == "b"
            assert asked.fetchone() == (7,)
        connection.commit()

    assert spent(cursors) == 4
    assert len(once.find()) == 2


def test_a_failed_statement_is_told_as_by_a_cursor(postgres_url: str, once: Once) -> None:
    with psycopg.connect(postgres_url) as connection:
        join(once, connection, "a")
        connection.commit()
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere")
        with pytest.raises(StoreUnavailable, match="failed already; roll back"):
            join(once, connection, "b")
        connection.rollback()


def test_tasks_take_the_short_way_too_and_survive_a_cancellation(
    postgres_url: str, scope: str, cursors: list[str]
) -> None:
    async def talk() -> list[Any]:
        async with AsyncOnce(postgres_url, scope=scope) as once:
            await once.migrate()
            async with await psycopg.AsyncConnection.connect(postgres_url) as connection:

                async def join(key: str) -> Any:
                    async with once.joined(connection, "order", key=key) as attempt:
                        if not attempt.replayed:
                            await attempt.succeed(key)
                    return attempt.outcome

                found = []
                for key in ("a", "b"):
                    found.append(await join(key))
                    await connection.commit()
                assert spent(cursors) == 2
                for pause in (0.0, 0.0005, 0.001, 0.002):
                    task = asyncio.create_task(join("c"))
                    await asyncio.sleep(pause)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    await connection.rollback()
                found.append(await join("c"))
                await connection.commit()
            return [*found, *[record.key.value for record in await once.find()]]

    assert asyncio.run(talk()) == ["a", "b", "c", "a", "b", "c"]
