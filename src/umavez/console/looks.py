"""Looks: pages from templates. What comes from strangers is escaped; what we say is in the reader's language."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import Response

from umavez.console.books import Count
from umavez.console.words import LANGUAGES, grouped, said
from umavez.core.record import Instant, Millis, Position

THEMES = ("light", "dark")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LAST = 253_402_300_799_999
"""The last instant that every store can compare with: the end of the year 9999."""
_CURSOR = re.compile(r"([0-9]{1,16})-([0-9a-f]{64})")


class Looks:
    """Draws pages."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("umavez.console"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def drawn(self, name: str, status: int = 200, **about: Any) -> Response:
        """The page `name`. `about` holds what the template asks for, `lang` among it."""
        lang = about["lang"]
        about |= {
            "t": partial(said, lang),
            "ago": partial(ago, lang),
            "long": partial(human, lang),
            "moment": moment,
            "counted": partial(counted, lang),
            "grouped": partial(grouped, lang),
            "cut": cut,
            "urlencode": lambda **pairs: urlencode({key: value for key, value in pairs.items() if value}),
            "path": lambda text: quote(text, safe=""),
            "languages": LANGUAGES,
        }
        text = self._templates.get_template(name).render(**about)
        return Response(text, status, media_type="text/html")


def theme_of(request: Request) -> str:
    """What was chosen here; '' leaves it to the browser."""
    chosen = request.query_params.get("theme") or request.cookies.get("umavez_theme")
    return chosen if chosen in THEMES else ""


def moment(instant: Instant | None) -> str:
    """An instant in UTC, to the millisecond."""
    if instant is None:
        return ""
    try:
        at = datetime.fromtimestamp(instant // 1000, UTC).replace(microsecond=instant % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return str(instant)
    return at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def human(lang: str, duration: Millis) -> str:
    """A duration in one unit that people count in, which no line break tears off its number."""
    whole = max(duration, 0) // 1000
    if whole < 120:
        return f"{whole}\N{NO-BREAK SPACE}s"
    if whole < 2 * 3600:
        return f"{round(whole / 60)}\N{NO-BREAK SPACE}min"
    if whole < 2 * 86400:
        return f"{round(whole / 3600)}\N{NO-BREAK SPACE}h"
    return f"{round(whole / 86400)}\N{NO-BREAK SPACE}{said(lang, 'days')}"


def ago(lang: str, instant: Instant, now: Instant) -> str:
    """How far an instant is from now, and on which side."""
    if instant <= now:
        return said(lang, "{time} ago", time=human(lang, now - instant))
    return said(lang, "in {time}", time=human(lang, instant - now))


def counted(lang: str, count: Count) -> str:
    """A number as far as it was counted: `12`, `10,000+`, or a dash where it took too long."""
    if count.number is None:
        return "—"
    number = grouped(lang, count.number)
    return f"{number}+" if count.more else number


def cut(text: str | None, most: int = 120) -> str:
    """A text in a row's length."""
    text = text or ""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cursor(position: Position | None) -> str:
    """Where a list goes on, for a link."""
    return "" if position is None else f"{position.created_at}-{position.digest.hex()}"


def position(text: str) -> Position | None:
    """The position that `cursor` wrote; None for anything else, which begins at the start."""
    written = _CURSOR.fullmatch(text)
    if written is None or int(written[1]) > LAST:
        return None
    return Position(int(written[1]), bytes.fromhex(written[2]))
