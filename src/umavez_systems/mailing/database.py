"""The tables of mailing: every statement but those that fill mailing_entries, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umavez_systems.database import Connection, Database, Row
from umavez_systems.mailing.domain import COUNTER, LINE_COUNTERS, Entry

COUNTERS = (*LINE_COUNTERS, "entradas", *COUNTER.values())
SHOWN = (
    "id, filename, nome, storage_url, status, last_attempt, created_at, updated_at, principal, identidade,"
    " content_hash, tamanho, reingestao, duvida, epoch, pedido, motivo, remetente, assunto, dialeto, posicao,"
    " ingerido, cursor, " + ", ".join(COUNTERS)
)
_ENTRY = (
    "id, mailing_id, email, status, attempts, last_attempt, external_id, created_at, updated_at, linha, message_id,"
    " data, provedor, resposta, depois_de"
)

MAILING = f"SELECT {SHOWN} FROM mailings WHERE id = ? AND principal = ?"
WORKED = f"SELECT {SHOWN}, texto, html FROM mailings WHERE id = ?"
CONTENT = "SELECT assunto, texto, html, remetente, dialeto FROM mailings WHERE id = ? AND principal = ?"
BY_NAME = f"SELECT {SHOWN} FROM mailings WHERE filename = ? AND identidade = 'nome'"
BY_CONTENT = f"SELECT {SHOWN} FROM mailings WHERE filename = ? AND content_hash = ?"
# Seeking by (created_at, id): a page costs the same wherever it stands.
MAILINGS = f"SELECT {SHOWN} FROM mailings WHERE principal = ? ORDER BY created_at DESC, id DESC LIMIT ?"
MAILINGS_AFTER = (
    f"SELECT {SHOWN} FROM mailings WHERE principal = ? AND (created_at, id) <"
    " (SELECT created_at, id FROM mailings WHERE id = ? AND principal = ?) ORDER BY created_at DESC, id DESC LIMIT ?"
)
INSERT_MAILING = (
    "INSERT INTO mailings (id, filename, nome, principal, storage_url, status, identidade, content_hash, tamanho,"
    " reingestao, duvida, remetente, assunto, texto, html, dialeto)"
    " VALUES (?, ?, ?, ?, ?, 'QUEUED', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    f" ON CONFLICT DO NOTHING RETURNING {SHOWN}"
)
# Ids rise as entries are written, for lists of usual size in the order of the lines; all are above their mailing's.
ENTRIES = f"SELECT {_ENTRY} FROM mailing_entries WHERE mailing_id = ? AND id > ? ORDER BY id LIMIT ?"
# A text for each status: no plan for all of them could use the index of the rare ones.
ENTRIES_IN = {
    state: (
        f"SELECT {_ENTRY} FROM mailing_entries WHERE mailing_id = ? AND status = '{state}' AND id > ?"
        " ORDER BY id LIMIT ?"
    )
    for state in Entry
}
ENTRY = f"SELECT {_ENTRY}, token FROM mailing_entries WHERE id = ? AND mailing_id = ?"
ENTRY_BY_ID = "SELECT id, mailing_id, email, token, status, linha, variaveis FROM mailing_entries WHERE id = ?"
COUNTED = "SELECT status, count(*) AS many FROM mailing_entries WHERE mailing_id = ? GROUP BY status"
# By pages: however long a list is, no statement takes longer than the database lets one.
COUNTED_BY_PAGES = (
    "SELECT status, count(*) AS many, max(max(email)) OVER () AS ultimo FROM (SELECT email, status FROM mailing_entries"
    " WHERE mailing_id = ? AND email > ? ORDER BY email LIMIT ?) AS pagina GROUP BY status"
)
COUNT_PAGE = 500_000
COUNT_AT_ONCE = 2_000_000
"""Entries that PostgreSQL counts in one statement, which it may do on several cores."""
INSERT_HISTORY = "INSERT INTO mailing_history (mailing_id, entry_id, evento, por, motivo) VALUES (?, ?, ?, ?, ?)"
HISTORY = (
    "SELECT entry_id, evento, por, motivo, created_at FROM mailing_history WHERE mailing_id = ? ORDER BY id LIMIT ?"
)
SUPPRESS = (
    "INSERT INTO mailing_suppressions (principal, email, motivo, detalhe) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (principal, email) DO NOTHING"
)


class Dialect:
    """The statements that differ: the clock of the database, holding a row, and lists of values."""

    def __init__(self, database: Database) -> None:
        self.sqlite = sqlite = database.url.startswith("sqlite")
        self.now = "strftime('%Y-%m-%d %H:%M:%f000', 'now')" if sqlite else "clock_timestamp()"
        self.now_ms = (
            "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
            if sqlite
            else "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
        )
        # On SQLite the transaction is the only one that writes.
        self.hold = "" if sqlite else " FOR UPDATE"
        self.held = f"SELECT {SHOWN} FROM mailings WHERE id = ? AND principal = ?{self.hold}"
        self.next_due = (
            f"SELECT min(depois_de) AS due, {self.now_ms} AS now FROM mailing_entries"
            " WHERE mailing_id = ? AND status = 'PENDING' AND depois_de IS NOT NULL"
        )
        self.forgotten = (
            "SELECT id FROM mailings WHERE status IN ('PENDING', 'QUEUED') AND updated_at < " + self.ago + " LIMIT ?"
        )

    @property
    def ago(self) -> str:
        """The moment so many seconds ago, by the database's clock; takes `age(seconds)`."""
        return (
            "strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)"
            if self.sqlite
            else "clock_timestamp() - ? * interval '1 second'"
        )

    def age(self, seconds: float) -> Any:
        """The value that `ago` takes."""
        return f"-{seconds:.3f} seconds" if self.sqlite else seconds

    def among(self, column: str, values: Sequence[Any], kind: str) -> tuple[str, list[Any]]:
        """A condition that `column` is one of `values`."""
        if self.sqlite:
            return f"{column} IN ({', '.join('?' * len(values))})", list(values)
        return f"{column} = ANY(CAST(? AS {kind}[]))", [list(values)]

    def count(self, connection: Connection, mailing: str, changes: Mapping[str, int], **columns: Any) -> None:
        """Add to a mailing's counters and set columns. The caller holds the row."""
        moved = {name: number for name, number in changes.items() if number}
        parts = [*(f"{name} = {name} + ?" for name in moved), *(f"{name} = ?" for name in columns)]
        text = f"UPDATE mailings SET {', '.join([*parts, f'updated_at = {self.now}'])} WHERE id = ?"
        connection.rows(text, (*moved.values(), *columns.values(), mailing))


