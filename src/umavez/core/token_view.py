"""What issuing and looking at a token gives, and the times that hold unless told otherwise."""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.core.key import MAX_LENGTH, Key
from umavez.core.record import Instant
from umavez.core.token import TokenState
from umavez.errors import InvalidKey

TTL = 300.0
"""Seconds a token may be redeemed unless told otherwise (seed 001)."""
BOUNDS = (10.0, 86_400.0)
"""Shortest and longest time to redeem, in seconds."""
LINGER = 3600.0
"""Seconds that an expired token is still known as expired, before the sweep may make it an unknown one."""
KEEP = 30 * 86_400.0
"""Seconds that a used token gives the same result again."""
WAIT = 10.0
"""Seconds that a second click waits for the first one's result."""
LOOK = 100
"""How many of an owner's tokens are looked at when it asks for another."""


class Issued(NamedTuple):
    """A new token. It is stored nowhere: hand it to its owner now. `expires_at` is in milliseconds since the epoch."""

    token: str
    expires_at: Instant
    key: Key

    def __repr__(self) -> str:
        # Without the token: a representation ends up in logs.
        return f"Issued({self.key}, expires_at={self.expires_at})"


class TokenView(NamedTuple):
    """A token as its owner may see it. `outcome` is what its use created, once it was used."""

    state: TokenState
    expires_at: Instant
    payload: Any
    outcome: Any
    key: Key


def named(owner: str) -> str:
    """The owner as it is kept. Raises InvalidKey for what is not a text of 1 to 255 characters."""
    if not 0 < len(owner) <= MAX_LENGTH or "\0" in owner:
        raise InvalidKey("owner must be a text of 1 to 255 characters that says whose token it is.")
    return owner
