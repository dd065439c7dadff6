"""Suppression: addresses that are never written to, by principal; and what links and reports do to entries."""

from __future__ import annotations

import csv
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from umavez_systems.database import Connection, Database, Row
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.addresses import address_of, kept_address
from umavez_systems.mailing.domain import (
    Entry,
    Status,
    finished,
    invalid,
    is_id,
    plain_cell,
    shown_cell,
    shown_moment,
)
from umavez_systems.problems import Problem

REASONS = ("descadastro", "bounce", "reclamacao", "manual")
PAGE = 1000
LINE_LONGEST = 2_000
_TOKEN = re.compile(r"([0-9a-f]{32})([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: how many addresses are new, and which lines hold none."""

    new: int
    bad: list[int]


class Suppressions:
    """The lists of all principals."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = tables.Dialect(database)

    def add(self, principal: str, emails: Iterable[str], reason: str, detail: str | None) -> int:
        """Never write to these again; how many are new. Raises a 422 problem for what is no address."""
        if reason not in REASONS:
            raise invalid(f"motivo deve ser {', '.join(REASONS)}.")
        wanted = {_address(email) for email in emails if email.strip()}
        return self._added(principal, dict.fromkeys(wanted, reason), detail)

    def _added(self, principal: str, wanted: dict[str, str], detail: str | None) -> int:
        with self._database.transaction() as connection:
            return sum(
                bool(connection.rows(tables.SUPPRESS + " RETURNING email", (principal, email, reason, detail)))
                for email, reason in sorted(wanted.items())
            )

    def import_lines(self, principal: str, lines: Iterable[str], detail: str) -> Imported:
        """Never write to the addresses of a CSV: address, and a reason where it has one. What is none is told.

        Everything else is kept: whoever must not be written to must not wait for somebody else's typing error.
        """
        wanted: dict[str, str] = {}
        many, bad = 0, []
        for number, line in enumerate(lines, 1):
            row = next(csv.reader([line[:LINE_LONGEST].replace("\0", "")]), [])
            cells = [plain_cell(cell.strip()) for cell in row]
            if not any(cells) or (number == 1 and cells[0].lower() in ("email", "e-mail")):
                continue
            try:
                wanted[_address(cells[0])] = cells[1] if len(cells) > 1 and cells[1] in REASONS else "manual"
            except Problem:
                bad.append(number)
            if len(wanted) >= PAGE:
                many += self._added(principal, wanted, detail)
                wanted = {}
        return Imported(many + self._added(principal, wanted, detail), bad)

    def export_lines(self, principal: str) -> Iterator[str]:
        """The list as a CSV that can be imported again, and that no spreadsheet runs."""
        yield "email,motivo,desde\r\n"
        for row in self.all(principal):
            yield f"{shown_cell(row['email'])},{row['motivo']},{shown_moment(row['created_at'])}\r\n"

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

    def told(self, principal: str, entry: str, event: str, detail: str, *, hard: bool = True) -> bool:
        """A provider says what became of a mail: delivered, bounced or complained. False for one that is not known.

        `hard`: whether a bounce says that the address is gone; else it is only this mail that failed.
        """
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
            if event == "complained" or (event == "bounced" and hard):
                reason = "bounce" if event == "bounced" else "reclamacao"
                connection.rows(tables.SUPPRESS, (principal, row["email"], reason, detail[:500]))
            return True

    def reported(self, entry: str, event: str, detail: str, *, hard: bool) -> bool:
        """The same from the provider of all principals, which does not know whose mail it was."""
        with self._database.statements() as connection:
            row = connection.row(tables.ENTRY_BY_ID, (entry,)) if is_id(entry) else None
            owner = "" if row is None else _owner(connection, row["mailing_id"])
        return bool(owner) and self.told(owner, entry, event, detail, hard=hard)

    def _count(self, connection: Connection, held: Row, changes: dict[str, int]) -> None:
        """Count a report; the answer to the last doubt ends a mailing that waited for it, as a person's would."""
        after = {**held, **{name: held[name] + change for name, change in changes.items()}}
        ends = held["status"] == Status.PAUSED and finished(after)
        columns = {"status": str(Status.SENT), "motivo": None} if ends else {}
        self._dialect.count(connection, str(held["id"]), changes, **columns)


def _address(text: str) -> str:
    email, reason = address_of(kept_address(text))
    if reason is not None or len(email) > 255:
        raise invalid(f"{text[:80]!r} não é um endereço.")
    return email


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