def moved(before: Entry, after: Entry, many: int = 1) -> dict[str, int]:
    """The change of the counters when `many` entries go from one state to another."""
    return {} if before is after else {COUNTER[before]: -many, COUNTER[after]: many}


def summed(*changes: Mapping[str, int]) -> dict[str, int]:
    """Changes of counters together."""
    total: dict[str, int] = {}
    for change in changes:
        for name, number in change.items():
            total[name] = total.get(name, 0) + number
    return total


def counted(connection: Connection, mailing: str, about: int, *, sqlite: bool) -> dict[str, int]:
    """The counters as the entries themselves say; `about`: how many entries are expected."""
    found: dict[str, int] = {}
    after = ""
    if about <= COUNT_AT_ONCE and not sqlite:
        found = {row["status"]: int(row["many"]) for row in connection.rows(COUNTED, (mailing,))}
        return {name: found.get(str(state), 0) for state, name in COUNTER.items()}
    while page := connection.rows(COUNTED_BY_PAGES, (mailing, after, COUNT_PAGE)):
        found = summed(found, {row["status"]: int(row["many"]) for row in page})
        after = page[0]["ultimo"]
    return {name: found.get(str(state), 0) for state, name in COUNTER.items()}


def with_text_id(row: Row) -> Row:
    """The row with its id as text: PostgreSQL gives UUIDs."""
    row["id"] = str(row["id"])
    return row
