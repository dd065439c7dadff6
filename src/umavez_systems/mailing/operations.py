"""The use cases of mailing that people call: the only file, with `holding.py`, that calls the engine.

A mailing, what was decided about it and the message that tells workers of it commit together: nothing is lost when
the broker is away, and nothing is told that did not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umavez import Once
from umavez.messaging import Message, Outbox
from umavez_systems.database import Connection, Database, Row, shown_instant
from umavez_systems.logs import message_observers
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.domain import (
    ENDED,
    PAUSABLE,
    RESUMABLE,
    TOPIC,
    Doubt,
    Entry,
    Identity,
    Reingest,
    Status,
    filename_of,
    finished,
    invalid,
    is_id,
    new_id,
    spellings,
    unknown,
)
from umavez_systems.mailing.ingest.dialect import SAMPLE, Dialect, dialect_of
from umavez_systems.mailing.ingest.sweeping import stored_name
from umavez_systems.mailing.ingest.uploads import Spool
from umavez_systems.mailing.letters.composing import sender_of
from umavez_systems.mailing.letters.templates import DEFAULT_TEXT, Letter
from umavez_systems.mailing.ports import Storage
from umavez_systems.principals import scoped_key
from umavez_systems.problems import Problem

ACTIVITY = "mailing"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say."""

    sender: str
    keep_seconds: float
    lock_seconds: float = 30.0
    recovery_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Upload:
    """What was asked for with a file."""

    filename: str
    fields: dict[str, str]
    key: str | None = None

    def choice(self, name: str, kind: Any) -> Any:
        """A field that is one of a few words. Raises a 422 problem."""
        text = self.fields.get(name)
        if text is None or not text.strip():
            return next(iter(kind))
        try:
            return kind(text.strip())
        except ValueError:
            raise invalid(f"{name} deve ser {' ou '.join(kind)}.") from None


