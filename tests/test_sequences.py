"""Numbers on every database, sync and awaited; the arithmetic of ranges; blocks that are reserved ahead."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messaging.places import Place, place_of
from umavez.errors import ConfigurationError, InvalidKey
from umavez.sequences import AsyncUniqueNumbers, NumbersExhausted, Range, Sequences, UniqueNumbers, taking
from umavez.sequences.ranges import stretch
from umavez.sql.connection import async_close
from umavez.testing.laws.instruments.sequences import ALL, RACES, AsyncSequenceBench, SequenceBench


def name(law: object) -> str:
    return str(getattr(law, "__name__", law))


@pytest.fixture(params=("sqlite", "postgres", "mariadb"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        place = place_of(f"sqlite:///{tmp_path}/numbers.db")
    else:
        place = place_of(request.getfixturevalue(f"{request.param}_url"))
    with closing(place.connect()) as connection:
        Sequences().migrate(connection)
        connection.commit()
    return place


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("law", [*ALL, *RACES], ids=name)
def test_numbers_obey(law, place: Place) -> None:
    law(SequenceBench(place.connect))


@pytest.mark.parametrize("law", ALL, ids=name)
def test_awaited_numbers_obey(law, place: Place, runner: asyncio.Runner) -> None:
    law(AsyncSequenceBench(place.connect_async, runner))


RANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10)).map(lambda p: Range(p[0], p[0] + p[1])), max_size=5)


@given(at=st.integers(1, 45), open_=RANGES, blocked=RANGES)
def test_a_stretch_is_what_counting_one_by_one_would_find(at: int, open_: list[Range], blocked: list[Range]) -> None:
    allowed = {n for piece in open_ for n in range(piece.first, piece.last + 1)}
    allowed -= {n for piece in blocked for n in range(piece.first, piece.last + 1)}
    following = min((n for n in allowed if n >= at), default=None)
    found = stretch(at, open_, blocked)
    assert (None if found is None else found.first) == following
    if found is not None:
        assert set(range(found.first, found.last + 1)) <= allowed


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_a_connection_that_commits_at_once_is_refused(place: Place) -> None:
    """On SQLite a transaction is begun instead."""
    with closing(place.connect()) as connection:
        if place.kind == "postgresql":
            connection.autocommit = True
        else:
            connection.autocommit(True)
        with pytest.raises(ConfigurationError, match="autocommit"):
            Sequences().next_number(connection, "loja", "autocommit")


def test_an_sqlite_connection_without_transactions_gets_one(tmp_path: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "n.db", isolation_level=None)) as connection:
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "s")
        connection.commit()
        assert Sequences().next_number(connection, "loja", "s") == 1
        connection.rollback()
        assert Sequences().next_number(connection, "loja", "s") == 1


@pytest.mark.parametrize("wrong", ["", "x" * 256])
def test_a_name_or_key_that_does_not_fit_is_refused(wrong: str, tmp_path: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "n.db")) as connection:
        for names in ((wrong, "s", "k"), ("o", wrong, "k"), ("o", "s", wrong)):
            with pytest.raises(InvalidKey):
                Sequences().next_number(connection, names[0], names[1], key=names[2])


def define(place: Place, series: str, *ranges: Range) -> None:
    with closing(place.connect()) as connection:
        Sequences().define(connection, "loja", series, ranges=ranges or (Range(1),))
        connection.commit()


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
@pytest.mark.parametrize("key", ["key", None])
def test_series_do_not_wait_for_each_others_transactions(place: Place, key: str | None) -> None:
    names = [f"side-{key}-{number:02}" for number in range(10)]
    for name in names:
        define(place, name)
    with ExitStack() as stack:
        for name in sorted(names, key=lambda name: name[::-1]):  # neither rising nor falling: into every gap
            connection = stack.enter_context(closing(place.connect()))
            _be_impatient(connection)
            assert Sequences().next_number(connection, "loja", name, key=key) == 1


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_kept_unique_numbers_do_not_wait_for_each_others_transactions(place: Place) -> None:
    define(place, "side")
    source = UniqueNumbers(place.connect, "loja", "side")
    with ExitStack() as stack:
        for key in ("m", "a", "z", "l", "n"):
            connection = stack.enter_context(closing(place.connect()))
            _be_impatient(connection)
            source.number_for(connection, key)


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_the_last_number_is_found_by_its_key_although_it_was_kept_after_the_snapshot(place: Place) -> None:
    define(place, "last", Range(1, 1))
    with closing(place.connect()) as late, closing(place.connect()) as early:
        late.cursor().execute("SELECT 1 FROM umavez_numbers")  # on MariaDB this is when the snapshot is made
        assert Sequences().next_number(early, "loja", "last", key="same") == 1
        early.commit()
        assert Sequences().next_number(late, "loja", "last", key="same") == 1
        with pytest.raises(NumbersExhausted):
            Sequences().next_number(late, "loja", "last", key="another")


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_reason_is_kept_as_it_was_given_or_not_at_all(place: Place) -> None:
    define(place, "reasons")
    import pymysql

    with closing(pymysql.connect(**place._mariadb(), charset="utf8mb3", sql_mode="")) as connection:
        Sequences().next_number(connection, "loja", "reasons")
        with pytest.raises(pymysql.MySQLError):
            Sequences().void(connection, "loja", "reasons", 1, by="ana", reason="não enviada 😀")
        with pytest.raises(pymysql.MySQLError):
            Sequences().void(connection, "loja", "reasons", 1, by="a" * 256, reason="não enviada")
        with pytest.raises(pymysql.MySQLError):
            Sequences().block_range(connection, "loja", "reasons", 5, 9, reason="impressos 😀")
        assert Sequences().void(connection, "loja", "reasons", 1, by="ana", reason="não enviada")
        connection.commit()


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_series_that_a_rival_has_just_defined_gets_no_second_range(place: Place) -> None:
    """SQLAlchemy lets MariaDB count rows that stood as it does those that were written."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(place.url.replace("mariadb://", "mysql+pymysql://"))
    with engine.begin() as late:
        late.exec_driver_sql("SELECT 1 FROM umavez_sequences").all()  # this is when the snapshot is made
        define(place, "counted", Range(1, 2))
        assert not Sequences().define(late, "loja", "counted", ranges=[Range(10, 19)])
    engine.dispose()
    with closing(place.connect()) as connection:
        assert [Sequences().next_number(connection, "loja", "counted") for _ in range(2)] == [1, 2]
        with pytest.raises(NumbersExhausted):
            Sequences().next_number(connection, "loja", "counted")


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_a_number_whose_counter_was_set_back_is_not_given_to_a_second_key(place: Place) -> None:
    define(place, "back")
    with closing(place.connect()) as connection:
        assert Sequences().next_number(connection, "loja", "back", key="first") == 1
        connection.cursor().execute("UPDATE umavez_sequences SET next_number = 1 WHERE series = 'back'")
        connection.commit()
        with pytest.raises(Exception, match=r"given before|duplicate key"):
            Sequences().next_number(connection, "loja", "back", key="second")
        connection.rollback()
        with pytest.raises(Exception, match=r"given before|duplicate key"):
            UniqueNumbers(place.connect, "loja", "back").number_for(connection, "third")


