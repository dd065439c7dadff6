"""Console: the ASGI app. Who may come in, which page answers, and what every answer carries."""

from __future__ import annotations

import inspect
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez.console import acts, instruments
from umavez.console.books import Books, Count, TooSlow
from umavez.console.charts import pages as charts
from umavez.console.charts.standing import over_time
from umavez.console.decisions import Decisions
from umavez.console.history import History, MessageHistory, RecordHistory
from umavez.console.looks import HEADERS, THEMES, Looks
from umavez.console.orders import pages as orders
from umavez.console.orders.running import Bulks
from umavez.console.pages.inbox import unknown
from umavez.console.pages.overview import overview
from umavez.console.pages.record import record
from umavez.console.pages.records import records
from umavez.console.panels import Link, Panel, installed, safe_page
from umavez.console.people import VARIABLE, Authorize, users
from umavez.console.together import agreements, caring
from umavez.console.visit import MARK, WHO, Refused, Visit, cookie_name, set_cookie
from umavez.console.words import CHOICE, LANGUAGES
from umavez.core.resolution import NoSuchRecord
from umavez.errors import Crowded, StoreError, UmavezError

LOG = logging.getLogger("umavez.console")
Handler = Callable[[Visit], Awaitable[Response]]


class Pulse(NamedTuple):
    """What every page shows: how many records are unknown, and how many holders are gone."""

    unknown: Count
    lapsed: Count

    @property
    def mark(self) -> str:
        """Another text whenever one of the numbers is another."""
        return f"{self.unknown.number}-{self.lapsed.number}"


class Page(NamedTuple):
    """A route: who may ask for it, and what answers."""

    path: str
    method: str
    may: str
    handler: Handler


PAGES = (
    Page("/", "GET", "look", overview),
    Page("/operation", "GET", "look", charts.operation),
    Page("/over-time", "GET", "look", over_time),
    Page("/unknown", "GET", "look", unknown),
    Page("/records", "GET", "look", records),
    Page("/records/{digest}", "GET", "look", record),
    Page("/records/{digest}/reveal", "POST", "reveal", acts.reveal),
    Page("/records/{digest}/ask", "POST", "decide", acts.ask),
    Page("/records/{digest}/happened", "GET", "decide", acts.happened_page),
    Page("/records/{digest}/happened", "POST", "decide", acts.happened),
    Page("/records/{digest}/not-happened", "GET", "decide", acts.not_happened_page),
    Page("/records/{digest}/not-happened", "POST", "decide", acts.not_happened),
    Page("/records/{digest}/note", "POST", "decide", caring.note),
    Page("/records/{digest}/agree", "GET", "decide", agreements.agree_page),
    Page("/records/{digest}/agree", "POST", "decide", agreements.agree),
    Page("/records/{digest}/cancel", "GET", "decide", acts.cancel_page),
    Page("/records/{digest}/cancel", "POST", "decide", acts.cancel),
    Page("/bulk", "GET", "govern", orders.order_page),
    Page("/bulk", "POST", "govern", orders.order),
    Page("/bulk/{name}", "GET", "look", orders.bulk_page),
    Page("/bulk/{name}/stop", "POST", "decide", orders.stop),
    Page("/bulk/{name}/go", "POST", "govern", orders.go_on),
    Page("/messages", "GET", "look", instruments.messages),
    Page("/message", "GET", "look", instruments.message),
    Page("/message/retry", "POST", "decide", acts.retry),
    Page("/message/discard", "GET", "decide", acts.discard_page),
    Page("/message/discard", "POST", "decide", acts.discard),
    Page("/leases", "GET", "look", instruments.leases),
    Page("/tokens", "GET", "look", instruments.tokens),
    Page("/sequences", "GET", "look", instruments.sequences),
    Page("/processes", "GET", "look", instruments.processes),
    Page("/decisions", "GET", "look", instruments.decisions),
    Page("/decisions.csv", "GET", "look", instruments.decisions_csv),
)
"""Every page and every form, with what it takes. A button is only a hint; this is the door."""

_STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Console:
    """The console of one store. An ASGI app; `close` gives back what it opened."""

    def __init__(
        self,
        once: Once | AsyncOnce,
        *,
        authorize: Authorize | None = None,
        panels: Sequence[Panel] | None = None,
        url: str | None = None,
        as_written: bool = False,
        around: Sequence[Link] | None = None,
    ) -> None:
        self.books = Books(once, url)
        self.decisions = Decisions(self.books, as_written=as_written)
        self.bulks = Bulks(self.books, self.decisions)
        self.histories: list[History] = [RecordHistory(self.books.engine.store), MessageHistory(self.books)]
        self.looks = Looks()
        self.panels = installed(self.books.url if self.books.tables else None) if panels is None else list(panels)
        own = [Link(panel.name, panel.page or "") for panel in self.panels]
        self.around = [link for link in (own if around is None else around) if safe_page(link.page)]
        self.pulse: Pulse | None = None
        self._authorize = authorize
        self._users = users()
        routes = [Route(page.path, self._endpoint(page), methods=[page.method]) for page in PAGES]
        routes += [
            Route("/pulse", self._endpoint(Page("/pulse", "GET", "look", self._told_pulse))),
            Route("/in", self._sign_in, methods=["POST"]),
            Route("/out", self._sign_out, methods=["POST"]),
            Route("/static/{name}", self._static),
        ]
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: self._nowhere})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Close the connections that the console opened; the engine it was given stays as it is."""
        self.bulks.close()
        self.books.close()
        for panel in self.panels:
            getattr(panel, "close", lambda: None)()

    def _endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = await self._visit(request)
            visit.here = page.path
            if visit.who is None:
                response = self._closed(visit)
            else:
                await self._feel()
                response = await _answered(visit, page)
            return _finished(visit, response)

        return answer

    async def _nowhere(self, request: Request, error: Exception) -> Response:
        """What stands at an address that is no page, or takes no such method: a page that leads back."""
        assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for no other
        visit = await self._visit(request)
        if visit.who is None:
            return _finished(visit, self._closed(visit))
        sentence = "This address takes no such request." if error.status_code == 405 else "There is no such page."
        title = "Refused" if error.status_code == 405 else "Not found"
        response = visit.told(title, visit.t(sentence), error.status_code, f"{visit.base}/")
        response.headers.update(error.headers or {})
        return _finished(visit, response)

    async def _visit(self, request: Request) -> Visit:
        mark = request.cookies.get(cookie_name(MARK, request), "")
        visit = Visit(self, request, None, mark[:100])
        if self._authorize is not None:
            who = self._authorize(request)
            visit.who = await who if inspect.isawaitable(who) else who
        elif cookie := request.cookies.get(cookie_name(WHO, request)):
            visit.who = self._users.holder(cookie, time.time())
            visit.session = visit.who is not None
        if not visit.mark:
            visit.mark = secrets.token_urlsafe(24)
        return visit

    def _closed(self, visit: Visit) -> Response:
        if self._authorize is None and self._users:
            url = visit.request.url
            place = f"{url.path}?{url.query}" if url.query else url.path
            there = visit.here and visit.request.method == "GET"
            return visit.page("login.html", 401, complaint="", next=place if there else "")
        if self._authorize is None:
            sentence = visit.t("The console is closed: nothing says who may come in. See {name}.", name=VARIABLE)
        else:
            sentence = visit.t("You may not come in here.")
        return visit.told("Closed", sentence, 403)

    async def _feel(self) -> None:
        """The numbers that every page shows, a few seconds old at most; without them where the store is slow."""
        try:
            self.pulse = await self.books.kept("pulse", self._pulse)
        except (TooSlow, Crowded, StoreError):
            self.pulse = None

    def _pulse(self) -> Pulse:
        return Pulse(self.books.number("unknown"), self.books.number("lapsed"))

    async def _told_pulse(self, visit: Visit) -> Response:
        """For the script: whether something has changed."""
        mark = None if self.pulse is None else self.pulse.mark
        return Response(json.dumps({"mark": mark}), media_type="application/json")

    async def _sign_in(self, request: Request) -> Response:
        visit = await self._visit(request)
        if self._authorize is not None or not self._users:
            return _finished(visit, self._closed(visit))
        return _finished(visit, await _excused(visit, self._signed_in))

    async def _signed_in(self, visit: Visit) -> Response:
        await visit.read_form()
        form = visit.form
        where = form.get("next", "")
        if self._users.tired:
            return visit.page("login.html", 429, complaint="Too many tries; wait a minute.", next=where)
        who = await self.books.look(lambda: self._users.signed_in(form.get("name", ""), form.get("password", "")))
        if who is None:
            LOG.warning("A sign-in to the console was refused (from %s)", visit.address)
            return visit.page("login.html", 401, complaint="Name or password is wrong.", next=where)
        safe = where if where.startswith(f"{visit.base}/") and "//" not in where and "\\" not in where else ""
        response = RedirectResponse(safe or f"{visit.base}/", 303)
        set_cookie(response, visit.request, WHO, self._users.session(who.name, time.time()))
        return response

    async def _sign_out(self, request: Request) -> Response:
        visit = await self._visit(request)
        return _finished(visit, await _excused(visit, _signed_out))

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        text = files("umavez.console").joinpath("static", name).read_bytes()
        return Response(text, media_type=_STATIC[name], headers={**HEADERS, "Cache-Control": "max-age=300"})


async def _signed_out(visit: Visit) -> Response:
    await visit.read_form()
    response = visit.to("/")
    name = cookie_name(WHO, visit.request)
    response.delete_cookie(name, path="/", secure=visit.secure, httponly=True)
    return response


async def _answered(visit: Visit, page: Page) -> Response:
    """What the page answers to whoever may ask for it."""
    if not visit.may(page.may):
        return visit.told("Refused", visit.t("You may not do this: it takes the role {role}.", role=page.may), 403)
    if page.method == "POST":
        return await _excused(visit, lambda visit: _posted(visit, page.handler))
    return await _excused(visit, page.handler)


async def _posted(visit: Visit, handler: Handler) -> Response:
    await visit.read_form()
    return await handler(visit)


async def _excused(visit: Visit, handler: Handler) -> Response:
    """What the handler answers, or the sentence of what went wrong."""
    try:
        return await handler(visit)
    except Refused as refused:
        title = "Not found" if refused.status == 404 else "Refused"
        return visit.told(title, visit.t(str(refused)), refused.status)
    except NoSuchRecord:
        return visit.told("Not found", visit.t("There is no such record."), 404, f"{visit.base}/records")
    except Crowded:
        return visit.told("Too slow", visit.t("Too many ask at once; nothing was done. Try again in a moment."), 503)
    except TooSlow as slow:
        if visit.request.method == "GET":
            return visit.told("Too slow", visit.t(str(slow)), 503)
        late = visit.t("It did not end in time, and may be done all the same: look before you decide anew.")
        return visit.told("Too slow", late, 503, f"{visit.base}/decisions")
    except StoreError as error:
        LOG.warning("The console could not reach its store: %s", error)
        return visit.told("The store does not answer", str(error), 503)
    except UmavezError as error:
        return visit.told("Refused", str(error), 409)


def _finished(visit: Visit, response: Response) -> Response:
    """The response with the headers of every answer, and the cookies of what was chosen."""
    response.headers.update(HEADERS)
    request = visit.request
    if request.cookies.get(cookie_name(MARK, request)) != visit.mark:
        set_cookie(response, request, MARK, visit.mark)
    for name, cookie, known in (("lang", CHOICE, LANGUAGES), ("theme", "umavez_theme", THEMES)):
        if request.query_params.get(name) in known:
            set_cookie(response, request, cookie, request.query_params[name], strict=False)
    return response
