"""Words: what the console says, in English in the text itself and in Portuguese in `portuguese.json` beside it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

LANGUAGES = {"en": "English", "pt": "Português"}


def said(lang: str, text: str, **values: object) -> str:
    """`text` in the language, with `values` in its places. What has no translation is said as it is."""
    text = portuguese().get(text, text) if lang == "pt" else text
    # Without values it may be a stranger's, whose braces mean nothing.
    return text.format(**values) if values else text


@cache
def portuguese() -> dict[str, str]:
    """Portuguese by English."""
    words: dict[str, str] = json.loads(files("umavez.console").joinpath("portuguese.json").read_text("utf-8"))
    return words
