"""Past psycopg's cursor, on a connection of the caller's: for statements that psycopg has prepared there already.

A cursor spends as much time on turning nineteen values into parameters as the server does on the statement. It stays
the way for whatever is not plain: a statement not prepared yet (or no longer), a pipeline, another encoding than UTF-8,
a transaction that has to begin in a way of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from psycopg import BaseConnection
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.generators import execute
from psycopg.pq import PipelineStatus, TransactionStatus

from umavez.stores.postgres.values import BINARY, Row, checked, encoded, loaded

_USABLE = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


def prepared(connection: BaseConnection[Any], text: str, many: int) -> bytes | None:
    """The name under which psycopg has prepared `text` for `many` values without types; None: take the cursor."""
    pgconn = connection.pgconn
    if pgconn.transaction_status not in _USABLE or pgconn.pipeline_status != PipelineStatus.OFF:
        return None
    if pgconn.transaction_status == TransactionStatus.IDLE and not _begins_plainly(connection):
        return None
    if pgconn.parameter_status(b"client_encoding") != b"UTF8":
        return None
    # Its own list, so that what it forgets or has to prepare again after a rollback is forgotten here too.
    names: dict[Any, bytes] = getattr(getattr(connection, "_prepared", None), "_names", {})
    return names.get(_known_as(text, many))


def _begins_plainly(connection: BaseConnection[Any]) -> bool:
    return connection.isolation_level is None and connection.read_only is None and connection.deferrable is None


@cache
def _known_as(text: str, many: int) -> tuple[bytes, tuple[int, ...]]:
    return text.encode(), (0,) * many


def passing(connection: BaseConnection[Any], name: bytes, values: tuple[Any, ...]) -> PQGen[list[Row]]:
    """Execute the prepared statement, in a transaction that is begun if none is; for the connection's `wait`."""
    pgconn = connection.pgconn
    if pgconn.transaction_status == TransactionStatus.IDLE:
        pgconn.send_query(b"BEGIN")
        checked((yield from execute(pgconn)))
    pgconn.send_query_prepared(name, encoded(values), BINARY[: len(values)], 1)
    return loaded(Transformer(connection), (yield from execute(pgconn)))