def _be_impatient(connection: Any) -> None:
    """Whoever would have to wait for a lock is told at once."""
    with connection.cursor() as cursor:
        postgres = type(connection).__module__.startswith("psycopg")
        cursor.execute("SET lock_timeout = '200ms'" if postgres else "SET SESSION innodb_lock_wait_timeout = 1")


def test_unique_numbers_come_from_blocks_and_never_twice(place: Place) -> None:
    define(place, "unique")
    one = UniqueNumbers(place.connect, "loja", "unique", block=10)
    two = UniqueNumbers(place.connect, "loja", "unique", block=10)
    numbers = [source.next_number() for _ in range(25) for source in (one, two)]
    assert len(set(numbers)) == 50
    assert max(numbers) <= 60


def test_unique_numbers_end_with_their_range(place: Place) -> None:
    define(place, "short", Range(1, 3))
    source = UniqueNumbers(place.connect, "loja", "short", block=10)
    assert [source.next_number() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(NumbersExhausted):
        source.next_number()


def test_a_unique_number_is_kept_with_its_key(place: Place) -> None:
    define(place, "kept")
    source = UniqueNumbers(place.connect, "loja", "kept")
    with closing(place.connect()) as connection:
        first = source.number_for(connection, "order-1")
        connection.commit()
        assert source.number_for(connection, "order-1") == first
        assert source.number_for(connection, "order-2") != first
        connection.commit()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_takes_no_number_of_its_parents_block(tmp_path: Path, runner: asyncio.Runner) -> None:
    place = place_of(f"sqlite:///{tmp_path}/numbers.db")
    with closing(place.connect()) as connection:
        Sequences().migrate(connection)
        connection.commit()
    define(place, "forked")
    source = UniqueNumbers(place.connect, "loja", "forked", block=10)
    awaited = AsyncUniqueNumbers(place.connect_async, "loja", "forked", block=10)
    assert (source.next_number(), runner.run(awaited.next_number())) == (1, 11)

    def work() -> bytes:
        # Another thread was inside: its lock is held in the child for ever.
        return bytes([source.next_number(), asyncio.run(awaited.next_number())])

    with source._lock:
        told = _forked(work)
    assert told == bytes([21, 31])
    assert (source.next_number(), runner.run(awaited.next_number())) == (2, 12)


def _forked(work: Callable[[], bytes]) -> bytes:
    """What a forked child says; nothing where it has not in 20 seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_a_signal_handler_gets_a_unique_number_amid_another(tmp_path: Path) -> None:
    place = place_of(f"sqlite:///{tmp_path}/numbers.db")
    with closing(place.connect()) as connection:
        Sequences().migrate(connection)
        connection.commit()
    define(place, "amid")
    got: list[int] = []

    def connect() -> Any:
        # As if a signal came here, amid the reservation of a block.
        if not got:
            got.append(0)
            got.append(source.next_number())
        return place.connect()

    source = UniqueNumbers(connect, "loja", "amid", block=10)
    assert source.next_number() != got[1]
    assert len({source.next_number() for _ in range(30)} | {got[1]}) == 31


def test_awaited_unique_numbers_come_from_blocks(place: Place, runner: asyncio.Runner) -> None:
    define(place, "awaited")

    async def work() -> tuple[list[int], int, int]:
        source = AsyncUniqueNumbers(place.connect_async, "loja", "awaited", block=10)
        numbers = await asyncio.gather(*(source.next_number() for _ in range(25)))
        connection = await place.connect_async()
        kept = [await source.number_for(connection, "k") for _ in range(2)]
        await connection.rollback()
        await async_close(connection)
        return numbers, *kept

    numbers, first, second = runner.run(work())
    assert sorted(numbers) == list(range(1, 26))
    assert first == second > 25


def test_awaited_unique_numbers_go_on_in_the_next_loop(tmp_path: Path) -> None:
    place = place_of(f"sqlite:///{tmp_path}/numbers.db")
    with closing(place.connect()) as connection:
        Sequences().migrate(connection)
        connection.commit()
    define(place, "loops")
    source = AsyncUniqueNumbers(place.connect_async, "loja", "loops", block=10)

    async def work() -> list[int]:
        return await asyncio.gather(*(source.next_number() for _ in range(15)))

    assert sorted(number for _ in range(3) for number in asyncio.run(work())) == list(range(1, 46))


@pytest.mark.postgres
def test_a_number_taken_inside_a_larger_statement_is_the_series_next(postgres_url: str) -> None:
    place = place_of(postgres_url)
    taken = f"WITH given AS ({taking('%s')}) SELECT number FROM given".replace("?", "%s")

    def take(connection: Any, *, wanted: bool) -> Any:
        return connection.execute(taken, ("loja", "inside", wanted)).fetchall()

    with closing(place.connect()) as connection:
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "inside", ranges=[Range(1, 3), Range(7)])
        assert Sequences().next_number(connection, "loja", "inside") == 1
        connection.commit()
        assert take(connection, wanted=True) == [(2,)]
        assert take(connection, wanted=False) == []
        connection.rollback()
        assert [take(connection, wanted=True) for _ in range(3)] == [[(2,)], [(3,)], []], "the stretch is used up"
        assert Sequences().next_number(connection, "loja", "inside") == 7
        assert take(connection, wanted=True) == [(8,)]
        connection.rollback()
