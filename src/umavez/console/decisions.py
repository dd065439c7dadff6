"""Decisions: what an operator does, once for each form, with who, when, from where and why kept beside it.

Every form is an operation of the console's own, `console.decide`, under the key that the form carries: a second click
replays the first. The record of that operation is the audit: where the store is SQL and can join, it is written in the
transaction of the decision itself; elsewhere it is claimed before and settled after, so that a process that dies in
between leaves it in doubt, in the inbox, for everybody to see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from umavez._sync.attempt import drive
from umavez.console.books import Books, Found
from umavez.console.people import Who
from umavez.core import token as tokens
from umavez.core.encoding.codec import JsonCodec
from umavez.core.encoding.refusal import written
from umavez.core.key import Key
from umavez.core.policy import Answer, Happened
from umavez.core.record import Instant, Position, Query, Record, Settled
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged
from umavez.core.token_errors import TokenCancelled, TokenExpired, TokenUsed
from umavez.core.token_view import KEEP as TOKEN_KEEP
from umavez.engine.stamps import STAMPS
from umavez.errors import ConfigurationError, InvalidKey, NotStorable, OperationInProgress, StoreUnavailable
from umavez.http.contract import answer as http
from umavez.sql.database import writing
from umavez.stores import Store

SCOPE, OPERATION = "umavez.console", "console.decide"
KEEP = 10 * 365 * 86_400.0
"""Seconds that a decision is kept: ten years."""
SHORTEST_REASON = 8
MOST_BODY = 1_000_000

_JSON = JsonCodec()
_NOTHING_DONE = (
    RecordChanged,
    AlreadySettled,
    NoSuchRecord,
    OperationInProgress,
    NotStorable,
    ConfigurationError,
    InvalidKey,
    StoreUnavailable,
    TokenUsed,
    TokenExpired,
)
"""What a deed raises when it changed nothing."""


class Deed(NamedTuple):
    """What somebody wants done. `form` is the form's own key, `stamp` what its page showed, `means` all it says."""

    who: Who
    address: str
    action: str
    form: str
    subject: str
    stamp: str = ""
    reason: str = ""
    key: Key | None = None
    means: Mapping[str, str] = {}
    order: Mapping[str, Any] = {}
    """What is to be carried out later, kept with the audit."""

    def told(self, result: str, after: str) -> dict[str, Any]:
        """What the audit keeps."""
        named = ("", "", "") if self.key is None else (self.key.scope, self.key.operation, self.key.value)
        return {
            "who": self.who.name,
            "address": self.address,
            "action": self.action,
            "subject": self.subject,
            "scope": named[0],
            "operation": named[1],
            "key": named[2],
            "reason": self.reason,
            "before": self.stamp,
            "after": after,
            "result": result,
            **({"order": dict(self.order)} if self.order else {}),
        }


class Done(NamedTuple):
    """What came of a deed; `replayed`: its form had been sent before, and nothing was done now."""

    told: dict[str, Any]
    replayed: bool


class Audit(NamedTuple):
    """One decision as it is kept; `told` is empty where its process died before it was over."""

    at: Instant
    record: Record
    told: dict[str, Any]


