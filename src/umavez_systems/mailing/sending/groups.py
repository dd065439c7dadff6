"""Groups: the statements that take entries, write their intents and keep their results, many in one statement.

The caller holds the mailing's row, so that nobody else touches its entries meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from umavez_systems.database import Connection, Row
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.database import Dialect
from umavez_systems.mailing.domain import Entry

CRASHED = "Quem enviava deixou de responder antes de anotar o resultado."
BARRED = "Na lista de supressão."
_INTENT = "status = 'SENDING', attempts = attempts + 1, epoch = ?, provedor = ?"
_INTEND_MANY = (
    f"UPDATE mailing_entries e SET {_INTENT}, message_id = v.message_id, data = v.data,"
    " last_attempt = clock_timestamp(), updated_at = clock_timestamp()"
    " FROM unnest(CAST(? AS uuid[]), CAST(? AS text[]), CAST(? AS bigint[])) AS v (id, message_id, data)"
    " WHERE e.id = v.id"
)
_SETTLE_MANY = (
    "UPDATE mailing_entries e SET status = v.status, resposta = v.resposta,"
    " external_id = coalesce(v.external_id, e.external_id), attempts = e.attempts - v.uncounted,"
    " depois_de = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) + v.due, updated_at = clock_timestamp()"
    " FROM unnest(CAST(? AS uuid[]), CAST(? AS text[]), CAST(? AS text[]), CAST(? AS text[]), CAST(? AS bigint[]),"
    " CAST(? AS int[])) AS v (id, status, resposta, external_id, due, uncounted)"
    " WHERE e.id = v.id AND e.status = 'SENDING' AND e.epoch = ? RETURNING e.id"
)
_PUT_OFF = (
    "SELECT count(*) AS many FROM mailing_entries WHERE mailing_id = ? AND status = 'PENDING' AND depois_de IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one entry of a group. `counts`: whether it was an attempt at all."""

    entry: str
    status: Entry
    text: str
    external_id: str | None = None
    due_in: float | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """Entries whose intents are committed; `wish` is what somebody asks of the worker meanwhile."""

    entries: list[Row] = field(default_factory=list)
    wish: str | None = None
    suppressed: int = 0


def due_entries(connection: Connection, dialect: Dialect, mailing: Row, want: int) -> list[Row]:
    """Entries that waited for their moment, which has come: the longest due first."""
    due = f"e.depois_de <= {dialect.now_ms} ORDER BY e.depois_de LIMIT ?"
    return _waiting(connection, dialect, due, (mailing["principal"], mailing["id"], want))


def fresh_entries(connection: Connection, dialect: Dialect, mailing: Row, after: str, want: int) -> list[Row]:
    """The next entries that need not wait, by address."""
    fresh = "e.depois_de IS NULL AND e.email > ? ORDER BY e.email LIMIT ?"
    return _waiting(connection, dialect, fresh, (mailing["principal"], mailing["id"], after, want))


def _waiting(connection: Connection, dialect: Dialect, which: str, values: Sequence[Any]) -> list[Row]:
    """With why one of them must not be written to. Two texts: each has an index of its own, which an OR would not."""
    text = (
        "SELECT e.id, e.email, e.token, e.attempts, e.variaveis, e.message_id, e.data, s.motivo AS suprimido,"
        f" {dialect.now_ms} AS agora FROM mailing_entries e"
        " LEFT JOIN mailing_suppressions s ON s.principal = ? AND s.email = e.email"
        f" WHERE e.mailing_id = ? AND e.status = 'PENDING' AND {which}"
    )
    return [tables.with_text_id(row) for row in connection.rows(text, values)]


def put_off(connection: Connection, mailing: str) -> int:
    """How many entries wait for a moment, whether it has come or not."""
    return int(connection.rows(_PUT_OFF, (mailing,))[0]["many"])


def bar(connection: Connection, dialect: Dialect, entries: Sequence[Row]) -> None:
    """Never write to these."""
    if not entries:
        return
    among, values = dialect.among("id", [entry["id"] for entry in entries], "uuid")
    text = f"UPDATE mailing_entries SET status = 'SUPPRESSED', resposta = ?, updated_at = {dialect.now} WHERE {among}"
    connection.rows(text, (BARRED, *values))


def intend(connection: Connection, dialect: Dialect, entries: Sequence[Row], epoch: int, provider: str) -> None:
    """Write down that these are about to be sent, with what names them to the far side."""
    if not entries:
        return
    names = [entry["message_id"] for entry in entries]
    moments = [entry["data"] for entry in entries]
    numbers = [entry["id"] for entry in entries]
    if not dialect.sqlite:
        connection.rows(_INTEND_MANY, (epoch, provider, numbers, names, moments))
        return
    text = (
        f"UPDATE mailing_entries SET {_INTENT}, message_id = ?, data = ?, last_attempt = {dialect.now},"
        f" updated_at = {dialect.now} WHERE id = ?"
    )
    lines = zip(names, moments, numbers, strict=True)
    connection.raw.cursor().executemany(text, ((epoch, provider, *line) for line in lines))


def settle(connection: Connection, dialect: Dialect, results: Sequence[Result], epoch: int) -> int:
    """Keep results of entries that this epoch is sending; how many those were."""
    lines = [
        (str(one.status), one.text[:2000], one.external_id, _ms(one.due_in), int(not one.counts), one.entry)
        for one in results
    ]
    if not dialect.sqlite:
        status, text, external, due, uncounted, entry = (list(column) for column in zip(*lines, strict=True))
        return len(connection.rows(_SETTLE_MANY, (entry, status, text, external, due, uncounted, epoch)))
    statement = (
        "UPDATE mailing_entries SET status = ?, resposta = ?, external_id = coalesce(?, external_id),"
        f" depois_de = {dialect.now_ms} + ?, attempts = attempts - ?, updated_at = {dialect.now}"
        " WHERE id = ? AND status = 'SENDING' AND epoch = ?"
    )
    done: Any = connection.raw.cursor().executemany(statement, [(*line, epoch) for line in lines])
    return int(done.rowcount)


def into_doubt(connection: Connection, dialect: Dialect, mailing: str) -> int:
    """What is on its way is in doubt from here on; how many entries that are."""
    text = (
        f"UPDATE mailing_entries SET status = 'UNKNOWN', resposta = ?, updated_at = {dialect.now}"
        " WHERE mailing_id = ? AND status = 'SENDING' RETURNING id"
    )
    return len(connection.rows(text, (CRASHED, mailing)))


def doubts(connection: Connection, dialect: Dialect, mailing: str, after: str, limit: int) -> list[Row]:
    """Entries of which nobody knows, by id, with the age of their first intent in seconds."""
    text = (
        "SELECT id, email, message_id, external_id, data, provedor, attempts,"
        f" ({dialect.now_ms} - data) / 1000.0 AS idade FROM mailing_entries"
        " WHERE mailing_id = ? AND status = 'UNKNOWN' AND id > ? ORDER BY id LIMIT ?"
    )
    return [tables.with_text_id(row) for row in connection.rows(text, (mailing, after, limit))]


def decide(connection: Connection, dialect: Dialect, entries: Sequence[str], state: Entry) -> int:
    """Settle doubts about these; how many still were in doubt."""
    among, values = dialect.among("id", entries, "uuid")
    text = (
        f"UPDATE mailing_entries SET status = ?, updated_at = {dialect.now}"
        f" WHERE status = 'UNKNOWN' AND {among} RETURNING id"
    )
    return len(connection.rows(text, (str(state), *values)))


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
