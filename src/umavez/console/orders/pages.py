"""Orders: the pages on which many records are decided about at once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from umavez.console.acts import deed_of, unsaid
from umavez.console.books import DECIDE_SECONDS
from umavez.console.looks import moment
from umavez.console.orders.choosing import FREE, HAPPENED, MOST, Order, Sight, TooMany, chosen, place_order
from umavez.console.orders.running import Standing, stop_name
from umavez.console.pages.inbox import CAUSES
from umavez.console.search import Search, Unreadable, parsed
from umavez.console.visit import Refused, Visit
from umavez.core.key import Key
from umavez.core.record import Instant
from umavez.core.resolution import NoSuchRecord
from umavez.errors import ConfigurationError, KeyReused, NotStorable
from umavez.http.contract.answer import is_request

SHOWN = 10
LONGEST_NAME = 60
_TITLES = {FREE: "None of them happened", HAPPENED: "All of them happened"}
_ANSWERS = ("result", "status", "body", "headers")


async def order_page(visit: Visit) -> Response:
    """Where somebody decides about all records that a search finds."""
    return await _drawn(visit)


async def order(visit: Visit) -> Response:
    """Take the order: as many as were typed, as they were seen. Then carry it out."""
    action, search = _asked(visit)
    if complaint := unsaid(visit):
        return await _drawn(visit, visit.t(complaint))
    try:
        sight = Sight.read(visit.form.get("sight", ""))
    except ConfigurationError as unread:
        return await _drawn(visit, str(unread))
    typed = visit.form.get("typed", "").replace(".", "").replace(",", "").strip()
    if typed != str(len(sight.seen)):
        return await _drawn(visit, visit.t("What was typed is not the number; nothing was done."))
    answer = {name: visit.form[name] for name in _ANSWERS if name in visit.form}
    decisions, bulks = visit.desk.decisions, visit.desk.bulks
    if action == HAPPENED:
        try:
            decisions.answer(Key("?", search.operation or "?", "?"), answer)
        except NotStorable as complaint_:
            return await _drawn(visit, str(complaint_))
    deed = deed_of(visit, "bulk", visit.form["form"][:LONGEST_NAME], None)
    deed = deed._replace(form=deed.form[:LONGEST_NAME])
    wanted = Order(deed.who.name, deed.address, action, search.text, deed.reason, sight, _at(visit), answer)
    await visit.desk.books.look(lambda: place_order(decisions, deed, wanted), DECIDE_SECONDS)
    bulks.begin(deed.form)
    return visit.to(f"/bulk/{deed.form}")


def _at(visit: Visit) -> Instant:
    stamp = visit.form.get("stamp", "")
    return int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 16 else 0


def _asked(visit: Visit) -> tuple[str, Search]:
    action = visit.asked("action")
    if action not in _TITLES:
        raise Refused("Say what is to be decided: action=happened, or action=not-happened.", 400)
    try:
        return action, parsed(visit.asked("q"))
    except Unreadable as unread:
        raise Refused(str(unread), 400) from unread


async def _drawn(visit: Visit, complaint: str = "") -> Response:
    """The page with what the search finds now, and a form that holds what it showed."""
    action, search = _asked(visit)
    books = visit.desk.books
    try:
        found = await books.look(lambda: chosen(books, search, action))
    except (TooMany, ConfigurationError) as unfit:
        raise Refused(str(unfit), 400) from unfit
    groups = Counter((record.key.operation, record.error or "") for record in found.records)
    asks_for = ""
    if action == HAPPENED:
        asks_for = "response" if is_request(search.operation or "") else "result"
    return visit.page(
        "bulk_order.html",
        400 if complaint else 200,
        title=_TITLES[action],
        action=action,
        q=search.text,
        complaint=complaint,
        records=found.records[:SHOWN],
        number=len(found.records),
        for_two=found.for_two,
        groups=groups.most_common(SHOWN),
        now=found.now,
        sight=Sight.of(found.records).written,
        cause=CAUSES[2][1] if action == FREE else CAUSES[1][1],
        asks_for=asks_for,
        given=visit.form,
        most=MOST,
    )


async def bulk_page(visit: Visit) -> Response:
    """How far an order got."""
    standing = await _standing(visit)
    name = visit.request.path_params["name"]
    response = visit.page(
        "bulk.html",
        bulk=name,
        order=standing.order,
        tally=standing.tally,
        state=standing.state,
        at=moment(standing.order.at)[:19],
        stopping=standing.state == "running" and await visit.desk.books.look(lambda: visit.desk.bulks.is_stopped(name)),
    )
    if standing.state == "running":
        # Without script the page keeps itself fresh; it has no form that a reload could spoil.
        response.headers["Refresh"] = "2"
    return response


async def stop(visit: Visit) -> Response:
    """Stop an order after the record at hand."""
    await _standing(visit)
    name = visit.request.path_params["name"]
    deed = deed_of(visit, "stop bulk", name, None)._replace(form=stop_name(name), stamp="", means={})
    with suppress(KeyReused):  # somebody else has stopped it
        await visit.desk.books.look(lambda: visit.desk.decisions.carry_out(deed, lambda _: "stopped"), DECIDE_SECONDS)
    return visit.to(f"/bulk/{name}")


async def go_on(visit: Visit) -> Response:
    """Take up an order whose process is gone."""
    await _standing(visit)
    name = visit.request.path_params["name"]
    if not visit.desk.bulks.begin(name):
        raise Refused("Another order is carried out here; try again when it is done.", 409)
    return visit.to(f"/bulk/{name}")


async def _standing(visit: Visit) -> Standing:
    name: Any = visit.request.path_params["name"]
    if len(name) > LONGEST_NAME or "\0" in name:
        raise NoSuchRecord(Key("?", "bulk", "?"))
    found = await visit.desk.books.look(lambda: visit.desk.bulks.standing(name))
    if found is None:
        raise NoSuchRecord(Key("?", "bulk", name))
    return found
