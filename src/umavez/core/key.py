"""Key: the name of one intended effect."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256

from umavez.core.encoding.canonical import canonical
from umavez.errors import InvalidKey

MAX_LENGTH = 255
"""Longest scope, operation or value, in characters (seed 003: `String(255)`)."""


class Key:
    """Names one intended effect: `scope` (whose), `operation` (what), `value` (which).

    Two keys are the same effect exactly when all three texts are equal, code point by code
    point. Stores index `digest`; the texts are kept beside it for people.
    """

    __slots__ = ("digest", "operation", "scope", "value")

    scope: str
    operation: str
    value: str
    digest: bytes

    def __init__(self, scope: str, operation: str, value: str, prefix: bytes | None = None) -> None:
        """`prefix` is what `prefix_of(scope, operation)` gave, computed once by callers that make many keys."""
        if prefix is None:
            prefix = prefix_of(scope, operation)
        try:
            text = value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InvalidKey(_complaint("value", value)) from None
        # Every character is at least one byte, so short texts are settled without counting characters.
        if (not 0 < len(text) <= MAX_LENGTH or b"\0" in text) and (complaint := _complaint("value", value)):
            raise InvalidKey(complaint)
        self.scope = scope
        self.operation = operation
        self.value = value
        self.digest = sha256(prefix + text).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Key({self.scope!r}, {self.operation!r}, {self.value!r})"

    def __str__(self) -> str:
        return f"{self.operation} {self.value!r} of {self.scope!r}"


def prefix_of(scope: str, operation: str) -> bytes:
    """What the digest of every key of `operation` in `scope` begins with. Raises InvalidKey.

    Kept for the scopes in use: over HTTP each principal is one, and comes back with every request.
    """
    if type(scope) is not str or type(operation) is not str:
        scope, operation = str.__str__(checked("scope", scope)), str.__str__(checked("operation", operation))
    return _prefix(scope, operation)


@lru_cache(maxsize=2048)
def _prefix(scope: str, operation: str) -> bytes:
    whose, what = checked("scope", scope).encode(), checked("operation", operation).encode()
    # Lengths before texts: without them ("ab", "c") and ("a", "bc") would be one key.
    return b"%d:%b%d:%b" % (len(whose), whose, len(what), what)


def checked(part: str, text: str) -> str:
    """`text`, if it can be a part of a key. Raises InvalidKey."""
    if complaint := _complaint(part, text):
        raise InvalidKey(complaint)
    return text


def _complaint(part: str, text: object) -> str:
    if not isinstance(text, str):
        return f"The key's {part} must be text, not {type(text).__name__}; convert it with str()."
    if not text:
        return f"The key's {part} is empty; give the text that identifies it."
    if len(text) > MAX_LENGTH:
        return (
            f"The key's {part} has {len(text)} characters and at most {MAX_LENGTH} are allowed; "
            "shorten it or use derived_key()."
        )
    if "\0" in text:
        return f"The key's {part} holds NUL, which no store shows as it is; send text without it."
    if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
        return f"The key's {part} holds a lone surrogate; send well-formed Unicode text."
    return ""


def derived_key(process_instance: str, activity: str, operation: str, inputs: object) -> str:
    """The key value of a process step (seed 003): instance, activity, operation and a digest of the input.

    The same input gives the same value whatever the order of its keys; nothing about time is in it.
    A text above 255 characters is replaced by its SHA-256, with the operation in front for people.
    """
    digest = sha256(canonical(inputs)).hexdigest()
    # The parts as a JSON array: joined by "_" alone, parts that contain "_" could be confused.
    parts = json.dumps([process_instance, activity, operation, digest])
    if "_" in process_instance:
        # Only such an instance can pass for another with a longer activity: "a_b" + "c" reads as "a" + "b_c".
        digest = sha256(parts.encode()).hexdigest()
    text = f"{process_instance}_{activity}_{operation}_{digest}"
    if len(text) <= MAX_LENGTH:
        return text
    return f"{operation[:100]}_{sha256(parts.encode()).hexdigest()}"
