"""Caring: the form by which somebody takes a record in doubt on, gives it to another, or sets it aside for a while."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from umavez.console.acts import deed_of
from umavez.console.books import DECIDE_SECONDS
from umavez.console.decisions import SHORTEST_REASON
from umavez.console.orders.choosing import mark_of
from umavez.console.pages.record import seen_at
from umavez.console.together.notes import ASIDE, LONGEST_NAME, Note, keep
from umavez.console.visit import Refused, Visit
from umavez.core.resolution import RecordChanged


async def note(visit: Visit) -> Response:
    """Keep who looks after a record, and until when it is set aside."""
    seen = await seen_at(visit)
    record, form = seen.current, visit.form
    if record is None:
        raise Refused("There is no such record.", 404)
    hours = ASIDE.get(form.get("hours", ""), 0)
    reason = form.get("reason", "").strip()
    if hours and len(reason) < SHORTEST_REASON:
        raise Refused("Say why it is set aside, in at least 8 characters.", 400)
    deed = deed_of(visit, "note", record.key.digest.hex(), record.key)
    to = form.get("to", "").strip()[:LONGEST_NAME]
    written = Note(deed.who.name, to, seen.now + hours if hours else 0, deed.reason, mark_of(record).hex())
    books, decisions = visit.desk.books, visit.desk.decisions

    def work(connection: Any) -> str:
        if record.stamp != deed.stamp:
            raise RecordChanged(record)
        return keep(books, deed, connection, written)

    try:
        await books.look(lambda: decisions.carry_out(deed, work), DECIDE_SECONDS)
    except RecordChanged:
        sentence = visit.t("It has changed since you looked; nothing was done.")
        return visit.told("Changed", sentence, 409, f"{visit.base}{visit.of(record)}")
    return visit.to("/unknown")
