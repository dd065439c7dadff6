"""The way around: one navigation over all pages of the server, in the reader's language.

A page has MARK where it stands, and is sent by `framed`. The reader's language is what was chosen on any page, else
what the browser asks for, else Portuguese.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from umavez.console import CHOICE, LANGUAGES, Link, language_of

MARK = "<!-- around -->"
STYLES = "/front.css"
PLACES = (
    Link("Start", "/"),
    Link("Console", "/console/"),
    Link("Corridas", "/corridas"),
    Link("Mailing", "/mailing"),
    Link("Processos", "/processos"),
    Link("Fiscal", "/fiscal"),
    Link("API", "/docs"),
)
"""Every page of the server that leads somewhere, in the order of the navigation. The systems' names are names."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_PORTUGUESE = {"Start": "Início", "Pages": "Páginas"}
_TAGS = {"pt": "pt-BR", "en": "en"}
_MOST = 500
YEAR = 365 * 86_400


def language(request: Request) -> str:
    """The reader's language."""
    return language_of(request, "pt")


def framed(request: Request, text: str, headers: Mapping[str, str], status: int = 200) -> HTMLResponse:
    """The page with its navigation; a language that was chosen on it is remembered."""
    response = HTMLResponse(text.replace(MARK, drawn(request), 1), status, headers=dict(headers))
    response.headers["Vary"] = "Cookie, Accept-Language"
    chosen = request.query_params.get("lang")
    if chosen in LANGUAGES:
        secure = request.url.scheme == "https"
        response.set_cookie(CHOICE, chosen, max_age=YEAR, path="/", secure=secure, httponly=True, samesite="lax")
    return response


def drawn(request: Request) -> str:
    """The navigation, with the place of this page in it."""
    lang = language(request)
    links = "".join(_link(link, lang, request.url.path) for link in PLACES)
    others = "".join(_switch(request, code, name) for code, name in LANGUAGES.items() if code != lang)
    pages = said(lang, "Pages")
    return (
        f'<link rel="stylesheet" href="{STYLES}"><div class="around" role="navigation" lang="{_TAGS[lang]}"'
        f' aria-label="{pages}"><span>{links}</span>{others}</div>'
    )


def said(lang: str, text: str, portuguese: Mapping[str, str] = _PORTUGUESE) -> str:
    """A text of ours in the language."""
    return portuguese.get(text, text) if lang == "pt" else text


def _link(link: Link, lang: str, here: str) -> str:
    current = ' aria-current="page"' if link.page == here or (link.page != "/" and here.startswith(link.page)) else ""
    return f'<a href="{link.page}"{current}>{escape(said(lang, link.text))}</a>'


def _switch(request: Request, code: str, name: str) -> str:
    """The way to this very page in another language."""
    kept = [(key, value[:_MOST]) for key, value in request.query_params.multi_items()[:10] if key != "lang"]
    query = escape(urlencode([*kept, ("lang", code)]))
    return f'<a class="other" href="?{query}" hreflang="{_TAGS[code]}" lang="{_TAGS[code]}">{escape(name)}</a>'


async def styles() -> Response:
    """How the navigation, the start and the reference look."""
    text = files("umavez_systems.front").joinpath("front.css").read_bytes()
    return Response(text, media_type="text/css", headers={**HEADERS, "Cache-Control": "max-age=300"})
