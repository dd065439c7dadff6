"""Entries: parts of a list written into mailing_entries, by COPY on PostgreSQL."""

from __future__ import annotations

import io
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from umavez_systems.database import Connection
from umavez_systems.mailing.domain import Entry, Reingest, id_head

COLUMNS = "id, mailing_id, email, token, status, linha, variaveis, resposta"
KEEP = "DO NOTHING"
# The seed's rule for reading again: what failed or was not valid waits again, the rest stays as it is.
RESET = (
    "DO UPDATE SET status = excluded.status, variaveis = excluded.variaveis, resposta = excluded.resposta,"
    " attempts = 0, depois_de = NULL, updated_at = CURRENT_TIMESTAMP"
    " WHERE mailing_entries.status IN ('FAILED', 'INVALID')"
)
SLICE = 10_000
"""Rows that are Python's own objects at a time."""
PIECE = 1 << 19
"""Bytes that wait to be sent to the database at a time."""
CACHE = "PRAGMA cache_size = -32768"
"""SQLite's own two megabytes would have it read the same pages of its indexes over and over."""
STAGED = (
    "CREATE TEMP TABLE IF NOT EXISTS mailing_staging (id uuid, mailing_id varchar, email varchar, token varchar,"
    " status varchar, linha bigint, variaveis text, resposta text) ON COMMIT DROP"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries ready to be written. `counts`: how many in each state; `content`: as the database takes it."""

    counts: dict[str, int]
    content: Any


def batch_of(mailing: str, rows: pa.Table, *, sqlite: bool) -> Batch:
    """Entries of these rows: all that can be done before anything is locked."""
    columns = _columns(mailing, rows)
    found = pc.value_counts(columns["status"]).to_pylist()
    counts = {one["values"]: one["counts"] for one in found}
    return Batch(counts, columns if sqlite else _csv(columns))


def add_batch(connection: Connection, batch: Batch, reingest: Reingest, *, new: bool) -> dict[str, int]:
    """Write entries; how many of each state are new (or wait again). `new`: as far as we know none is there already.

    Raises Duplicate where `new` was wrong.
    """
    rule = RESET if reingest is Reingest.REPOR else KEEP
    if not hasattr(connection.raw, "pgconn"):
        return _inserted(connection, batch.content, rule)
    if new:
        _copy(connection, "mailing_entries", batch.content)
        return batch.counts
    return _staged(connection, batch.content, rule)


def _columns(mailing: str, rows: pa.Table) -> pa.Table:
    many = len(rows)
    numbers = _texts(np.arange(many, dtype=">u4").tobytes().hex(), 8)
    return pa.table(
        {
            # Ids rise as they are written: an index that grows at its end is far cheaper to fill.
            "id": pc.binary_join_element_wise(id_head(mailing), numbers, ""),
            "mailing_id": pa.repeat(mailing, many),
            "email": rows["email"],
            "token": _texts(secrets.token_hex(16 * many), 32),
            "status": pc.if_else(pc.is_null(rows["motivo"]), str(Entry.PENDING), str(Entry.INVALID)),
            "linha": rows["linha"],
            "variaveis": rows["variaveis"],
            "resposta": rows["motivo"],
        }
    )


def _texts(joined: str, width: int) -> pa.Array:
    """Texts of one width, out of one long one."""
    kind = pa.binary(width)
    many = len(joined) // width
    fixed = pa.FixedSizeBinaryArray.from_buffers(kind, many, [None, pa.py_buffer(joined.encode())])
    return fixed.cast(pa.binary()).cast(pa.string())


def _csv(columns: pa.Table) -> memoryview:
    buffer = io.BytesIO()
    csv.write_csv(columns, buffer, csv.WriteOptions(include_header=False, batch_size=20_000))
    return buffer.getbuffer()


def _copy(connection: Connection, table: str, content: memoryview) -> None:
    cursor = connection.raw.cursor()
    with cursor.copy(f"COPY {table} ({COLUMNS}) FROM STDIN (FORMAT csv)".encode()) as copy:
        for place in range(0, len(content), PIECE):
            copy.write(content[place : place + PIECE])


def _staged(connection: Connection, content: memoryview, rule: str) -> dict[str, int]:
    connection.rows(STAGED)
    connection.rows("TRUNCATE mailing_staging")
    _copy(connection, "mailing_staging", content)
    put = (
        f"WITH put AS (INSERT INTO mailing_entries ({COLUMNS}) SELECT {COLUMNS} FROM mailing_staging"
        f" ON CONFLICT (mailing_id, email) {rule} RETURNING status)"
        " SELECT status, count(*) AS many FROM put GROUP BY status"
    )
    return {row["status"]: int(row["many"]) for row in connection.rows(put)}


def _inserted(connection: Connection, columns: pa.Table, rule: str) -> dict[str, int]:
    text = (
        f"INSERT INTO mailing_entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        f" ON CONFLICT (mailing_id, email) {rule}"
    )
    added: dict[str, int] = {}
    cursor: Any = connection.raw.cursor()
    cursor.execute(CACHE)
    for state in (Entry.PENDING, Entry.INVALID):
        part = columns.filter(pc.equal(columns["status"], str(state)))
        for place in range(0, len(part), SLICE):
            columns_of_slice = (column.to_pylist() for column in part.slice(place, SLICE).columns)
            cursor.executemany(text, zip(*columns_of_slice, strict=True))
            added[str(state)] = added.get(str(state), 0) + cursor.rowcount
    return added
