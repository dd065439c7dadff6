"""The Idempotency-Key field: a Structured Field string, or the bare form that most clients send, to one key."""

from __future__ import annotations

import re
from collections.abc import Sequence

from umavez.core.key import MAX_LENGTH
from umavez.http.contract.problem import KEY_INVALID, KEY_MISSING, KEY_REPEATED, Problem

FIELD = "Idempotency-Key"

_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")
"""Visible ASCII without the marks that mean something in a Structured Field: quote, comma, semicolon, backslash."""

_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"((?: *; *[a-z*][a-z0-9_.*-]*(?:=[!-+\--:<-~]+)?)*)')
"""An sf-string with the parameters that RFC 8941 lets anybody add; they are not part of the key."""

_VISIBLE = re.compile(r"[!-~]+")


class KeyFormat:
    """Which keys are accepted: visible ASCII without spaces, of bounded length, and matching `pattern` if given."""

    __slots__ = ("_bare", "_pattern", "longest", "shortest")

    def __init__(self, shortest: int = 1, longest: int = MAX_LENGTH, pattern: str | None = None) -> None:
        self.shortest = shortest
        self.longest = min(longest, MAX_LENGTH)
        self._pattern = None if pattern is None else re.compile(pattern)
        self._bare = _BARE.fullmatch

    @property
    def pattern(self) -> str | None:
        """The pattern as published, or None."""
        return None if self._pattern is None else self._pattern.pattern

    def optional(self, values: Sequence[str]) -> str | None:
        """The one key that the field's `values` name, or None where there is no such field. Raises Problem."""
        return self.key(values) if values else None

    def key(self, values: Sequence[str]) -> str:
        """The one key that the field's `values` name. Raises Problem: missing, repeated, malformed."""
        if not values:
            raise Problem(KEY_MISSING)
        if len(values) > 1:
            raise Problem(KEY_REPEATED)
        text = values[0].strip(" \t")
        if self._bare(text) is None:
            text = _unquoted(text)
        if not self.shortest <= len(text) <= self.longest:
            raise Problem(KEY_INVALID, f"The key must have {self.shortest} to {self.longest} characters.")
        if self._pattern is not None and self._pattern.fullmatch(text) is None:
            raise Problem(KEY_INVALID, "The key does not have the form that this service publishes.")
        return text


def _unquoted(text: str) -> str:
    """The content of an sf-string. Bare and quoted forms of one key are one key."""
    if not text:
        raise Problem(KEY_MISSING)
    found = _STRING.fullmatch(text)
    if found is None:
        # Servers join repeated fields with a comma, so a list and a repetition look alike here.
        raise Problem(KEY_REPEATED if "," in text else KEY_INVALID)
    inside = found[1]
    if "\\" in inside:
        inside = inside.replace('\\"', '"').replace("\\\\", "\\")
    if _VISIBLE.fullmatch(inside) is None:
        raise Problem(KEY_INVALID)
    return inside
