"""Names of series and keys, checked before they reach a database that might cut them."""

from __future__ import annotations

from umavez.errors import InvalidKey
from umavez.sequences.flows import Series

MAX_LENGTH = 255


def checked(organisation: str, series: str, key: str | None = None) -> Series:
    """The series. Raises InvalidKey for a text that is empty or too long."""
    for what, text in (("organisation", organisation), ("series", series), ("key", key)):
        if text is not None and not 0 < len(text) <= MAX_LENGTH:
            raise InvalidKey(f"The {what} of a number must have 1 to {MAX_LENGTH} characters; shorten or name it.")
    return Series(organisation, series)
