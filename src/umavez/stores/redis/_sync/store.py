# Written by tools/sync.py from src/umavez/stores/redis/_async/store.py: change that, then run `make format`.
"""The Redis store for threads; see `umavez.stores.redis.store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.shelter import sheltered, sheltered_swap
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import EventDraft, PastEvent, Process
from umavez.core.telling.minutes import Tally
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError, StoreUnavailable, StoreUncertain
from umavez.stores.redis.command import SWAP
from umavez.stores.redis.dialogue import Demoted, Dialogue, Dialogues, ForeignReply
from umavez.stores.redis.pipe import Pipe
from umavez.stores.redis.url import address_of
from umavez.stores.redis.value import quoted

T = TypeVar("T")

MOVED = "Redis was connected to anew before its replicas confirmed, so a failover could take this back; send it again."
FOREIGN = "Redis answered another command than the one asked; the connection was closed and the write may stand."


class RedisStore:
    """Keeps records in Redis, shared by threads: they share one connection and their round trips."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        address = address_of(url)
        self._dialogues = Dialogues(address, clock)
        self._pipe = Pipe(address)

    @sheltered
    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._look(self._dialogues.read(key))

    @sheltered_swap
    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in one command; see Store.swap."""
        stamp = quoted(draft.stamp)
        command = self._dialogues.swaps.swapping(expected, draft, stamp)
        opened = self._pipe.opened
        try:
            reply = self._pipe.call(command)
            if type(reply) is not list:
                reply = self._carry(self._dialogues.taught(SWAP, command, reply))
            answer = self._dialogues.swapped(reply, draft, stamp)
            if self._dialogues.wait:
                self._waited(answer, opened)
        except ForeignReply as error:
            self._pipe.distrust()
            raise StoreUncertain(FOREIGN) from error
        except Demoted:
            self._pipe.distrust()
            raise
        return answer

    def _waited(self, answer: Swapped | Stale, opened: int) -> None:
        """Wait for replicas. On another connection than the swap's it would tell of another one's writes."""
        self._carry(self._dialogues.waited(answer))
        # A first call opens the connection itself; one more since then is one too many.
        if self._pipe.opened > max(opened, 1):
            raise StoreUncertain(MOVED)

    @sheltered
    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, or what is left of them where Redis's TTL was faster."""
        return self._hold(self._dialogues.sweep(limit, older_than))

    @sheltered
    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first; by process instance or status without scanning."""
        return self._look(self._dialogues.find(query))

    @sheltered
    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        return self._look(self._dialogues.history(key))

    @sheltered
    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        self._hold(self._dialogues.remark(key, event, attempt, fence, holder))

    @sheltered
    def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin; kept for a week."""
        return self._look(self._dialogues.origin(key))

    @sheltered
    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        return self._hold(self._dialogues.tally(process, span, tallies))

    @sheltered
    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        return self._look(self._dialogues.tallied(span, newer_than, operation, limit))

    @sheltered
    def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        self._hold(self._dialogues.announce(process))

    @sheltered
    def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        return self._look(self._dialogues.processes(limit))

    @sheltered
    def migrate(self) -> str:
        """Load the scripts. Raises ConfigurationError where Redis is older than 6.2."""
        return self._look(self._dialogues.migrate())

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: a Redis command cannot be part of somebody's transaction and be answered inside it."""
        _refuse_to_join()

    @sheltered
    def close(self) -> None:
        """Wait for the replies that are due and close the connection; the next use opens a new one."""
        self._pipe.close()

    def _hold(self, dialogue: Dialogue[T]) -> T:
        try:
            return self._carry(dialogue)
        except ForeignReply as error:
            self._pipe.distrust()
            raise StoreUncertain(FOREIGN) from error
        except Demoted:
            self._pipe.distrust()
            raise

    def _carry(self, dialogue: Dialogue[T]) -> T:
        try:
            command = next(dialogue)
            while True:
                command = dialogue.send(self._pipe.call(command))
        except StopIteration as end:
            result: T = end.value
            return result

    def _look(self, dialogue: Dialogue[T]) -> T:
        """Hold a dialogue that changes no record: where its answer is lost, nothing is uncertain."""
        try:
            return self._hold(dialogue)
        except StoreUncertain as error:
            raise StoreUnavailable(f"{_first_part(error)}; nothing was written, so try again.") from error


def _refuse_to_join() -> NoReturn:
    raise ConfigurationError("The Redis store cannot join a transaction; use sqlite:, postgresql: or mariadb:.")


def _first_part(error: StoreUncertain) -> str:
    return str(error).partition(",")[0]
