"""Suppression: addresses that are never written to, by principal; and the links and reports that put them there."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Iterator
from email import message_from_bytes, policy

from umavez_systems.database import Connection, Database, Row
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.addresses import kept_address
from umavez_systems.mailing.domain import Entry, Status, finished, invalid, is_id
from umavez_systems.problems import Problem

REASONS = ("descadastro", "bounce", "reclamacao", "manual")
PAGE = 1000
_TOKEN = re.compile(r"([0-9a-f]{32})([0-9a-f]{32})")
_OUR_ID = re.compile(r"<([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\.[0-9a-f]{8}@")


class Suppressions:
    """The lists of all principals."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = tables.Dialect(database)

    def add(self, principal: str, emails: Iterable[str], reason: str, detail: str | None) -> int:
        """Never write to these again; how many are new. Raises a 422 problem for what is no address."""
        if reason not in REASONS:
            raise invalid(f"motivo deve ser {', '.join(REASONS)}.")
        wanted = {kept_address(email) for email in emails if email.strip()}
        for email in wanted:
            if "@" not in email or len(email) > 255 or not email.isprintable():
                raise invalid(f"{email[:80]!r} não é um endereço.")
        with self._database.transaction() as connection:
            return sum(
                bool(connection.rows(tables.SUPPRESS + " RETURNING email", (principal, email, reason, detail)))
                for email in sorted(wanted)
            )

    def remove(self, principal: str, email: str) -> bool:
        """Allow an address again."""
        text = "DELETE FROM mailing_suppressions WHERE principal = ? AND email = ? RETURNING email"
        with self._database.transaction() as connection:
            return bool(connection.rows(text, (principal, kept_address(email))))

    def page(self, principal: str, after: str, limit: int) -> list[Row]:
        """A page of addresses, by address."""
        text = (
            "SELECT email, motivo, detalhe, created_at FROM mailing_suppressions WHERE principal = ? AND email > ?"
            " ORDER BY email LIMIT ?"
        )
        with self._database.statements() as connection:
            return connection.rows(text, (principal, after, limit))

    def all(self, principal: str) -> Iterator[Row]:
        """Every address."""
        after = ""
        while page := self.page(principal, after, PAGE):
            yield from page
            after = page[-1]["email"]

    def of_token(self, token: str) -> Row:
        """The entry that an unsubscribe link belongs to. Raises a 404 problem, whatever is wrong with it."""
        found = _TOKEN.fullmatch(token)
        row = None
        if found:
            number = found[1]
            number = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
            with self._database.statements() as connection:
                row = connection.row(tables.ENTRY_BY_ID, (number,))
        if found is None or row is None or not hmac.compare_digest(row["token"], found[2]):
            raise Problem(404, "link-invalido", "Link inválido", "Este link de descadastro não é conhecido.")
        return row

    def unsubscribe(self, token: str) -> str:
        """Suppress the address of a link; safe to repeat. Returns the address."""
        entry = self.of_token(token)
        with self._database.transaction() as connection:
            owner = _owner(connection, entry["mailing_id"])
            connection.rows(tables.SUPPRESS, (owner, entry["email"], "descadastro", f"mailing {entry['mailing_id']}"))
        return str(entry["email"])

    def told(self, principal: str, entry: str, event: str, detail: str) -> bool:
        """A provider says what became of a mail: delivered, bounced or complained. False for one that is not known."""
        if not is_id(entry):
            return False
        with self._database.transaction() as connection:
            row = connection.row(tables.ENTRY_BY_ID, (entry,))
            if row is None or _owner(connection, row["mailing_id"]) != principal:
                return False
            held = connection.rows(self._dialect.held, (row["mailing_id"], principal))[0]
            row = connection.rows(tables.ENTRY_BY_ID, (entry,))[0]
            before = Entry(row["status"])
            after = _after(before, event)
            if after is not before:
                text = (
                    f"UPDATE mailing_entries SET status = ?, resposta = ?, updated_at = {self._dialect.now}"  # noqa: S608  # constants only
                    " WHERE id = ? AND status = ?"
                )
                connection.rows(text, (str(after), detail[:2000], entry, str(before)))
                self._count(connection, held, tables.moved(before, after))
            if event != "delivered":
                reason = "bounce" if event == "bounced" else "reclamacao"
                connection.rows(tables.SUPPRESS, (principal, row["email"], reason, detail[:500]))
            return True

    def _count(self, connection: Connection, held: Row, changes: dict[str, int]) -> None:
        """Count a report; the answer to the last doubt ends a mailing that waited for it, as a person's would."""
        after = {**held, **{name: held[name] + change for name, change in changes.items()}}
        ends = held["status"] == Status.PAUSED and finished(after)
        columns = {"status": str(Status.SENT), "motivo": None} if ends else {}
        self._dialect.count(connection, str(held["id"]), changes, **columns)


def _after(before: Entry, event: str) -> Entry:
    """What a report makes of an entry. A worker's own entries are left to its result."""
    if event == "delivered" and before is Entry.UNKNOWN:
        return Entry.SENT
    if event == "bounced" and before in (Entry.SENT, Entry.UNKNOWN):
        return Entry.FAILED
    return Entry.SENT if event == "complained" and before is Entry.UNKNOWN else before


def _owner(connection: Connection, mailing: str) -> str:
    row = connection.row("SELECT principal FROM mailings WHERE id = ?", (mailing,))
    return "" if row is None else str(row["principal"])


def entry_of(message_id: str) -> str | None:
    """The entry that one of our Message-IDs names."""
    found = _OUR_ID.search(message_id)
    return found[1] if found else None


def bounce_of(content: bytes) -> tuple[str, str] | None:
    """The entry and the reason in a delivery status notification (RFC 3464) about a permanent failure, if it is one."""
    message = message_from_bytes(content, policy=policy.default)
    if message.get_content_type() != "multipart/report":
        return None
    failed, reason, entry = False, "", None
    for part in message.walk():
        kind = part.get_content_type()
        if kind == "message/delivery-status":
            text = part.as_string()
            failed = failed or bool(re.search(r"^action:\s*failed", text, re.IGNORECASE | re.MULTILINE))
            found = re.search(r"^(?:diagnostic-code|status):\s*(.+)$", text, re.IGNORECASE | re.MULTILINE)
            reason = found[1].strip() if found else reason
            failed = failed and not re.search(r"^status:\s*4\.", text, re.IGNORECASE | re.MULTILINE)
        elif kind in ("message/rfc822", "text/rfc822-headers"):
            entry = entry_of(part.as_string()) or entry
    return (entry, reason or "bounce") if failed and entry is not None else None
