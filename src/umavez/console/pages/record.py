"""The page of one key."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from umavez.console.history import About, about_of, told_by
from umavez.console.pages.records import links_of
from umavez.console.panels import Link, Panel
from umavez.console.standing import (
    MEANINGS,
    acts_on,
    command_line,
    fields_of,
    private_of,
)
from umavez.console.together.eyes import proposal_of
from umavez.console.visit import Visit
from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Status
from umavez.core.resolution import NoSuchRecord
from umavez.core.telling.history import steps
from umavez.core.telling.standing import state_of

FEW = 8
"""Moments up to which a timeline is read without a choice of what to see."""

NOTICES = {
    "happened": "Done: it is recorded as happened, and every repeat gets this answer.",
    "freed": "Done: the key is free, and the next who repeats it runs it.",
    "cancelled": "Done: the token can no longer be used.",
    "adopted": "The far side has it: its answer is the outcome.",
    "left": "The far side could not tell; it stays unknown.",
    "exhausted": "The far side never did it, and no retry is left.",
    "reran": "The far side never did it, and it was run again.",
    "running": "The far side never did it, and it runs again now.",
    "waiting": "Done: the message waits for its turn again.",
    "discarded": "Done: the message is discarded.",
    "proposed": "Proposed: it is done when a second person agrees within 15 minutes.",
    "again": "This form had been sent already; nothing was done twice.",
}
"""What a page says about the form that led to it."""


def _to_messages(visit: Visit, about: About) -> list[Link]:
    """The message that the record is the handling of, and the record that wrote it."""
    entry = about.handled
    if entry is None:
        return []
    found = [Link(f"{visit.t('Message')} {entry.id}", f"{visit.base}/message?{urlencode({'id': entry.id})}")]
    if entry.cause:
        found.append(Link(visit.t("The record that wrote this message"), f"{visit.base}/records/{entry.cause}"))
    return found


async def record(visit: Visit) -> Response:
    """One key."""
    seen = await seen_at(visit)
    return await shown(visit, seen)


async def seen_at(visit: Visit) -> Seen:
    """The record that the address names, with the store's time. Raises NoSuchRecord."""
    digest = visit.request.path_params["digest"]
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise NoSuchRecord(Key("?", "record", "?"))
    books = visit.desk.books
    seen = await books.look(lambda: books.digested(digest))
    if seen is None or seen.current is None:
        raise NoSuchRecord(Key("?", "record", digest))
    return seen


async def shown(visit: Visit, seen: Seen, *, revealed: bool = False) -> Response:
    """The page of a record; its private texts only where somebody was allowed to reveal them."""
    record, now = seen.current, seen.now
    if record is None:
        raise NoSuchRecord(Key("?", "record", visit.request.path_params["digest"]))
    books = visit.desk.books

    def ask(panel: Panel) -> Any:
        return panel.links(record)

    left = (record.lease_until or 0) - now
    plan = books.once.plans.declarations.get(record.key.operation)
    lease = {"left": left, "of": max(left, plan.policy.lease_ms if plan else 30_000)}
    state = state_of(record, now)
    about = await books.look(lambda: about_of(books, record))
    told = await books.look(lambda: told_by(visit.desk.histories, record, now))
    only = visit.asked("only") if visit.asked("only") in {moment.what for moment in told} else ""
    return visit.page(
        "record.html",
        record=record,
        now=now,
        digest=record.key.digest.hex(),
        state=state,
        meaning=MEANINGS.get(state, "It stands as the record says."),
        notice=NOTICES.get(visit.asked("done"), ""),
        lease=lease if record.status is Status.PENDING and left > 0 else None,
        acts=acts_on(visit, record, now),
        steps=steps([moment for moment in told if only in ("", moment.what)]),
        whats=Counter(moment.what for moment in told).most_common() if len(told) > FEW else [],
        only=only,
        fields=fields_of(visit, record, now, about),
        private=private_of(record, revealed=revealed),
        links=[*_to_messages(visit, about), *await links_of(visit, ask)],
        proposal=await books.look(lambda: proposal_of(books, record, now)),
        command=command_line(record, now),
    )
