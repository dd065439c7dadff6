"""Agreements: the page on which a second person agrees to what was proposed about a record, and does it by that."""

from __future__ import annotations

from starlette.responses import Response

from umavez.console.acts import deed_of, unsaid
from umavez.console.books import DECIDE_SECONDS
from umavez.console.looks import human
from umavez.console.pages.inbox import CAUSES
from umavez.console.pages.record import seen_at
from umavez.console.people import Who
from umavez.console.standing import known_of
from umavez.console.together.eyes import Proposal, proposal_of
from umavez.console.visit import Refused, Visit
from umavez.core.policy import Answer, NotHappened
from umavez.core.record import Record
from umavez.core.resolution import AlreadySettled, RecordChanged
from umavez.errors import OperationInProgress

_GONE = "Nothing is proposed about it as it stands, or no longer; nothing was done."


async def agree_page(visit: Visit) -> Response:
    """Where a second person agrees."""
    record, proposal, left = await _proposed(visit)
    return _drawn(visit, record, proposal, left)


async def agree(visit: Visit) -> Response:
    """Carry out what two people want."""
    record, proposal, left = await _proposed(visit)
    if complaint := unsaid(visit):
        return _drawn(visit, record, proposal, left, visit.t(complaint))
    deed = deed_of(visit, proposal.action, record.key.digest.hex(), record.key)
    if deed.stamp != record.stamp:
        raise Refused(_GONE, 409)
    both = Who(f"{proposal.who} + {deed.who.name}", deed.who.may)
    deed = deed._replace(who=both, reason=f"{proposal.reason} / {deed.reason}"[:1000])
    decisions = visit.desk.decisions
    answer: Answer = NotHappened()
    if proposal.action == "happened":
        answer = decisions.answer(record.key, proposal.says)
    try:
        done = await visit.desk.books.look(
            lambda: decisions.resolve(deed, answer, override=proposal.override), DECIDE_SECONDS
        )
    except (RecordChanged, AlreadySettled, OperationInProgress):
        raise Refused(_GONE, 409) from None
    visit.desk.books.forget()
    return visit.to(visit.of(record), done="again" if done.replayed else done.told["result"])


async def _proposed(visit: Visit) -> tuple[Record, Proposal, str]:
    """The record, what is proposed about it and how long for. Raises Refused for whoever proposed it."""
    seen = await seen_at(visit)
    record, books = seen.current, visit.desk.books
    if record is None:
        raise Refused(_GONE, 409)
    proposal = await books.look(lambda: proposal_of(books, record, seen.now))
    if proposal is None:
        raise Refused(_GONE, 409)
    if proposal.who == visit.somebody.name:
        raise Refused("It takes a second person: you proposed it yourself.")
    if proposal.override and not visit.may("govern"):
        raise Refused("To change what is settled takes the role govern.")
    return record, proposal, human(visit.lang, proposal.left(seen.now))


def _drawn(visit: Visit, record: Record, proposal: Proposal, left: str, complaint: str = "") -> Response:
    happened = proposal.action == "happened"
    shown = [(name.capitalize(), proposal.says[name]) for name in ("result", "status", "body", "headers")
             if proposal.says.get(name)]  # fmt: skip
    return visit.page(
        "decide.html",
        400 if complaint else 200,
        title="Agree that it happened" if happened else "Agree that it did not happen",
        button="Agree, and record it",
        causes=(CAUSES[1][1] if happened else CAUSES[2][1],),
        asks_for="",
        subject=f"{record.key.operation} {record.key.value}",
        back=f"{visit.base}{visit.of(record)}",
        changed=[],
        complaint=complaint,
        form_open=True,
        known=[
            *known_of(visit, record),
            ("Proposed by", proposal.who),
            ("Why", proposal.reason),
            *shown,
            ("Time left", left),
        ],
        stamp=record.stamp,
        seen={},
        given=visit.form,
        typed="",
    )
