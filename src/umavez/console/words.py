"""Words: what the console says, in English in the text itself and in Portuguese in `portuguese.json` beside it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = {"en": "English", "pt": "Português"}
CHOICE = "umavez_lang"
"""The cookie, and with `lang` the parameter, in which a reader's choice is kept for all pages of a host."""


def language_of(request: Any, otherwise: str = "en") -> str:
    """The reader's: what was chosen here, else what the browser asks for first of those there are.

    `request` is a Starlette request; `otherwise` is the language of somebody who asks for none of them.
    """
    chosen = request.query_params.get("lang") or request.cookies.get(CHOICE)
    if chosen in LANGUAGES:
        return str(chosen)
    ranked = []
    for place, part in enumerate(request.headers.get("accept-language", "")[:500].split(",")):
        name, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((-float(weight or 1), place, name[:2].lower()))
        except ValueError:
            continue
    return next((name for _, _, name in sorted(ranked) if name in LANGUAGES), otherwise)


def said(lang: str, text: str, **values: object) -> str:
    """`text` in the language, with `values` in its places. What has no translation is said as it is."""
    text = portuguese().get(text, text) if lang == "pt" else text
    # Without values it may be a stranger's, whose braces mean nothing.
    return text.format(**values) if values else text


def grouped(lang: str, number: int) -> str:
    """A number in groups of three digits, as the language writes them."""
    text = f"{number:,}"
    return text.replace(",", ".") if lang == "pt" else text


@cache
def portuguese() -> dict[str, str]:
    """Portuguese by English."""
    words: dict[str, str] = json.loads(files("umavez.console").joinpath("portuguese.json").read_text("utf-8"))
    return words
