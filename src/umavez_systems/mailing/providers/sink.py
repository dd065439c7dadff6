"""The built-in sink: a mailbox in the database. It can be asked, and what comes twice stands there twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from umavez_systems.database import Database, Row
from umavez_systems.mailing.domain import Capability
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof

INSERT = (
    "INSERT INTO mailing_sink (principal, message_id, remetente, destinatario, assunto, conteudo)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
FIND = "SELECT 1 AS um FROM mailing_sink WHERE message_id = ? LIMIT 1"
INBOX = (
    "SELECT id, message_id, remetente, destinatario, assunto, created_at FROM mailing_sink"
    " WHERE principal = ? AND id < ? ORDER BY id DESC LIMIT ?"
)
LETTER = "SELECT conteudo FROM mailing_sink WHERE principal = ? AND id = ?"


class SinkProvider:
    """Takes every mail; nothing leaves the machine."""

    capability = Capability("sink", tells=True, batch=1000)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
        """See Provider.send. A group arrives in one commit."""
        await proof()
        await asyncio.to_thread(self._put, mails)
        return [Answer(Fate.ACCEPTED, "Entregue na caixa de desenvolvimento.", mail.message_id) for mail in mails]

    def _put(self, mails: Sequence[Mail]) -> None:
        with self._database.transaction() as connection:
            lines = [
                (mail.principal, mail.message_id, mail.sender, mail.recipient, mail.subject, mail.content)
                for mail in mails
            ]
            for line in lines:
                connection.rows(INSERT, line)

    async def ask(self, message_id: str, external_id: str | None) -> bool | None:
        """See Provider.ask."""
        return await asyncio.to_thread(self._there, message_id)

    def _there(self, message_id: str) -> bool:
        with self._database.statements() as connection:
            return connection.row(FIND, (message_id,)) is not None

    async def close(self) -> None:
        """The database belongs to whoever opened it."""


def sweep(database: Database, keep: int = 100_000) -> None:
    """Forget all but the newest mails: a mailbox for development is no archive."""
    with database.transaction() as connection:
        connection.rows("DELETE FROM mailing_sink WHERE id <= (SELECT max(id) FROM mailing_sink) - ?", (keep,))


def inbox(database: Database, principal: str, before: int, limit: int) -> list[Row]:
    """What the sink holds for a principal, newest first."""
    with database.statements() as connection:
        return connection.rows(INBOX, (principal, before or 2**62, limit))


def letter(database: Database, principal: str, number: int) -> bytes | None:
    """One mail as it arrived."""
    with database.statements() as connection:
        row = connection.row(LETTER, (principal, number))
    return None if row is None else bytes(row["conteudo"])
