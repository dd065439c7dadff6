"""Commands: how what the store says to Redis travels.

Everything rare is packed by hiredis. A swap is put together by hand: most of its words are the same from one
call to the next, so they are made once and kept as bytes.
"""

from __future__ import annotations

import hashlib
from binascii import hexlify
from functools import lru_cache
from importlib.resources import files

from hiredis import pack_command

from umavez.clock import Clock
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Status
from umavez.core.telling.events import MOST_EVENTS, holder_of
from umavez.stores.redis.events import rest_of as event_rest
from umavez.stores.redis.index import place_of
from umavez.stores.redis.value import quoted, rest_of

GRACE = 86_400_000
"""Milliseconds a value outlives its expiry: the comparison of expires_at decides, never Redis's own TTL."""

FARTHEST = 10**13
"""The longest TTL, in milliseconds, that Redis is asked for: three centuries."""


def packed(*words: str | bytes | int) -> bytes:
    """A command as it travels."""
    command: bytes = pack_command(words)  # type: ignore[arg-type] # the stub says a tuple of one
    return command


def word(text: bytes) -> bytes:
    """One word of a command as it travels."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


class Script:
    """A Lua script of the package, called by its digest."""

    __slots__ = ("sha", "text")

    def __init__(self, name: str) -> None:
        self.text = files("umavez.stores.redis").joinpath(f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    def load(self) -> bytes:
        """The command that makes the server know the script."""
        return packed("SCRIPT", "LOAD", self.text)


SWAP, FIND, SWEEP = Script("swap"), Script("find"), Script("sweep")
REMARK, ANNOUNCE = Script("remark"), Script("announce")

_NOTHING = word(b"")
_UNMOVED = word(b"0")
_MOST_EVENTS = word(b"%d" % MOST_EVENTS)


class Swaps:
    """Packs the calls of `swap.lua`, whose head names the words, for one prefix and clock."""

    __slots__ = ("_clock", "_eventful", "_lasting", "_looking", "_originated", "_sweepable")

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._clock = clock
        name = f"{prefix}:".encode()
        key = b"$%d\r\n%b" % (len(name) + 64, name)
        script = word(b"EVALSHA") + word(SWAP.sha.encode()) + word(b"1")
        self._looking = b"*6\r\n" + script + key
        self._lasting = b"*12\r\n" + script + key
        self._sweepable = b"*14\r\n" + script + key
        self._eventful = b"*16\r\n" + script + key
        self._originated = b"*17\r\n" + script + key

    def looking(self, key: Key) -> bytes:
        """The command that answers what stands under `key`: it expects what no stamp can be."""
        return b"%b%b\r\n$1\r\n?\r\n%b" % (self._looking, hexlify(key.digest), word(b"%d" % self._clock.offset))

    def swapping(self, expected: str | None, draft: Draft, stamp: bytes) -> bytes:
        """The command that puts `draft`, whose quoted stamp is `stamp`, where `expected` stands."""
        keep, instance, offset, rest = draft.keep, draft.process_instance, self._clock.offset, rest_of(draft)
        head, more = self._lasting if keep is None else self._sweepable, b""
        if draft.event is not None or draft.origin is not None:
            head, more = self._telling(draft)
        return b"%b%b\r\n%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b%b%b" % (
            head,
            hexlify(draft.key.digest),
            _NOTHING if expected is None else word(quoted(expected)),
            _UNMOVED if offset == 0 else word(b"%d" % offset),
            len(stamp),
            stamp,
            len(rest),
            rest,
            _NOTHING if instance is None else word(quoted(instance)),
            _terms(draft.status, draft.claims, draft.fresh, draft.lease, keep),
            more,
        )

    def _telling(self, draft: Draft) -> tuple[bytes, bytes]:
        """How the command begins that has two or three words more, and those, behind what no `keep` leaves out."""
        event = _NOTHING
        if draft.event is not None:
            event = word(event_rest(draft.event, draft.attempt, holder_of(draft.stamp)))
        more = (_NOTHING + _NOTHING if draft.keep is None else b"") + event + _MOST_EVENTS
        if draft.origin is None:
            return self._eventful, more
        return self._originated, more + word(draft.origin.encode())


@lru_cache(maxsize=1024)
def _terms(status: Status, claims: bool, fresh: bool, lease: Millis | None, keep: Millis | None) -> bytes:
    """The words of a swap that depend on the policy only, so that few of them differ."""
    words = [
        (b"c" if claims else b"") + (b"f" if fresh else b""),
        b"%d" % place_of(status, sweepable=keep is not None),
        b"" if lease is None else b"%d" % lease,
    ]
    if keep is not None:
        words += (b"%d" % keep, b"%d" % (min(max(keep, 0), FARTHEST) + GRACE))
    return b"".join(map(word, words))
