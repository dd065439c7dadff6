"""Holding: what a worker does to a mailing that it holds, by the engine's row lease.

Each transaction first locks the mailing's row under its epoch: a worker that was overtaken changes nothing, and people
who decide about an entry wait for the row, or the worker for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock

import pyarrow as pa

from umavez import ClaimLost, Key
from umavez.row_leases import LeasedTable, RowClaim, RowLease
from umavez_systems.database import Connection, Duplicate, Row
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.domain import Entry, Reingest, Status, finished, leaks
from umavez_systems.mailing.ingest.entries import Batch, add_batch, batch_of
from umavez_systems.mailing.letters.composing import message_id
from umavez_systems.mailing.operations import Mailings
from umavez_systems.mailing.sending import groups
from umavez_systems.mailing.sending.groups import Group, Result

LANES = 2
"""Parts that one worker has on their way: while one is kept, the next is copied in."""
PLANNED = "id, mailing_id, email, status, depois_de"
"""Columns by which entries are looked for."""
SAMPLE = 20
"""PostgreSQL's measure of how much it looks at; three hundred rows for each."""


class Leak(Exception):
    """The numbers of a mailing do not add up; nothing more is done to it."""


class Holding:
    """A mailing, held under an epoch."""

    def __init__(self, mailings: Mailings, claim: RowClaim, row: Row) -> None:
        self._mailings = mailings
        self._database = mailings.database
        self._dialect = mailings.dialect
        self._claim = claim
        self.id: str = row["id"]
        self.row = row
        self._cursor: str = row["cursor"]
        self._copying = Lock()

    @property
    def epoch(self) -> int:
        """The fence of this holding."""
        return self._claim.epoch

    def _proved(self, connection: Connection) -> Row:
        """The row, locked, if it is still ours. Raises ClaimLost."""
        text, values = self._claim.guard()
        row = connection.row(f"SELECT {tables.SHOWN} FROM mailings WHERE {text}{self._dialect.hold}", values)  # noqa: S608  # the engine's condition
        if row is None:
            raise ClaimLost(Key("mailings", "row", self.id))
        return tables.with_text_id(row)

    def renew(self) -> None:
        """Say that the work goes on. Raises ClaimLost."""
        with self._database.transaction() as connection:
            self._claim.renew(connection.raw)

    def batch(self, rows: pa.Table) -> Batch:
        """Rows of the list as entries of this mailing, ready to be added."""
        return batch_of(self.id, rows, sqlite=self._dialect.sqlite)

    @property
    def lanes(self) -> int:
        """How many parts of a list may be on their way to the database at once."""
        return LANES if self._unlocked else 1

    @property
    def _unlocked(self) -> bool:
        """Whether a part may be copied in before the mailing's row is locked: new rows, that nobody else can see."""
        return not self._dialect.sqlite and self.row["reingestao"] == Reingest.MANTER

    def add(self, batch: Batch, lines: int, done: float, turn: Callable[[], None] = lambda: None) -> Row:
        """Keep a part of the list, in one commit with the count of its lines, which is where to go on after it.

        `done`: how much of the list that is, for people who wait. `turn` is called when all of it is there, and
        returns when the parts before are kept. An address that is there already is kept. Raises ClaimLost, and what
        `turn` raises.
        """
        try:
            return self._added(batch, lines, done, turn, new=True)
        except Duplicate:
            return self._added(batch, lines, done, turn, new=False)

    def _added(self, batch: Batch, lines: int, done: float, turn: Callable[[], None], *, new: bool) -> Row:
        rule = Reingest(self.row["reingestao"])
        with self._database.transaction() as connection:
            if not self._dialect.sqlite:
                # Entries and the place where to go on are lost together, if at all, and the list's end waits for both.
                connection.rows("SET LOCAL synchronous_commit = off")
            if not self._unlocked:
                self._proved(connection)
            # One after the other: an index that grows at its end on one connection is far cheaper than at two places.
            with self._copying:
                added = add_batch(connection, batch, rule, new=new and rule is Reingest.MANTER)
            turn()
            row = self._proved(connection)
            good, bad = added.get(str(Entry.PENDING), 0), added.get(str(Entry.INVALID), 0)
            changes = {"linhas": lines, "aceitas": good, "invalidas": bad, "duplicadas": lines - good - bad}
            if rule is Reingest.MANTER:
                changes |= {"entradas": good + bad, "pendentes": good, "invalidos": bad}
            self._dialect.count(connection, self.id, changes, posicao=int(row["tamanho"] * done))
            self._claim.renew(connection.raw)
            return {**row, **{name: row[name] + number for name, number in changes.items()}}

    def close_list(self, lines: int, blank: int) -> None:
        """All of it was read: count again what was written. Raises Leak when something is missing.

        `lines`: how many the list has, by a count of its own; `blank`: how many of these say nothing.
        """
        self._tell_planner()
        with self._database.transaction() as connection:
            row = self._proved(connection)
            found = self._counted(connection, row)
            changes = {"linhas": blank, "em_branco": blank}
            if row["reingestao"] == Reingest.REPOR:
                # Entries that wait again were counted before in another state.
                changes |= {name: number - row[name] for name, number in found.items()}
                changes["entradas"] = sum(found.values()) - row["entradas"]
            after = {**row, **{name: row[name] + number for name, number in changes.items()}}
            _refuse_leaks(after, found, lines)
            self._dialect.count(connection, self.id, changes, ingerido=True, cursor="", posicao=row["tamanho"])
            self._claim.renew(connection.raw)
        self._cursor = ""

    def _tell_planner(self) -> None:
        """Without it the planner knows nothing of what was just copied in. A few rows tell what it has to know."""
        if not self._dialect.sqlite:
            with self._database.transaction() as connection:
                connection.rows(f"SET LOCAL default_statistics_target = {SAMPLE}")
                connection.rows(f"ANALYZE mailing_entries ({PLANNED})")

    def _counted(self, connection: Connection, row: Row) -> dict[str, int]:
        return tables.counted(connection, self.id, row["entradas"], sqlite=self._dialect.sqlite)

    def turn(self, results: Sequence[Result], want: int, provider: str) -> Group:
        """Keep the results of the last group and the intents of the next, in one commit.

        What a crash leaves open is one group, never more. Raises ClaimLost, and then nothing was written.
        """
        with self._database.transaction() as connection:
            row = self._proved(connection)
            changes = self._settle(connection, results)
            group = Group(wish=row["pedido"])
            if want and row["pedido"] is None:
                waiting = row["pendentes"] + changes.get("pendentes", 0)
                group, claimed = self._claimed(connection, row, min(want, waiting), waiting, provider)
                changes = tables.summed(changes, claimed)
            self._dialect.count(connection, self.id, changes, cursor=self._cursor)
            return group

    def _settle(self, connection: Connection, results: Sequence[Result]) -> dict[str, int]:
        if not results:
            return {}
        written = groups.settle(connection, self._dialect, results, self.epoch)
        if written != len(results):
            raise Leak(f"{len(results)} resultados, {written} entradas à espera deles.")
        return tables.summed(*(tables.moved(Entry.SENDING, one.status) for one in results))

    def _found(self, connection: Connection, row: Row, want: int, waiting: int) -> list[Row]:
        """Entries that may be sent now: those whose moment has come, and then the next ones by address."""
        found = groups.due_entries(connection, self._dialect, row, want)
        if len(found) == want:
            return found
        left = want - len(found)
        fresh = groups.fresh_entries(connection, self._dialect, row, self._cursor, left) if self._cursor else []
        # Nobody walks over all who have their mail, unless somebody waits among them.
        if not fresh and waiting > groups.put_off(connection, self.id):
            fresh = groups.fresh_entries(connection, self._dialect, row, "", left)
        self._cursor = fresh[-1]["email"] if fresh else self._cursor
        return [*found, *fresh]

    def _claimed(
        self, connection: Connection, row: Row, want: int, waiting: int, provider: str
    ) -> tuple[Group, dict[str, int]]:
        found = self._found(connection, row, want, waiting) if want else []
        barred = [entry for entry in found if entry["suprimido"] is not None]
        chosen = [entry for entry in found if entry["suprimido"] is None]
        for entry in chosen:
            # Those of the first intent, for ever: every attempt is the same mail to whoever compares.
            entry["message_id"] = entry["message_id"] or message_id(entry["id"], self.id, row["remetente"])
            entry["data"] = entry["data"] or entry["agora"]
            entry["attempts"] += 1
        groups.bar(connection, self._dialect, barred)
        groups.intend(connection, self._dialect, chosen, self.epoch, provider)
        changes = tables.summed(
            tables.moved(Entry.PENDING, Entry.SUPPRESSED, len(barred)),
            tables.moved(Entry.PENDING, Entry.SENDING, len(chosen)),
        )
        return Group(chosen, None, len(barred)), changes

    def doubts(self, after: str, limit: int) -> list[Row]:
        """Entries of which nobody knows, by id."""
        with self._database.statements() as connection:
            return groups.doubts(connection, self._dialect, self.id, after or self.id, limit)

    def decide(self, decided: dict[str, Entry], why: str) -> None:
        """Settle doubts: each named entry goes from UNKNOWN to what was found out."""
        with self._database.transaction() as connection:
            self._proved(connection)
            changes: dict[str, int] = {}
            for state in set(decided.values()):
                chosen = [entry for entry, found in decided.items() if found is state]
                many = groups.decide(connection, self._dialect, chosen, state)
                changes = tables.summed(changes, tables.moved(Entry.UNKNOWN, state, many))
                connection.rows(tables.INSERT_HISTORY, (self.id, None, f"duvida:{state}", "worker", f"{many}: {why}"))
            # The cursor stays: who may be sent to again comes after all others. At the front, the same few would be in
            # the hands of every worker that dies, until their attempts are used up.
            self._dialect.count(connection, self.id, changes)
            self._claim.renew(connection.raw)

    def suppress(self, emails: Sequence[str], reason: str) -> None:
        """Never write to these again."""
        with self._database.transaction() as connection:
            row = self._proved(connection)
            for email in emails:
                connection.rows(tables.SUPPRESS, (row["principal"], email, reason, f"mailing {self.id}"))

    def leave(self, wish: str | None = None, *, wait: bool = False) -> Status:
        """Let the mailing go: finished, stopped as asked, held for people, or queued again with a message."""
        with self._database.transaction() as connection:
            row = self._proved(connection)
            status, why, due = self._next_status(connection, row, wish or row["pedido"], wait)
            if status is Status.SENT:
                _refuse_leaks(row, self._counted(connection, row))
            self._dialect.count(connection, self.id, {}, pedido=None, motivo=why, cursor=self._cursor)
            self._claim.finish(connection.raw, str(status))
            if status is Status.QUEUED:
                self._mailings.tell(connection, self.id, due)
            return status

    def _next_status(
        self, connection: Connection, row: Row, wish: str | None, wait: bool
    ) -> tuple[Status, str | None, datetime | None]:
        if wish is not None:
            return (Status.CANCELLED if wish == "cancelar" else Status.PAUSED), None, None
        if finished(row):
            return Status.SENT, None, None
        if row["ingerido"] and not row["pendentes"] and not row["enviando"]:
            return Status.PAUSED, f"{row['desconhecidos']} envios de resultado desconhecido esperam uma decisão.", None
        due = connection.rows(self._dialect.next_due, (self.id,))[0]["due"] if wait else None
        return Status.QUEUED, None, None if due is None else datetime.fromtimestamp(due / 1000, UTC)

    def fail(self, why: str) -> None:
        """Set FAILED with the error; another attempt may take it up."""
        with self._database.transaction() as connection:
            self._proved(connection)
            # A worker that fails on its way out knows nothing of what it was sending.
            lost = groups.into_doubt(connection, self._dialect, self.id)
            changes = tables.moved(Entry.SENDING, Entry.UNKNOWN, lost)
            self._dialect.count(connection, self.id, changes, motivo=why[:2000])
            self._claim.fail(connection.raw)