class Mailings:
    """Every use case, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, storage: Storage, rules: Rules) -> None:
        self._once = once
        self.database = database
        self.dialect = tables.Dialect(database)
        self.storage = storage
        self.rules = rules
        self._outbox = Outbox(observers=message_observers())

    def upload(self, principal: str, wish: Upload, spool: Spool) -> tuple[Row, bool]:
        """The mailing of this file, and whether it is new: row, stored file and message, or none of them."""
        name = filename_of(wish.filename)
        identity, reingest = wish.choice("identidade", Identity), wish.choice("reingestao", Reingest)
        doubt: Doubt = wish.choice("duvida", Doubt)
        dialect = dialect_of(spool.sample, whole=spool.size <= SAMPLE)
        letter = self.letter(principal, name, wish.fields).checked(dialect.variables)
        sender = sender_of(wish.fields.get("remetente") or self.rules.sender)
        mailing = new_id()
        url = self.storage.keep(spool.path, stored_name(mailing, self.database))
        values = (
            *(
                mailing,
                scoped_key(principal, name),
                name,
                principal,
                url,
                str(identity),
                spool.content_hash,
                spool.size,
            ),
            *(str(reingest), str(doubt), sender, letter.assunto, letter.texto, letter.html, dialect.written()),
        )
        kept = False
        try:
            with self.database.transaction() as connection:

                def take() -> tuple[Row, bool]:
                    nonlocal kept
                    row, made = self._found_or_made(connection, values)
                    kept = made
                    if not made and reingest is Reingest.REPOR:
                        row = self._read_again(connection, principal, row["id"], url, spool, dialect)
                        kept = True
                    return row, made

                return self._keyed(connection, principal, wish, spool, take)
        finally:
            if not kept:
                self.storage.remove(url)

    def _keyed(
        self,
        connection: Connection,
        principal: str,
        wish: Upload,
        spool: Spool,
        take: Callable[[], tuple[Row, bool]],
    ) -> tuple[Row, bool]:
        """What `take` does, once for the request's key if it has one: a repeated request changes nothing at all."""
        if wish.key is None:
            return take()
        meaning = {"arquivo": wish.filename, "conteudo": spool.content_hash, "campos": wish.fields}
        with self._once.joined(
            connection.raw,
            "criar_mailing",
            key=wish.key,
            scope=principal,
            fingerprint=meaning,
            activity=ACTIVITY,
            keep=self.rules.keep_seconds,
        ) as attempt:
            if attempt.replayed:
                return self._of(connection, principal, attempt.outcome["mailingId"]), False
            row, made = take()
            attempt.succeed({"mailingId": row["id"]})
            return row, made

    def _found_or_made(self, connection: Connection, values: tuple[Any, ...]) -> tuple[Row, bool]:
        """The seed's rule: look first, then insert; and when a rival was faster, its mailing is ours."""
        _, _, name, principal, _, identity, content, *_ = values
        filenames = [scoped_key(principal, one) for one in spellings(name)]
        row = self._same(connection, filenames, identity, content)
        if row is None:
            row = connection.row(tables.INSERT_MAILING, values)
            if row is not None:
                self.tell(connection, str(row["id"]))
                return tables.with_text_id(row), True
            row = self._same(connection, filenames, identity, content)
        if row is None:
            raise Problem(503, "indisponivel", "Tente de novo", "O registro mudou durante a leitura; tente de novo.")
        return tables.with_text_id(row), False

    def _same(self, connection: Connection, filenames: list[str], identity: str, content: str) -> Row | None:
        looks: list[tuple[str, tuple[str, ...]]] = [(tables.BY_CONTENT, (name, content)) for name in filenames]
        if identity == Identity.NOME:
            looks += [(tables.BY_NAME, (name,)) for name in filenames]
        return next((row for sql, given in looks if (row := connection.row(sql, given)) is not None), None)

    def _read_again(
        self, connection: Connection, principal: str, number: str, url: str, spool: Spool, dialect: Dialect
    ) -> Row:
        """Read a file into a mailing that is there: FAILED and INVALID entries wait again, the rest stays."""
        row = self._of(connection, principal, number, self.dialect.held)
        if row["status"] in (Status.PROCESSING, Status.CANCELLED):
            raise Problem(
                409,
                "em-andamento",
                "Mailing em andamento",
                "Espere o fim, ou pause, antes de reler o arquivo.",
                retryable=True,
            )
        if Dialect.of(row["dialeto"]).columns != dialect.columns:
            raise invalid("Para reler, o arquivo precisa das mesmas colunas, na mesma ordem.")
        self.dialect.count(
            connection,
            row["id"],
            {name: -row[name] for name in ("linhas", "aceitas", "duplicadas", "invalidas", "em_branco")},
            status=str(Status.QUEUED),
            storage_url=url,
            content_hash=spool.content_hash,
            tamanho=spool.size,
            reingestao=str(Reingest.REPOR),
            dialeto=dialect.written(),
            posicao=0,
            ingerido=False,
            cursor="",
            motivo=None,
            pedido=None,
        )
        self.tell(connection, row["id"])
        return {**row, "status": str(Status.QUEUED), "content_hash": spool.content_hash}

    def letter(self, principal: str, filename: str, fields: dict[str, str]) -> Letter:
        """What is written to everybody, from the fields of an upload and the template that they name."""
        template: Row = {"assunto": None, "texto": None, "html": None}
        if name := (fields.get("template") or "").strip():
            with self.database.statements() as connection:
                found = connection.row(
                    "SELECT assunto, texto, html FROM mailing_templates WHERE principal = ? AND nome = ?",
                    (principal, name),
                )
            if found is None:
                raise invalid(f"Não há modelo chamado {name[:60]!r}.")
            template = found
        texto, html = (fields.get(part) or template[part] or None for part in ("texto", "html"))
        if texto is None and html is None:
            texto = DEFAULT_TEXT
        return Letter(
            fields.get("assunto") or template["assunto"] or filename.rpartition(".")[0] or filename, texto, html
        )

    def tell(self, connection: Connection, mailing: str, available_at: Any = None) -> None:
        """Queue "process this mailing", in the caller's transaction."""
        message = Message.of(TOPIC, {"mailingId": mailing}, available_at=available_at)
        self._outbox.append(connection.raw, message)

    def mailing(self, principal: str, number: str) -> Row:
        """One mailing. Raises a 404 problem."""
        with self.database.statements() as connection:
            return self._of(connection, principal, number)

    def _of(self, connection: Connection, principal: str, number: str, sql: str = tables.MAILING) -> Row:
        row = connection.row(sql, (number, principal)) if is_id(number) else None
        if row is None:
            raise unknown("mailing", number)
        return tables.with_text_id(row)

    def mailings(self, principal: str, after: str, limit: int) -> list[Row]:
        """A page of mailings, newest first; `after` is the last id of the page before."""
        with self.database.statements() as connection:
            if after:
                values = (principal, after, principal, limit)
                rows = connection.rows(tables.MAILINGS_AFTER, values) if is_id(after) else []
            else:
                rows = connection.rows(tables.MAILINGS, (principal, limit))
        return [tables.with_text_id(row) for row in rows]

    def entries(self, principal: str, number: str, status: str | None, after: str, limit: int) -> list[Row]:
        """A page of entries in the order of the lines; `after` is the last id of the page before."""
        with self.database.statements() as connection:
            self._of(connection, principal, number)
            if after and not is_id(after):
                raise invalid("depois deve ser o id da última entrada da página anterior.")
            after = after or number
            if status is None:
                rows = connection.rows(tables.ENTRIES, (number, after, limit))
            else:
                rows = connection.rows(tables.ENTRIES_IN[Entry(status)], (number, after, limit))
        return [tables.with_text_id(row) for row in rows]

    def history(self, principal: str, number: str) -> list[Row]:
        """What people and recoveries did to a mailing, and when, as everybody is shown it."""
        with self.database.statements() as connection:
            self._of(connection, principal, number)
            rows = connection.rows(tables.HISTORY, (number, 1000))
        return [{**row, "created_at": shown_instant(row["created_at"])} for row in rows]

    def pause(self, principal: str, number: str, by: str) -> Row:
        """Stop between two groups, or at once when nobody works on it."""
        return self._asked(principal, number, by, "pausar", Status.PAUSED)

    def cancel(self, principal: str, number: str, by: str) -> Row:
        """Send nothing more, for good."""
        return self._asked(principal, number, by, "cancelar", Status.CANCELLED)

    def _asked(self, principal: str, number: str, by: str, wish: str, target: Status) -> Row:
        with self.database.transaction() as connection:
            row = self._of(connection, principal, number, self.dialect.held)
            status = Status(row["status"])
            if status is target or row["pedido"] == wish:
                return row
            if status in ENDED:
                raise _not_now(row, wish)
            # A worker's answers may still be on their way: it is asked, and obeys before the next group.
            columns: Row = {"pedido": wish} if status is Status.PROCESSING else {"status": str(target), "pedido": None}
            if status not in (*PAUSABLE, Status.PAUSED, Status.PROCESSING):
                raise _not_now(row, wish)
            self.dialect.count(connection, number, {}, **columns)
            connection.rows(tables.INSERT_HISTORY, (number, None, wish, by, None))
            return {**row, **columns}

    def resume(self, principal: str, number: str, by: str) -> Row:
        """Go on with what was paused or failed."""
        with self.database.transaction() as connection:
            row = self._of(connection, principal, number, self.dialect.held)
            status = Status(row["status"])
            if status is Status.PROCESSING and row["pedido"] == "pausar":
                self.dialect.count(connection, number, {}, pedido=None)
                return {**row, "pedido": None}
            if status in (Status.PENDING, Status.QUEUED, Status.PROCESSING):
                return row
            if status not in RESUMABLE:
                raise _not_now(row, "retomar")
            return self._queued(connection, row, by, "retomar", {})

    def resend(self, principal: str, number: str, by: str, entries: list[str] | None) -> tuple[Row, int]:
        """Let FAILED entries wait again: all of them, or those named. Returns how many."""
        with self.database.transaction() as connection:
            row = self._of(connection, principal, number, self.dialect.held)
            if row["status"] in (Status.PROCESSING, Status.CANCELLED):
                raise _not_now(row, "reenviar")
            text, values = "mailing_id = ? AND status = 'FAILED'", [number]
            if entries is not None:
                named, more = self.dialect.among("id", _ids(entries), "uuid")
                text, values = f"{text} AND {named}", [*values, *more]
            found = connection.rows(
                "UPDATE mailing_entries SET status = 'PENDING', attempts = 0, depois_de = NULL,"  # noqa: S608  # constants only
                f" updated_at = {self.dialect.now} WHERE {text} RETURNING id",
                values,
            )
            if entries is not None and len(found) != len(set(entries)):
                raise invalid(
                    f"Só entradas FAILED deste mailing podem ser reenviadas: {len(found)} de {len(entries)} são."
                )
            if not found:
                return row, 0
            changes = tables.moved(Entry.FAILED, Entry.PENDING, len(found))
            return self._queued(connection, row, by, "reenviar", changes), len(found)

    def resolve(self, principal: str, number: str, entry: str, result: str, by: str, reason: str) -> Row:
        """Decide about one mail of which nobody knows: it was sent, it was not (send it), or leave it (failed)."""
        target = {"enviado": Entry.SENT, "reenviar": Entry.PENDING, "falhou": Entry.FAILED}.get(result)
        if target is None:
            raise invalid("resultado deve ser enviado, reenviar ou falhou.")
        with self.database.transaction() as connection:
            row = self._of(connection, principal, number, self.dialect.held)
            found = connection.row(tables.ENTRY, (entry, number)) if is_id(entry) else None
            if found is None:
                raise unknown("entrada", entry)
            if found["status"] != Entry.UNKNOWN:
                raise Problem(
                    409,
                    "sem-duvida",
                    "Não há dúvida",
                    f"A entrada está {found['status']}; só UNKNOWN se resolve.",
                    status_entrada=found["status"],
                )
            connection.rows(
                "UPDATE mailing_entries SET status = ?, depois_de = NULL,"  # noqa: S608  # constants only
                f" updated_at = {self.dialect.now} WHERE id = ?",
                (str(target), entry),
            )
            connection.rows(tables.INSERT_HISTORY, (number, entry, f"resolver:{result}", by, reason))
            changes = tables.moved(Entry.UNKNOWN, target)
            after = {**row, **{name: row[name] + change for name, change in changes.items()}}
            if target is Entry.PENDING and row["status"] in (Status.PAUSED, Status.FAILED, Status.SENT):
                self._queued(connection, row, by, "resolver", changes)
            elif row["status"] == Status.PAUSED and finished(after):
                self.dialect.count(connection, number, changes, status=str(Status.SENT), motivo=None)
            else:
                self.dialect.count(connection, number, changes)
            return tables.with_text_id(connection.rows(tables.ENTRY, (entry, number))[0])

    def _queued(self, connection: Connection, row: Row, by: str, wish: str, changes: dict[str, int]) -> Row:
        number = row["id"]
        columns: Row = {"status": str(Status.QUEUED), "motivo": None, "pedido": None, "cursor": ""}
        self.dialect.count(connection, number, changes, **columns)
        self.tell(connection, number)
        connection.rows(tables.INSERT_HISTORY, (number, None, wish, by, None))
        return {**row, **columns}


def _ids(given: list[str]) -> list[str]:
    if not given or len(given) > 1000 or not all(is_id(text) for text in given):
        raise invalid("entradas deve ter de 1 a 1000 ids de entradas.")
    return sorted(set(given))


def _not_now(row: Row, wish: str) -> Problem:
    return Problem(
        409,
        "transicao-invalida",
        "Transição não permitida",
        f"O mailing está {row['status']}; não se pode {wish}.",
        estado=row["status"],
    )
