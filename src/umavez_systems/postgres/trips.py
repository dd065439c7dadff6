"""Trips: statements that psycopg has prepared, sent past its cursor; BEGIN goes along with the first of a transaction.

A cursor spends more of the processor on a statement of a few values than the server does, and BEGIN alone costs a round
trip. The cursor stays the way for whatever is not plain: a statement not prepared yet (or no longer), values of other
types, an encoding other than UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg import capabilities
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import dict_row
from psycopg.waiting import Ready, Wait

from umavez_systems.postgres.patience import PatientConnection

Row = dict[str, Any]
_Value = tuple[int, bytes | None, int]
"""A value's type, its bytes and their format."""
_Sent = tuple[tuple[int, ...], list[bytes | None], list[int]]
_TEXT, _BINARY = 0, 1
_SMALL, _WHOLE, _LARGE = Struct(">h").pack, Struct(">i").pack, Struct(">q").pack
_TOGETHER = capabilities.has_pipeline()


def rows_of(raw: PatientConnection, text: bytes, values: Sequence[Any], *, begin: bool = False) -> list[Row]:
    """Every row of a statement; with `begin` a transaction begins with it. Raises psycopg's errors."""
    sent = _sent(values) if raw.plain else None
    # psycopg's own list, so that what it forgets after a rollback or a change of tables is forgotten here too.
    known = raw.known_statements()
    name = None if sent is None else known.get(key := (text, sent[0]))
    if sent is None or name is None:
        if begin:
            command(raw, b"BEGIN")
        return _by_cursor(raw, text, values)
    known.move_to_end(key)
    try:
        with raw.lock:
            return _loaded(raw, name, raw.wait(_exchange(raw.pgconn, name, sent[1], sent[2], begin=begin)))
    except psycopg.Error:
        known.pop(key, None)  # it may be out of date (a table was changed): the next one is prepared anew
        raise
    finally:
        if raw.pgconn.pipeline_status != PipelineStatus.OFF:
            raw.close()  # left halfway: what still comes would be taken for the next answer


def command(raw: PatientConnection, text: bytes) -> None:
    """BEGIN or COMMIT. Raises psycopg's errors."""
    with raw.lock:
        raw.pgconn.send_query(text)
        _refuse_failed(raw.wait(execute(raw.pgconn)))


def _by_cursor(raw: PatientConnection, text: bytes, values: Sequence[Any]) -> list[Row]:
    # Raw: psycopg reads a text of more than fifty values anew each time, which costs as much as sending it.
    cursor = psycopg.RawCursor(raw, row_factory=dict_row)
    cursor.execute(text, values)
    # Not by `description`: that makes an object for every column, which costs more than reading a row.
    return [] if cursor.pgresult is None or not cursor.pgresult.nfields else cursor.fetchall()


def _sent(values: Sequence[Any]) -> _Sent | None:
    """Values as psycopg sends them; None where one of them is not plain."""
    if not values:
        return (), [], []
    try:
        written = [_NOTHING if value is None else _KINDS[type(value)](value) for value in values]
    except KeyError:
        return None
    types, parts, forms = zip(*written, strict=True)
    return types, list(parts), list(forms)


def _text(value: str) -> _Value:
    if "\0" in value:
        raise KeyError(value)  # the server takes none; the cursor says so
    return 0, value.encode(), _TEXT


def _integer(value: int) -> _Value:
    if -0x8000 <= value < 0x8000:
        return 21, _SMALL(value), _BINARY
    if -0x80000000 <= value < 0x80000000:
        return 23, _WHOLE(value), _BINARY
    if -(1 << 63) <= value < 1 << 63:
        return 20, _LARGE(value), _BINARY
    raise KeyError(value)


_NOTHING: _Value = (0, None, _TEXT)
_KINDS: dict[type, Callable[[Any], _Value]] = {
    str: _text,
    int: _integer,
    bytes: lambda value: (17, value, _BINARY),
    bool: lambda value: (16, b"\1" if value else b"\0", _BINARY),
}


def _exchange(
    pgconn: PGconn, name: bytes, values: list[bytes | None], formats: list[int], *, begin: bool
) -> PQGen[list[PGresult]]:
    if not begin:
        pgconn.send_query_prepared(name, values, formats)
        results: list[PGresult] = yield from execute(pgconn)
        return results
    if not _TOGETHER:
        pgconn.send_query(b"BEGIN")
        _refuse_failed((yield from execute(pgconn)))
        return (yield from _exchange(pgconn, name, values, formats, begin=False))
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(b"BEGIN", None)
    pgconn.send_query_prepared(name, values, formats)
    pgconn.pipeline_sync()
    results = yield from _until_synced(pgconn)
    pgconn.exit_pipeline_mode()
    return results


def _until_synced(pgconn: PGconn) -> PQGen[list[PGresult]]:
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # between two statements
            if pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was closed")
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


def _refuse_failed(results: Sequence[PGresult]) -> PGresult:
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, "utf-8")
    if not results:
        raise psycopg.OperationalError("the connection was closed")
    return results[-1]


def _loaded(raw: PatientConnection, name: bytes, results: Sequence[PGresult]) -> list[Row]:
    result = _refuse_failed(results)
    if not result.nfields:
        return []
    columns = raw.columns.get(name)
    if columns is None:
        columns = raw.columns[name] = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
    reading = Transformer(raw)
    reading.set_pgresult(result)
    return [dict(zip(columns, row, strict=True)) for row in reading.load_rows(0, result.ntuples, tuple)]
