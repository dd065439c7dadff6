"""Texts for people: what is said about an error or an answer, in a form that every store can keep."""

from __future__ import annotations

LONGEST = 2000
"""Longest text of this kind, in characters; beyond it is cut."""


def legible(text: object) -> str:
    """`text` without NUL and lone surrogates, which not every store takes, and in bounded length."""
    try:
        words = text if isinstance(text, str) else str(text)
    except Exception as error:  # noqa: BLE001  # an object's own __str__ may do anything
        words = f"a {type(text).__name__} that cannot be shown ({type(error).__name__})"
    return words[:LONGEST].replace("\0", "\u2400").encode("utf-8", "replace").decode()
