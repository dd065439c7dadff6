"""Dialogues: what the store says to Redis and makes of the answers, with the I/O left out.

A dialogue yields a packed command and is sent the reply. `RedisStore` and `AsyncRedisStore` differ only in
how they carry the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from importlib.resources import files
from typing import Any, TypeVar

from hiredis import ReplyError

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores.redis_address import Address
from umavez.stores.redis_value import PADDED, indexes_for, matches, packed, quoted, record_of, rest_of

T = TypeVar("T")
Dialogue = Generator[bytes, Any, T]

PAGE = 100
"""Entries one script looks at: Redis serves nobody else meanwhile."""

OLDEST = (6, 2)
"""The first Redis with SET PXAT and ZRANGE BYSCORE."""

REFUSALS = frozenset(
    (
        "ASK",
        "BUSY",
        "CLOCK",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "MOVED",
        "NOAUTH",
        "NOREPLICAS",
        "READONLY",
    )
)
"""Error codes that Redis, or the script, gives before anything is written."""


class ForeignReply(Exception):
    """The reply belongs to another command: the connection is out of step and must not be used again."""


class Script:
    """A Lua script of the package, called by its digest."""

    __slots__ = ("sha", "text")

    def __init__(self, name: str) -> None:
        self.text = files("umavez.stores").joinpath("schema", f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    def load(self) -> bytes:
        """The command that makes the server know the script."""
        return packed("SCRIPT", "LOAD", self.text)


SWAP, FIND, SWEEP = Script("swap"), Script("find"), Script("sweep")


class Dialogues:
    """The verbs of a store, for one prefix and clock."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._where = str(address)
        self._prefix = address.prefix
        self._clock = clock

    def read(self, key: Key) -> Dialogue[Seen]:
        """What stands under `key`: a swap that expects what no stamp can be."""
        words = ("EVALSHA", SWAP.sha, 1, f"{self._prefix}:{key.digest.hex()}", "?", self._clock.offset)
        reply = yield from self._run(SWAP, words)
        return Seen(self._current(reply[0], key), reply[1])

    def swap(self, expected: str | None, draft: Draft) -> Dialogue[Swapped | Stale]:
        """See Store.swap."""
        stamp = quoted(draft.stamp)
        command = self._swapping(expected, draft, stamp)
        reply = yield command
        if type(reply) is not list:
            reply = yield from self._again(SWAP, command, reply)
        if len(reply) == 2:
            return Stale(self._current(reply[0], draft.key), reply[1])
        if reply[2] != stamp:
            raise ForeignReply
        return Swapped(reply[0], reply[1])

    def _swapping(self, expected: str | None, draft: Draft, stamp: bytes) -> bytes:
        """The command for `swap.lua`, whose head names the arguments."""
        instance = draft.process_instance
        return packed(
            "EVALSHA",
            SWAP.sha,
            1,
            f"{self._prefix}:{draft.key.digest.hex()}",
            "" if expected is None else quoted(expected),
            self._clock.offset,
            stamp,
            PADDED[draft.status],
            "" if instance is None else quoted(instance),
            rest_of(draft),
            ("c" if draft.claims else "") + ("f" if draft.fresh else ""),
            "" if draft.lease is None else draft.lease,
            "" if draft.keep is None else draft.keep,
        )

    def find(self, query: Query) -> Dialogue[list[Record]]:
        """See Store.find. A whole key is looked up; all else goes through the indexes."""
        found: list[Record] = []
        if query.scope is not None and query.operation is not None and query.value is not None:
            seen = yield from self.read(Key(query.scope, query.operation, query.value))
            if seen.current is not None and matches(seen.current, query, seen.now):
                found.append(seen.current)
        else:
            for kind, name in indexes_for(query):
                found += yield from self._look_through(kind, name, query)
        return sorted(found, key=lambda record: (record.created_at, record.fence))[: query.limit]

    def _look_through(self, kind: str, name: bytes, query: Query) -> Dialogue[list[Record]]:
        found: list[Record] = []
        start, more = 0, True
        older_than = "" if query.older_than is None else query.older_than
        while more and len(found) < query.limit:
            words = (
                "EVALSHA",
                FIND.sha,
                0,
                self._clock.offset,
                self._prefix,
                kind,
                name,
                older_than,
                start,
                PAGE,
            )
            now, looked_at, values = yield from self._run(FIND, words)
            records = [record for record in map(record_of, values) if record is not None]
            found += [record for record in records if matches(record, query, now)]
            # Entries without a value were removed in passing: the next page begins behind those that stayed.
            start, more = start + len(values), looked_at == PAGE
        return found

    def sweep(self, limit: int, older_than: Millis) -> Dialogue[int]:
        """See Store.sweep."""
        swept, more = 0, True
        while more and swept < limit:
            count = min(limit - swept, PAGE)
            words = ("EVALSHA", SWEEP.sha, 0, self._clock.offset, self._prefix, older_than, count)
            looked_at, gone = yield from self._run(SWEEP, words)
            swept, more = swept + gone, looked_at == count
        return swept

    def migrate(self) -> Dialogue[str]:
        """Load the scripts into a server that is new enough; ConfigurationError otherwise."""
        info = self._checked((yield packed("INFO", "server")))
        version = _version(info.decode())
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise ConfigurationError(
                f"Redis at {self._where} is version {version}; umavez needs {OLDEST[0]}.{OLDEST[1]} or newer."
            )
        for script in (SWAP, FIND, SWEEP):
            self._checked((yield script.load()))
        return f"Redis {version} at {self._where} is ready: its scripts are loaded; it needs no tables."

    def _run(self, script: Script, words: tuple[Any, ...]) -> Dialogue[list[Any]]:
        """The script's answer; a server that has forgotten the script is taught it again."""
        command = packed(*words)
        reply = yield command
        return reply if type(reply) is list else (yield from self._again(script, command, reply))

    def _again(self, script: Script, command: bytes, reply: Any) -> Dialogue[list[Any]]:
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            self._checked((yield script.load()))
            reply = yield command
        answer = self._checked(reply)
        if not isinstance(answer, list):
            raise ForeignReply
        return answer

    def _current(self, value: Any, key: Key) -> Record | None:
        if value is None:
            return None
        if type(value) is not bytes:
            raise ForeignReply
        try:
            record = record_of(value, key)
        except (LookupError, TypeError, ValueError) as error:
            raise StoreUnavailable(
                f"A value under {self._prefix} in Redis at {self._where} is no record; use another prefix."
            ) from error
        if record is None:
            raise ForeignReply
        return record

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, ReplyError):
            raise self._complaint(reply) from reply
        return reply

    def _complaint(self, reply: ReplyError) -> StoreError:
        code = str(reply).split(" ", 1)[0]
        if code == "OOM":
            return StoreUnavailable(
                f"Redis at {self._where} is out of memory and wrote nothing; raise maxmemory or sweep."
            )
        if code in REFUSALS:
            return StoreUnavailable(
                f"Redis at {self._where} refused the command ({code}) and wrote nothing; try again."
            )
        return StoreUncertain(f"Redis at {self._where} failed midway ({code}), so the write may stand; look again.")


def _version(info: str) -> str:
    lines = (line for line in info.split("\r\n") if line.startswith("redis_version:"))
    return next(lines, "redis_version:0.0").partition(":")[2]
