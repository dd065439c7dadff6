"""Acts: the pages on which something is decided, and the forms they send.

Each form carries a key of its own and the stamp that its page showed. A second click replays the first; a page that has
grown old changes nothing and is drawn again with what is different now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from umavez._async.once import AsyncOnce
from umavez._async.reconcile import AsyncReconciler
from umavez._sync.once import Once
from umavez._sync.reconcile import Reconciler
from umavez.console.books import DECIDE_SECONDS
from umavez.console.decisions import SHORTEST_REASON, Deed, Done
from umavez.console.instruments import MOST_ID, entry_of, stamp_of
from umavez.console.looks import moment
from umavez.console.pages.inbox import CAUSES
from umavez.console.pages.record import seen_at, shown
from umavez.console.standing import known_of
from umavez.console.together.eyes import proposal_of, proposing, takes_two
from umavez.console.visit import Refused, Visit
from umavez.core.key import Key
from umavez.core.policy import NotHappened
from umavez.core.record import Record
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged
from umavez.core.telling.standing import is_lease
from umavez.core.token_errors import TokenExpired, TokenUsed
from umavez.errors import ConfigurationError, NotStorable, OperationInProgress
from umavez.http.contract.answer import is_request
from umavez.messaging.inspection import Inspection
from umavez.sql.connection import Sql
from umavez.sql.flow import carry

PATIENCE = 10.0
"""Seconds that the far side has for one question."""


class Offer(NamedTuple):
    """A page on which something may be decided: what it is called, what it causes, and what it asks for."""

    title: str
    button: str
    causes: tuple[str, ...]
    asks_for: str = ""


_HAPPENED = Offer("It happened", "Record that it happened", (CAUSES[1][1],))
_FREED = Offer("It did not happen", "Record that it did not happen", (CAUSES[2][1],))
_OVERRIDE = "It has an outcome already. Who got the old one is not told."
_RELEASE = Offer(
    "Free the lease",
    "Free the lease",
    ("The next who asks gets it, with a higher fence. If its last holder still works, two work at once.",),
)
_TWO = (
    "This operation takes two people: yours is a proposal, and nothing happens until another agrees within 15 minutes."
)
_CANCEL = Offer("Cancel the token", "Cancel the token", ("Whoever comes with it is told that it was cancelled.",))
_DISCARD = Offer(
    "Discard the message",
    "Discard it",
    ("It is never sent. Later messages of its aggregate go on without it.",),
)


async def happened_page(visit: Visit) -> Response:
    """Where somebody says that it happened, and how it ended."""
    seen = await seen_at(visit)
    return _drawn(visit, _there(seen.current, visit), _offer(_there(seen.current, visit), "happened"))


async def not_happened_page(visit: Visit) -> Response:
    """Where somebody frees a key."""
    seen = await seen_at(visit)
    return _drawn(visit, _there(seen.current, visit), _offer(_there(seen.current, visit), "not-happened"))


async def cancel_page(visit: Visit) -> Response:
    """Where somebody closes a token."""
    seen = await seen_at(visit)
    return _drawn(visit, _there(seen.current, visit), _CANCEL)


async def happened(visit: Visit) -> Response:
    """Record that it happened."""
    record = _there((await seen_at(visit)).current, visit)
    override = _allowed_to_override(visit, record)
    decisions = visit.desk.decisions
    try:
        answer = decisions.answer(record.key, visit.form)
    except NotStorable as complaint:
        return _drawn(visit, record, _offer(record, "happened"), str(complaint))
    return await _decided(visit, record, "happened", lambda deed: decisions.resolve(deed, answer, override=override))


async def not_happened(visit: Visit) -> Response:
    """Free the key."""
    record = _there((await seen_at(visit)).current, visit)
    override = _allowed_to_override(visit, record)
    return await _decided(
        visit,
        record,
        "not-happened",
        lambda deed: visit.desk.decisions.resolve(deed, NotHappened(), override=override),
    )


async def cancel(visit: Visit) -> Response:
    """Close a token."""
    record = _there((await seen_at(visit)).current, visit)
    owner = record.process_instance or ""
    return await _decided(visit, record, "cancel", lambda deed: visit.desk.decisions.cancel(deed, owner))


def _there(record: Record | None, visit: Visit) -> Record:
    if record is None:
        raise NoSuchRecord(Key("?", "record", visit.request.path_params["digest"]))
    return record


def _offer(record: Record, action: str) -> Offer:
    if is_lease(record):
        return _RELEASE
    offer = _HAPPENED if action == "happened" else _FREED
    if action == "happened":
        offer = offer._replace(asks_for="response" if is_request(record.key.operation) else "result")
    if record.settled is not None:
        offer = offer._replace(causes=(_OVERRIDE, *offer.causes))
    return offer


def _allowed_to_override(visit: Visit, record: Record) -> bool:
    """Whether the form asks to change what is settled. Raises Refused where that may not be or the key is mistyped."""
    if "typed" not in visit.form:
        return False
    if not visit.may("govern"):
        raise Refused("To change what is settled takes the role govern.")
    if visit.form["typed"].strip() != record.key.value.strip():
        raise Refused("What was typed is not the key; nothing was done.", 400)
    return True


async def _decided(visit: Visit, record: Record, action: str, work: Callable[[Deed], Done]) -> Response:
    """Carry the form out, once; or draw its page again with what is wrong or different."""
    offer = _CANCEL if action == "cancel" else _offer(record, action)
    if complaint := unsaid(visit):
        return _drawn(visit, record, offer, visit.t(complaint))
    deed = deed_of(visit, action, record.key.digest.hex(), record.key)
    if action != "cancel" and takes_two(visit.desk.books, record):
        return await _proposed(visit, record, deed)
    try:
        done = await visit.desk.books.look(lambda: work(deed), DECIDE_SECONDS)
    except RecordChanged as changed:
        return _drawn(visit, changed.record, _fitting(changed.record, action), changed=True)
    except (AlreadySettled, OperationInProgress, NotStorable, TokenUsed, TokenExpired) as refused:
        return _drawn(visit, record, offer, str(refused))
    visit.desk.books.forget()
    return visit.to(visit.of(record), done="again" if done.replayed else done.told["result"])


async def _proposed(visit: Visit, record: Record, deed: Deed) -> Response:
    """Keep what somebody proposes, for a second person to agree to."""
    books = visit.desk.books

    def propose() -> Done:
        now = books.now()
        if record.stamp != deed.stamp:
            raise RecordChanged(record)
        standing = proposal_of(books, record, now)
        if standing is not None and (standing.who, standing.says) != (deed.who.name, dict(deed.means)):
            raise Refused("Something else is proposed already; agree to it, or wait until its time is over.", 409)
        proposal = proposing(deed, record, now if standing is None else standing.at, override="typed" in visit.form)
        return visit.desk.decisions.carry_out(proposal, lambda _: "proposed")

    try:
        await books.look(propose, DECIDE_SECONDS)
    except RecordChanged as changed:
        return _drawn(visit, changed.record, _fitting(changed.record, deed.action), changed=True)
    return visit.to(visit.of(record), done="proposed")


def _fitting(record: Record, action: str) -> Offer:
    return _CANCEL if action == "cancel" else _offer(record, action)


def unsaid(visit: Visit) -> str:
    """What a form leaves out that every decision says; '' where it is whole."""
    if len(visit.form.get("reason", "").strip()) < SHORTEST_REASON:
        return "Say why, in at least 8 characters: it is kept as evidence."
    if not visit.form.get("form") or not visit.form.get("stamp"):
        return "The form is not whole; open the page again."
    return ""


def deed_of(visit: Visit, action: str, subject: str, key: Key | None) -> Deed:
    """What the form asks to be done, by whom and from where."""
    form = visit.form
    means = {name: value for name, value in form.items() if name not in _CARRIED and not name.startswith("seen_")}
    return Deed(
        visit.somebody,
        visit.address,
        action,
        form.get("form", "")[:100],
        subject,
        form.get("stamp", ""),
        form.get("reason", "").strip()[:1000],
        key,
        means,
    )


_CARRIED = ("token", "form", "stamp")


def _drawn(visit: Visit, record: Record, offer: Offer, complaint: str = "", *, changed: bool = False) -> Response:
    """The page of a decision: what is known, what it causes, and a form with the stamp of what it shows."""
    settled = record.settled is not None
    closed = settled and not visit.may("govern")
    seen = {"status": record.status.value, "attempt": str(record.attempt), "changed": moment(record.updated_at)}
    rows = [(name, visit.form.get(f"seen_{name}", "?"), value) for name, value in seen.items()]
    back = f"{visit.base}{visit.of(record)}"
    if closed and not changed:
        raise Refused("To change what is settled takes the role govern.")
    causes = offer.causes
    if offer is not _CANCEL and takes_two(visit.desk.books, record):
        causes = (_TWO, *causes)
    return visit.page(
        "decide.html",
        409 if changed else 400 if complaint else 200,
        title=offer.title,
        button=offer.button,
        causes=causes,
        asks_for=offer.asks_for,
        subject=f"{record.key.operation} {record.key.value}",
        back=back,
        changed=rows if changed else [],
        complaint=complaint,
        form_open=not closed and not (changed and settled),
        known=known_of(visit, record),
        stamp=record.stamp,
        seen=seen,
        given=visit.form,
        typed=record.key.value if settled else "",
    )


async def ask(visit: Visit) -> Response:
    """Ask the far side about a record, now."""
    record = _there((await seen_at(visit)).current, visit)
    deed = deed_of(visit, "ask", record.key.digest.hex(), record.key)
    once, loop = visit.desk.books.once, asyncio.get_running_loop()

    def work(_connection: Any) -> str:
        if record.stamp != deed.stamp:
            raise RecordChanged(record)
        word = _asked(once, record, loop)
        if word == "busy":
            raise RecordChanged(record)
        return word

    decisions = visit.desk.decisions
    try:
        done = await visit.desk.books.look(lambda: decisions.apart(deed, work), DECIDE_SECONDS)
    except RecordChanged:
        sentence = visit.t("It has changed since you looked; nothing was done.")
        return visit.told("Changed", sentence, 409, f"{visit.base}{visit.of(record)}")
    return visit.to(visit.of(record), done="again" if done.replayed else done.told["result"])


def _asked(once: Once | AsyncOnce, record: Record, loop: asyncio.AbstractEventLoop) -> str:
    """In a word, what came of the question; an engine that is awaited asks in the loop it lives in."""
    if isinstance(once, Once):
        return Reconciler(once, patience=PATIENCE).ask(record)
    asking = AsyncReconciler(once, patience=PATIENCE).ask(record)
    return asyncio.run_coroutine_threadsafe(asking, loop).result(DECIDE_SECONDS)


async def reveal(visit: Visit) -> Response:
    """Show what may hold personal data, and keep who looked."""
    seen = await seen_at(visit)
    record = _there(seen.current, visit)
    deed = deed_of(visit, "reveal", record.key.digest.hex(), record.key)
    await visit.desk.books.look(lambda: visit.desk.decisions.carry_out(deed, lambda _: "revealed"), DECIDE_SECONDS)
    return await shown(visit, seen, revealed=True)


async def retry(visit: Visit) -> Response:
    """Let a dead message wait for its turn again."""
    return await _about_message(visit, "retry", "waiting", lambda look, name, _: look.retry(name))


async def discard_page(visit: Visit) -> Response:
    """Where somebody gives a message up."""
    return await _message_drawn(visit)


async def discard(visit: Visit) -> Response:
    """Give a dead message up."""
    if complaint := unsaid(visit):
        return await _message_drawn(visit, visit.t(complaint))
    return await _about_message(
        visit, "discard", "discarded", lambda look, name, deed: look.discard(name, deed.who.name, deed.reason)
    )


async def _about_message(visit: Visit, action: str, result: str, flow: Any) -> Response:
    name, subscriber = visit.asked("id")[:MOST_ID], visit.asked("subscriber")
    deed = deed_of(visit, action, f"{subscriber}/{name}" if subscriber else name, None)

    def work(connection: Any) -> str:
        if connection is None:
            raise ConfigurationError("This store cannot join a transaction; use: umavez outbox retry, or discard.")
        sql = Sql(connection)
        entry = carry(Inspection(sql.dialect, subscriber or None).entry(name), sql)
        if entry is None or stamp_of(entry) != deed.stamp:
            raise Refused("The message has changed since you looked; nothing was done.", 409)
        if not carry(flow(Inspection(sql.dialect, subscriber or None), name, deed), sql):
            raise Refused("The message is not dead any more; nothing was done.", 409)
        return result

    done = await visit.desk.books.look(lambda: visit.desk.decisions.carry_out(deed, work), DECIDE_SECONDS)
    return visit.to("/messages", done="again" if done.replayed else result, subscriber=subscriber)


async def _message_drawn(visit: Visit, complaint: str = "") -> Response:
    entry = await entry_of(visit)
    known = [("Topic", entry.topic), ("Message", entry.id), ("Status", entry.state), ("Error", entry.error or "")]
    return visit.page(
        "decide.html",
        400 if complaint else 200,
        title=_DISCARD.title,
        button=_DISCARD.button,
        causes=_DISCARD.causes,
        asks_for="",
        subject=entry.id,
        back=f"{visit.base}/messages",
        changed=[],
        complaint=complaint,
        form_open=True,
        known=[(name, value) for name, value in known if value],
        stamp=stamp_of(entry),
        seen={},
        given=visit.form,
        typed="",
    )
