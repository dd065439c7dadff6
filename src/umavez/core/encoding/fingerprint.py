"""Fingerprint: the digest of what a request means."""

from __future__ import annotations

from hashlib import sha256

from umavez.core.encoding.canonical import canonical

VERSION = "1"


def fingerprint(meaning: object) -> str:
    """A versioned digest of `meaning`'s canonical form: equal for equal meanings, whatever the key order.

    The version stands in front so that a later rule never mistakes an old digest for another request.
    """
    return f"{VERSION}:{sha256(canonical(meaning)).hexdigest()}"


def same_meaning(stored: str | None, offered: str | None) -> bool:
    """Whether two fingerprints can stand for one request.

    An absent one, or one made by other rules, says nothing either way and so accuses nobody.
    """
    if stored is None or offered is None or stored == offered:
        return True
    return stored.partition(":")[0] != offered.partition(":")[0]