class Decisions:
    """Carries deeds out, one by one; to be called in a thread."""

    def __init__(self, books: Books, *, as_written: bool = False) -> None:
        self._books = books
        self._as_written = as_written
        self._joins: bool | None = None

    @property
    def joins(self) -> bool:
        """Whether a decision and its audit are one transaction in this store."""
        if self._joins is None:
            self._joins = self._can_join()
        return self._joins

    def _can_join(self) -> bool:
        tables = self._books.tables
        if tables is None:
            return False
        try:
            with writing(tables, "decisions") as connection:
                self._books.engine.store.joined(connection)
        except ConfigurationError:
            return False
        return True

    def carry_out(self, deed: Deed, work: Callable[[Any], str]) -> Done:
        """Do `work` once for the deed's form, and keep the audit of it. `work` gets the connection of the transaction.

        Raises what `work` raises, with nothing kept; KeyReused for a form that was sent with other content.
        """
        if self.joins:
            return self._joined(deed, work)
        return self._apart(deed, work)

    def apart(self, deed: Deed, work: Callable[[Any], str]) -> Done:
        """As `carry_out`, for work that asks somebody else: no transaction is held open meanwhile."""
        return self._apart(deed, work)

    def _joined(self, deed: Deed, work: Callable[[Any], str]) -> Done:
        with self._transaction() as connection:
            block = self._books.engine.joined(
                connection,
                OPERATION,
                key=deed.form,
                scope=SCOPE,
                fingerprint=_meaning(deed),
                process_instance=month_of(_today()),
                activity=deed.action,
                keep=KEEP,
                codec=_JSON,
            )
            with block as attempt:
                if attempt.replayed:
                    return Done(attempt.outcome, True)
                told = deed.told(work(connection), self._stamp(deed, connection))
                attempt.succeed(told)
                return Done(told, False)

    def _apart(self, deed: Deed, work: Callable[[Any], str]) -> Done:
        def call() -> dict[str, Any]:
            return deed.told(work(None), self._stamp(deed, None))

        outcome = self._books.engine.run(
            OPERATION,
            key=deed.form,
            call=call,
            scope=SCOPE,
            fingerprint=_meaning(deed),
            process_instance=month_of(_today()),
            activity=deed.action,
            unknown="hold",
            free=_NOTHING_DONE,
            max_retries=1000,
            wait=5.0,
            keep=KEEP,
            codec=_JSON,
        )
        return Done(outcome.value, outcome.replayed)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with writing(self._books.tables or "", "decisions") as connection:
            yield connection

    def _stamp(self, deed: Deed, connection: Any) -> str:
        if deed.key is None:
            return ""
        current = self._store(connection).read(deed.key).current
        return "" if current is None else current.stamp

    def _store(self, connection: Any) -> Store:
        store: Store = self._books.engine.store
        return store if connection is None else store.joined(connection)

    def resolve(self, deed: Deed, answer: Answer, *, override: bool = False) -> Done:
        """Close the record of `deed.key` as it was seen. Raises RecordChanged and whatever Once.resolve raises."""
        key = _named(deed)

        def work(connection: Any) -> str:
            engine = self._books.engine
            if self._as_written and key.operation not in engine.plans.declarations:
                engine.plans.declared(key.operation, {"unknown": "hold", "keep": 30 * 86_400.0, "max_body": MOST_BODY})
            engine.resolve(
                key.operation,
                key.value,
                answer,
                by=deed.who.name,
                reason=deed.reason,
                scope=key.scope,
                override=override,
                expected=deed.stamp,
                connection=connection,
            )
            return "happened" if isinstance(answer, Happened) else "freed"

        return self.carry_out(deed, work)

    def cancel(self, deed: Deed, owner: str) -> Done:
        """Close an unused token. Raises TokenUsed, TokenExpired, RecordChanged, AlreadySettled."""
        key = _named(deed)

        def work(connection: Any) -> str:
            store = self._store(connection)
            current = store.read(key).current
            if current is not None and current.stamp != deed.stamp:
                raise RecordChanged(current)
            refusal = Settled(False, written(TokenCancelled(), self._books.engine.codec, key))
            by = (deed.who.name, deed.reason)
            if not drive(tokens.cancel(key, owner, refusal, int(TOKEN_KEEP * 1000), by, STAMPS.owner()), store):
                raise AlreadySettled(key)
            return "cancelled"

        return self.carry_out(deed, work)

    def audits(self, month: str, after: Position | None, limit: int) -> tuple[list[Audit], Found]:
        """A page of the decisions of a month, the newest first."""
        query = Query(SCOPE, OPERATION, None, month, newest_first=True, limit=limit, after=after)
        found = self._books.page(query)
        return [Audit(record.created_at, record, _told(record)) for record in found.records], found

    def answer(self, key: Key, form: Mapping[str, str]) -> Happened:
        """What the form says happened. Raises NotStorable where a repeat could not be answered with it."""
        if http.is_request(key.operation):
            value: Any = _response(form)
        else:
            value = _value(form.get("result", ""), key)
        if self._as_written:
            return Happened(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
        return Happened(_decoded(value, key))


def _response(form: Mapping[str, str]) -> list[Any]:
    status = form.get("status", "").strip()
    if not (status.isascii() and status.isdigit() and len(status) == 3):
        raise NotStorable("The status of an HTTP outcome is a number from 200 to 599; give the one that was meant.")
    headers = [line for line in form.get("headers", "").replace("\r", "").split("\n") if line.strip()]
    return http.answer_by_decision(int(status), form.get("body", "").replace("\r\n", "\n"), headers)


def _value(text: str, key: Key) -> Any:
    """What is typed as the result, as JSON. Raises NotStorable."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise NotStorable(
            f"The result of {key.operation} is not JSON; write null where it returns nothing, and text in quotes."
        ) from error
    return value


def _decoded(value: Any, key: Key) -> Any:
    """What the application's code would get back for this JSON in the stored form. Raises NotStorable."""
    try:
        return _JSON.decode(json.dumps(value, ensure_ascii=False), key)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise NotStorable(f"The result of {key.operation} could not be read back; give what it returns.") from error


def told_by(books: Books, form: str) -> dict[str, Any] | None:
    """What the form of this name did, as the audit keeps it; None where it did nothing, or is not over."""
    record = books.engine.store.read(Key(SCOPE, OPERATION, form)).current
    return None if record is None else _told(record) or None


def _told(record: Record) -> dict[str, Any]:
    if record.settled is None or record.settled.body is None:
        return {}
    told = _JSON.decode(record.settled.body, record.key)
    return told if isinstance(told, dict) else {}


def _meaning(deed: Deed) -> dict[str, Any]:
    return {"action": deed.action, "subject": deed.subject, "stamp": deed.stamp, "says": dict(deed.means)}


def _named(deed: Deed) -> Key:
    if deed.key is None:
        raise ConfigurationError("There is no record to decide about.")
    return deed.key


def _today() -> datetime:
    return datetime.now(UTC)


def month_of(moment: datetime) -> str:
    """The process instance that a month's decisions stand under: each store finds those by an index."""
    return f"umavez.console {moment:%Y-%m}"
