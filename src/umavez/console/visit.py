"""Visit: one request, who sends it, and what keeps another site from sending it in that person's name."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from umavez.console.looks import theme_of
from umavez.console.people import SESSION_SECONDS, Who
from umavez.console.standing import tone_of
from umavez.console.words import language_of, said
from umavez.core.record import Record
from umavez.errors import UmavezError

if TYPE_CHECKING:
    from umavez.console.app import Console

MOST_FORM = 4_000_000
"""Bytes of a form: a body of a million, each of its characters written as three."""
FORM_SECONDS = 30.0
NAVIGATION = (
    ("/", "Overview"),
    ("/unknown", "Unknown"),
    ("/records", "Records"),
    ("/messages", "Messages"),
    ("/leases", "Leases"),
    ("/tokens", "Tokens"),
    ("/sequences", "Sequences"),
    ("/processes", "Processes"),
    ("/decisions", "Decisions"),
)


KEYBOARD = (
    ("/", "Search"),
    ("j k", "the next row, the one before"),
    ("Enter", "open it"),
    ("g o", "Overview"),
    ("g u", "Unknown"),
    ("g r", "Records"),
    ("g m", "Messages"),
    ("g d", "Decisions"),
    ("p", "stop looking for changes"),
    ("t", "light or dark"),
    ("?", "these keys"),
)
"""What the script adds; no key decides anything."""


class Refused(UmavezError):
    """A request that is not carried out; `status` says how HTTP puts it."""

    def __init__(self, sentence: str, status: int = 403) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(slots=True)
class Visit:
    """One request. `mark` is the browser's own, which every form has to bring along."""

    desk: Console
    request: Request
    who: Who | None
    mark: str
    session: bool = False
    form: Mapping[str, str] = field(default_factory=dict)
    here: str = ""

    @property
    def lang(self) -> str:
        """The language of the page."""
        return language_of(self.request)

    @property
    def base(self) -> str:
        """The path under which the console is mounted."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def address(self) -> str:
        """Where the request comes from, as the server saw it."""
        return "" if self.request.client is None else self.request.client.host

    def may(self, role: str) -> bool:
        """Whether who is here may do so."""
        return self.who is not None and role in self.who.may

    @property
    def somebody(self) -> Who:
        """Who is here. Raises Refused where nobody is."""
        if self.who is None:
            raise Refused("Nobody is signed in.", 401)
        return self.who

    def asked(self, name: str) -> str:
        """A parameter of the address; '' where it is not there. Raises Refused for one that no store could look for."""
        found = self.request.query_params.get(name, "")
        if "\0" in found:
            raise Refused("An address holds no NUL; take it out.", 400)
        return found

    def t(self, text: str, **values: object) -> str:
        """A sentence of ours in the reader's language."""
        return said(self.lang, text, **values)

    def hidden(self, stamp: object) -> Markup:
        """What every form carries: the browser's mark, a key of the form's own, and the stamp that the page shows."""
        fields = (("token", self.mark), ("form", secrets.token_urlsafe(16)), ("stamp", stamp))
        return Markup("").join(
            Markup('<input type="hidden" name="{}" value="{}">').format(name, value) for name, value in fields
        )

    def page(self, name: str, status: int = 200, **about: Any) -> Response:
        """A page of the console; `about` is what its template needs beyond the frame."""
        kept = [pair for pair in self.request.query_params.multi_items() if pair[0] not in ("lang", "theme", "done")]
        frame = {
            "lang": self.lang,
            "theme": theme_of(self.request),
            "base": self.base,
            "who": self.who,
            "session": self.session,
            "token": self.mark,
            "hidden": self.hidden,
            "navigation": NAVIGATION,
            "keyboard": KEYBOARD,
            "here": self.here,
            "around": self.desk.around,
            "pulse": self.desk.pulse,
            "switch": f"{urlencode(kept)}&" if kept else "",
            "tone": tone_of,
            "may_decide": self.may("decide"),
            "may_reveal": self.may("reveal"),
            "may_govern": self.may("govern"),
        }
        return self.desk.looks.drawn(name, status, **{**frame, **about})

    def told(self, title: str, sentence: str, status: int, back: str | None = None) -> Response:
        """A page with one sentence."""
        return self.page("told.html", status, title=title, sentence=sentence, complaint=status >= 400, back=back)

    def to(self, place: str, **about: str) -> Response:
        """Another page of the console, to be got: a reload sends nothing twice."""
        return RedirectResponse(f"{self.base}{place}{'?' + urlencode(about) if about else ''}", 303)

    def of(self, record: Record) -> str:
        """The place of a record's page."""
        return f"/records/{record.key.digest.hex()}"

    async def read_form(self) -> None:
        """Take the form in. Raises Refused for one that another site's page may have sent, or that is too large."""
        refuse_foreign(self.request)
        self.form = await _form(self.request)
        if not self.mark or not hmac.compare_digest(self.form.get("token", "").encode(), self.mark.encode()):
            raise Refused("This form was not drawn for this browser, or its cookie is gone; open the page again.")

    @property
    def secure(self) -> bool:
        """Whether browsers keep a cookie with the prefix that nobody else can set."""
        return self.request.url.scheme == "https"


def refuse_foreign(request: Request) -> None:
    """Raise Refused unless the browser says that a page of this very host sends the form."""
    headers = request.headers
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise Refused("The form comes from a page of another site; nothing was done.")
        return
    host = headers.get("host", "?").lower()
    if headers.get("origin", "").lower() not in (f"http://{host}", f"https://{host}"):
        raise Refused("The browser does not say that the form comes from this console; nothing was done.")


async def _form(request: Request) -> Mapping[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused("A form is application/x-www-form-urlencoded.", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_FORM:
                    raise Refused("The form is too large.", 413)
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=40))
    except TimeoutError:
        raise Refused("The form did not arrive in time.", 408) from None
    except ValueError:
        raise Refused("The form cannot be read.", 400) from None


MARK, WHO = "umavez_form", "umavez_who"


def cookie_name(name: str, request: Request) -> str:
    """Over TLS with the prefix that only this host can set; a browser takes it there alone."""
    return f"__Host-{name}" if request.url.scheme == "https" else name


def set_cookie(response: Response, request: Request, name: str, value: str, *, strict: bool = True) -> None:
    """A cookie of the console's own, which no script reads; one that is not `strict` only says what somebody likes."""
    response.set_cookie(
        cookie_name(name, request) if strict else name,
        value,
        max_age=SESSION_SECONDS if strict else 365 * 86_400,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict" if strict else "lax",
    )