class Holdings:
    """Takes mailings for one worker."""

    def __init__(self, mailings: Mailings) -> None:
        self._mailings = mailings
        self.table = LeasedTable("mailings", stale=mailings.rules.lock_seconds)
        self._lease = RowLease(self.table)

    def acquire(self, mailing: str) -> Holding | None:
        """The seed's tryAcquireLock: one conditional UPDATE. None when another worker has it, or its state is not free.

        What a dead holder left on its way is in doubt from here on.
        """
        database, dialect = self._mailings.database, self._mailings.dialect
        with database.transaction() as connection:
            claim = self._lease.acquire(connection.raw, mailing)
            if claim is None:
                return None
            lost = groups.into_doubt(connection, dialect, mailing)
            if lost:
                dialect.count(connection, mailing, tables.moved(Entry.SENDING, Entry.UNKNOWN, lost))
                connection.rows(
                    tables.INSERT_HISTORY, (mailing, None, "em-duvida", "worker", f"{lost}: {groups.CRASHED}")
                )
            row = connection.rows(tables.WORKED, (mailing,))[0]
            return Holding(self._mailings, claim, tables.with_text_id(row))

    def recover(self) -> list[str]:
        """The seed's crash recovery: stale PROCESSING becomes PENDING, with one message each. Returns their ids."""
        with self._mailings.database.transaction() as connection:
            freed = [str(row) for row in self._lease.recover(connection.raw)]
            for mailing in freed:
                connection.rows(tables.INSERT_HISTORY, (mailing, None, "recuperar", "recuperação", None))
                self._mailings.tell(connection, mailing)
        self._remind()
        return freed

    def _remind(self) -> None:
        """Queue again what has waited for long: its message may have died with a broker, and a second does no harm."""
        dialect = self._mailings.dialect
        age = dialect.age(max(2 * self._mailings.rules.recovery_seconds, 60))
        with self._mailings.database.transaction() as connection:
            for row in connection.rows(dialect.forgotten, (age, 100)):
                dialect.count(connection, str(row["id"]), {})
                self._mailings.tell(connection, str(row["id"]))


def _refuse_leaks(row: Row, found: dict[str, int], lines: int | None = None) -> None:
    wrong = leaks(row)
    if lines is not None and row["linhas"] != lines:
        wrong.append(f"{row['linhas']} linhas contadas, {lines} no arquivo")
    wrong += [
        f"{name}: {row[name]} no contador, {number} na tabela" for name, number in found.items() if row[name] != number
    ]
    if wrong:
        raise Leak("A conta não fecha: " + "; ".join(wrong) + ".")
