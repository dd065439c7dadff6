"""Dialogues: what the store says to Redis and makes of the answers, with the I/O left out.

A dialogue yields a packed command and is sent the reply. `RedisStore` and `AsyncRedisStore` differ only in
how they carry the two.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from hiredis import ReplyError

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, Process
from umavez.core.telling.minutes import Tally, summed
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores.keeping import FORGOTTEN
from umavez.stores.redis import events
from umavez.stores.redis.command import ANNOUNCE, FIND, REMARK, SWAP, SWEEP, Script, Swaps, packed
from umavez.stores.redis.events import event_of, head_of, processes_of, rest_of
from umavez.stores.redis.index import SWEEPABLE, Walk, walks_for
from umavez.stores.redis.url import Address
from umavez.stores.redis.value import OtherLayout, record_of

T = TypeVar("T")
_new = tuple.__new__  # see core/drafts.py, where its gain is told
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
    )
)
"""Error codes that Redis, or the script, gives before anything is written."""

_RAISED = re.compile(r"ERR Error running script \(call to \w+\): @user_script:\d+: @user_script: \d+: -([A-Z]+) ")
"""How Redis before 7 says what a command in a script was refused for; for these codes the first write is the one."""


class Demoted(StoreUnavailable):
    """The server is a replica now and wrote nothing: the connection is of no more use."""


class ForeignReply(Exception):
    """The reply belongs to another command: the connection is out of step and must not be used again."""


class Dialogues:
    """The verbs of a store, for one prefix and clock."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._where = str(address)
        self._prefix = address.prefix
        self._clock = clock
        self._beat = packed("SET", f"{address.prefix}:beat", "1")
        self._waiting = packed("WAIT", address.wait, int(address.timeout * 500))
        self.wait = address.wait
        self.swaps = Swaps(address.prefix, clock)

    def read(self, key: Key) -> Dialogue[Seen]:
        """What stands under `key`."""
        reply = yield from self._run(SWAP, self.swaps.looking(key))
        value, now = reply
        return Seen(None if value is None else self._record(value, key), now)

    def swapped(self, reply: list[Any], draft: Draft, stamp: bytes) -> Swapped | Stale:
        """What the reply to a swap says; a reply that is no list goes through `taught` first.

        No dialogue, since nearly every swap is one command and one list, and has to be cheap.
        """
        if len(reply) == 3:
            fence, now, echo = reply
            if echo != stamp:
                raise ForeignReply
            return _new(Swapped, (fence, now))
        value, now, *told = reply
        record = None if value is None else self._record(value, draft.key)
        if record is not None and told and told[1]:
            record = record._replace(origin=told[1].decode())
        return _new(Stale, (record, now))

    def taught(self, script: Script, command: bytes, reply: Any) -> Dialogue[list[Any]]:
        """What the script answers once a server that has forgotten it is taught it again; or what is wrong."""
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            self._checked((yield script.load()))
            reply = yield command
        answer = self._checked(reply)
        if not isinstance(answer, list):
            raise ForeignReply
        return answer

    def waited(self, reply: Swapped | Stale) -> Dialogue[None]:
        """Have as many replicas as were asked for received everything up to `reply`. Raises StoreUncertain.

        Redis waits for the last write of the connection. A stale swap wrote nothing, and what it shows may be known to
        nobody else: a write of no meaning stands in for it.
        """
        if type(reply) is Stale:
            self._checked((yield self._beat))
        count = self._checked((yield self._waiting))
        if not isinstance(count, int):
            raise ForeignReply
        if count < self.wait:
            raise StoreUncertain(
                f"{count} of {self.wait} replicas of Redis at {self._where} confirmed in time, so a failover could take"
                " this back; send the same call again."
            )

    def find(self, query: Query) -> Dialogue[list[Record]]:
        """See Store.find. A whole key is looked up; all else goes through the indexes."""
        found: list[Record] = []
        if query.scope is not None and query.operation is not None and query.value is not None:
            seen = yield from self.read(Key(query.scope, query.operation, query.value))
            if seen.current is not None and query.matches(seen.current, seen.now):
                found.append(seen.current)
        elif query.digest_prefix is not None and len(query.digest_prefix) == 64:
            found = yield from self._digested(query.digest_prefix, query)
        else:
            for walk in walks_for(query):
                found = _page(found + (yield from self._walk(walk, query)), query)
        return found

    def _digested(self, digest: str, query: Query) -> Dialogue[list[Record]]:
        """The record under a whole digest, which is the name of its value."""
        value = self._checked((yield packed("GET", f"{self._prefix}:{digest}")))
        if value is None:
            return []
        seen = yield from self.read(self._record(value).key)
        return [seen.current] if seen.current is not None and query.matches(seen.current, seen.now) else []

    def _walk(self, walk: Walk, query: Query) -> Dialogue[list[Record]]:
        """The first matches in one part of an index; where it is not in the order of the query, all of it is read."""
        found: list[Record] = []
        ordered, older_than = walk.base is not None and not query.newest_first, query.older_than
        edge = "" if walk.base is None or older_than is None else walk.base - older_than
        lowest: int | bytes = walk.lowest
        if walk.base is not None and query.after is not None and not query.newest_first:
            lowest = walk.base + query.after.created_at
        skip, more = 0, True
        while more and not (ordered and len(found) >= query.limit):
            words = (self._clock.offset, self._prefix, walk.name, lowest, skip, walk.highest, PAGE, edge)
            command = packed("EVALSHA", FIND.sha, 0, *words)
            now, looked_at, lowest, skip, values = yield from self._run(FIND, command)
            records = [self._record(value) for value in values]
            found = _page(found + [record for record in records if query.matches(record, now)], query)
            more = looked_at == PAGE
        return found

    def history(self, key: Key) -> Dialogue[list[PastEvent]]:
        """See Chronicle.history."""
        values = self._checked((yield packed("LRANGE", f"{self._prefix}:events:{key.digest.hex()}", 0, -1)))
        return [event_of(value) for value in values]

    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> Dialogue[None]:
        """See Chronicle.remark."""
        words = (self._clock.offset, fence, rest_of(event, attempt, holder), MOST_REMARKS, MOST_EVENTS)
        name = f"{self._prefix}:{key.digest.hex()}"
        yield from self._run(REMARK, packed("EVALSHA", REMARK.sha, 1, name, *words))

    def origin(self, key: Key) -> Dialogue[Origin | None]:
        """See Provenance.origin."""
        kept = self._checked((yield packed("GET", f"{self._prefix}:origin:{key.digest.hex()}")))
        return None if kept is None else Origin.of(kept.decode())

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Dialogue[Instant]:
        """See Tallies.tally."""
        now = yield from self._time()
        for words in events.tallying(self._prefix, process, span, tallies):
            self._checked((yield packed(*words)))
        self._checked((yield packed(*events.forgetting(self._prefix, span, now))))
        return now

    def tallied(self, span: Millis, newer_than: Millis, operation: str | None, limit: int) -> Dialogue[list[Tally]]:
        """See Tallies.tallied."""
        now = yield from self._time()
        found: list[Tally] = []
        for at in self._checked((yield packed(*events.listing(self._prefix, span, now - newer_than)))):
            reply = self._checked((yield packed(*events.reading(self._prefix, span, at))))
            found += summed(events.tallies_of(at, reply, operation))
            if len(found) >= limit:
                break
        return found[:limit]

    def _time(self) -> Dialogue[Instant]:
        seconds, micros = self._checked((yield packed("TIME")))
        return int(seconds) * 1000 + int(micros) // 1000 + self._clock.offset

    def announce(self, process: Process) -> Dialogue[None]:
        """See Chronicle.announce."""
        words = (self._clock.offset, self._prefix, process.prefix, head_of(process), process.age, FORGOTTEN)
        yield from self._run(ANNOUNCE, packed("EVALSHA", ANNOUNCE.sha, 0, *words))

    def processes(self, limit: int) -> Dialogue[list[Process]]:
        """See Chronicle.processes."""
        seen = self._checked((yield packed("ZRANGE", f"{self._prefix}:holders:seen", 0, limit - 1, "REV")))
        if not seen:
            return []
        return processes_of(self._checked((yield packed("HMGET", f"{self._prefix}:holders", *seen))))

    def sweep(self, limit: int, older_than: Millis) -> Dialogue[int]:
        """See Store.sweep."""
        swept, more = 0, True
        while more and swept < limit:
            count = min(limit - swept, PAGE)
            words = (self._clock.offset, self._prefix, older_than, count, SWEEPABLE)
            looked_at, gone = yield from self._run(SWEEP, packed("EVALSHA", SWEEP.sha, 0, *words))
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
        for script in (SWAP, FIND, SWEEP, REMARK, ANNOUNCE):
            self._checked((yield script.load()))
        return f"Redis {version} at {self._where} is ready: its scripts are loaded; it needs no tables."

    def _run(self, script: Script, command: bytes) -> Dialogue[list[Any]]:
        """The script's answer."""
        reply = yield command
        return reply if type(reply) is list else (yield from self.taught(script, command, reply))

    def _record(self, value: Any, key: Key | None = None) -> Record:
        """The record in `value`, which must be that of `key` if given."""
        if type(value) is not bytes:
            raise ForeignReply
        try:
            record = record_of(value, key)
        except OtherLayout as error:
            raise StoreUnavailable(
                f"A record under {self._prefix} in Redis at {self._where} was written by an earlier umavez in a layout "
                "that this one cannot read; use another prefix, or delete the old records."
            ) from error
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
        raised = _RAISED.match(str(reply))
        code = raised[1] if raised else str(reply).split(" ", 1)[0]
        if code == "OOM":
            return StoreUnavailable(
                f"Redis at {self._where} is out of memory and wrote nothing; raise maxmemory or sweep."
            )
        if code == "READONLY":
            return Demoted(f"Redis at {self._where} is a replica now (READONLY) and wrote nothing; try again.")
        if code in REFUSALS:
            return StoreUnavailable(
                f"Redis at {self._where} refused the command ({code}) and wrote nothing; try again."
            )
        return StoreUncertain(f"Redis at {self._where} failed midway ({code}), so the write may stand; look again.")


def _page(records: list[Record], query: Query) -> list[Record]:
    # Once each: a record that moved while its index was walked may have been met in both places.
    return query.page({record.key: record for record in records}.values())


def _version(info: str) -> str:
    lines = (line for line in info.split("\r\n") if line.startswith("redis_version:"))
    return next(lines, "redis_version:0.0").partition(":")[2]
