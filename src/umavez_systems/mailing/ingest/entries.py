"""Entries: parts of a list written into mailing_entries, by COPY on PostgreSQL."""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from umavez_systems.database import Connection
from umavez_systems.mailing.domain import Entry, Reingest, id_head

COLUMNS = ("id", "mailing_id", "email", "token", "linha", "status", "variaveis", "resposta")
KEEP = "DO NOTHING"
# The seed's rule for reading again: what failed or was not valid waits again, the rest stays as it is.
RESET = (
    "DO UPDATE SET status = excluded.status, variaveis = excluded.variaveis, resposta = excluded.resposta,"
    " attempts = 0, depois_de = NULL, updated_at = CURRENT_TIMESTAMP"
    " WHERE mailing_entries.status IN ('FAILED', 'INVALID')"
)
SLICE = 10_000
"""Rows that are Python's own objects at a time."""
HEAD, END = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0), struct.pack(">h", -1)
PIECE = 1 << 19
"""Bytes that wait to be sent to the database at a time."""
Pieces = tuple[bytes | memoryview, ...]
CACHE = "PRAGMA cache_size = -32768"
"""SQLite's own two megabytes would have it read the same pages of its indexes over and over."""
STAGED = (
    "CREATE TEMP TABLE IF NOT EXISTS mailing_staging (id uuid, mailing_id varchar, email varchar, token varchar,"
    " status varchar, linha bigint, variaveis text, resposta text) ON COMMIT DROP"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries ready to be written. `counts`: how many in each state; `content`: as the database takes it.

    `columns`: those in which anything stands. What nobody sends, nobody need read.
    """

    counts: dict[str, int]
    content: Any
    columns: str = ", ".join(COLUMNS)


def batch_of(mailing: str, rows: pa.Table, *, sqlite: bool) -> Batch:
    """Entries of these rows: all that can be done before anything is locked."""
    bad = rows["motivo"].null_count < len(rows)
    many = pc.sum(pc.is_valid(rows["motivo"])).as_py() if bad else 0
    found = {str(Entry.PENDING): len(rows) - many, str(Entry.INVALID): many}
    counts = {state: number for state, number in found.items() if number}
    if sqlite:
        return Batch(counts, _columns(mailing, rows))
    told = rows["variaveis"].null_count < len(rows)
    names = [name for name in COLUMNS if {"status": many, "resposta": many, "variaveis": told}.get(name, True)]
    return Batch(counts, _binary(mailing, rows, names), ", ".join(names))


def add_batch(connection: Connection, batch: Batch, reingest: Reingest, *, new: bool) -> dict[str, int]:
    """Write entries; how many of each state are new (or wait again). `new`: as far as we know none is there already.

    Raises Duplicate where `new` was wrong.
    """
    rule = RESET if reingest is Reingest.REPOR else KEEP
    if not hasattr(connection.raw, "pgconn"):
        return _inserted(connection, batch.content, rule)
    if new:
        _copy(connection, "mailing_entries", batch)
        return batch.counts
    return _staged(connection, batch, rule)


def _columns(mailing: str, rows: pa.Table) -> pa.Table:
    many = len(rows)
    numbers = _fixed(np.arange(many, dtype=">u4").tobytes().hex().encode(), 8).cast(pa.string())
    return pa.table(
        {
            # Ids rise as they are written: an index that grows at its end is far cheaper to fill.
            "id": pc.binary_join_element_wise(id_head(mailing), numbers, ""),
            "mailing_id": pa.repeat(mailing, many),
            "email": rows["email"],
            "token": _fixed(secrets.token_hex(16 * many).encode(), 32).cast(pa.string()),
            "linha": rows["linha"],
            "status": pc.if_else(pc.is_null(rows["motivo"]), str(Entry.PENDING), str(Entry.INVALID)),
            "variaveis": rows["variaveis"],
            "resposta": rows["motivo"],
        }
    )


def _binary(mailing: str, rows: pa.Table, names: list[str]) -> Pieces:
    """The rows as COPY takes them in its binary form: what the server need not parse, it need not compute."""
    many = len(rows)
    bad = pc.is_valid(rows["motivo"])
    cells = [
        struct.pack(">hi", len(names), 16) + bytes.fromhex(id_head(mailing).replace("-", "")),
        _fixed(np.arange(many, dtype=">u4").tobytes(), 4),
        _cell(mailing.encode()),
        *_cells(rows["email"]),
        struct.pack(">i", 32),
        _fixed(secrets.token_hex(16 * many).encode(), 32),
        struct.pack(">i", 8),
        _fixed(rows["linha"].to_numpy().astype(">i8").tobytes(), 8),
    ]
    if "status" in names:
        cells.append(pc.if_else(bad, _cell(str(Entry.INVALID).encode()), _cell(str(Entry.PENDING).encode())))
    if "variaveis" in names:
        cells += _cells(rows["variaveis"])
    if "resposta" in names:
        cells += _cells(rows["motivo"])
    kind = pa.binary()
    arrays = [pa.scalar(cell, kind) if isinstance(cell, bytes) else _whole(cell) for cell in cells]
    joined = pc.binary_join_element_wise(*arrays, pa.scalar(b"", kind))
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + many + 1]
    content = memoryview(joined.buffers()[2])[int(ends[0]) : int(ends[-1])]
    return HEAD, content, END


def _cell(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _cells(texts: pa.ChunkedArray) -> list[pa.Array]:
    """Texts with their lengths before them; a null is a length of -1 and nothing."""
    lengths = pc.fill_null(pc.binary_length(texts), -1).to_numpy().astype(">i4")
    return [_fixed(lengths.tobytes(), 4), pc.fill_null(_whole(texts).cast(pa.binary()), b"")]


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _fixed(joined: bytes, width: int) -> pa.Array:
    """Values of one width, out of one long text."""
    kind = pa.binary(width)
    found = pa.FixedSizeBinaryArray.from_buffers(kind, len(joined) // width, [None, pa.py_buffer(joined)])
    return found.cast(pa.binary())


def _copy(connection: Connection, table: str, batch: Batch) -> None:
    cursor = connection.raw.cursor()
    with cursor.copy(f"COPY {table} ({batch.columns}) FROM STDIN (FORMAT binary)".encode()) as copy:
        for piece in batch.content:
            for place in range(0, len(piece), PIECE):
                copy.write(piece[place : place + PIECE])


def _staged(connection: Connection, batch: Batch, rule: str) -> dict[str, int]:
    connection.rows(STAGED)
    connection.rows("TRUNCATE mailing_staging")
    _copy(connection, "mailing_staging", batch)
    put = (
        f"WITH put AS (INSERT INTO mailing_entries ({batch.columns}) SELECT {batch.columns} FROM mailing_staging"
        f" ON CONFLICT (mailing_id, email) {rule} RETURNING status)"
        " SELECT status, count(*) AS many FROM put GROUP BY status"
    )
    return {row["status"]: int(row["many"]) for row in connection.rows(put)}


def _inserted(connection: Connection, columns: pa.Table, rule: str) -> dict[str, int]:
    text = (
        f"INSERT INTO mailing_entries ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
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
