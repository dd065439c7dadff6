"""Minutes: an observer that counts what happens to keys into the store, for charts. Needs nothing but the store.

Once(url, scope="shop", observers=[Minutes(url)])

A call only adds to numbers in memory; a thread of its own writes them, every ten seconds, over a connection of its own.
Once a minute one such thread of all processes looks at what stands in the store, and keeps that, too (`gauges`).
What the last seconds of a process counted is lost where it is killed, and kept where it ends.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import NamedTuple, cast
from weakref import WeakMethod

from umavez.concurrency.after_fork import reset_after_fork
from umavez.core.encoding.texts import legible
from umavez.core.record import Instant, Millis
from umavez.core.telling.minutes import BUCKETS, HOUR, MINUTE, Tally, begun, bucket_of, summed
from umavez.engine.outcome import Event
from umavez.engine.stamps import STAMPS
from umavez.errors import ConfigurationError, UmavezError
from umavez.observe.gauges import Counting, Looker
from umavez.stores import Store, Tallies, open_store

LOG = logging.getLogger("umavez.observe")

EVERY = 10.0
"""Seconds between two writings."""
MOST_NAMES = 200
"""Operations of one process that are told apart; all further ones are counted as OTHER."""
OTHER = "other"
MOST_WAITING = 120
"""Minutes that are over and could not be written yet, beyond which the oldest are given up: the store is away."""
MOST_AT_ONCE = 1000
"""Numbers that are written at once."""
LONGEST = 255
"""Characters of an operation's name."""


class Over(NamedTuple):
    """What was counted in a span that is over."""

    span: Millis
    at: Instant
    counts: dict[tuple[str, str], list[float]]


class Minutes:
    """Give it to any number of engines of one store; `store` is its URL, or a store that is not awaited.

    With a URL the outbox beside the records is looked at, too. `gauges=False` looks at nothing. Close it before the
    store that it was given. Raises ConfigurationError for a store that keeps no numbers.
    """

    def __init__(self, store: Store | str, *, every: float = EVERY, gauges: bool = True) -> None:
        self._url = store if isinstance(store, str) else ""
        self._opened: Store | None = None
        self._store = None if isinstance(store, str) else _counting(store)
        self._every = every
        self._gauges = gauges
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Begin anew: what a forked child does, whose parent writes what it has counted itself.

        An opened store is kept: it knows of forks, and closing it here would end the parent's session.
        """
        # A signal handler may make a call while its own thread is inside: it must not wait for itself.
        self._lock = threading.RLock()
        self._inside = False
        self._put_off: list[Event] = []
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = STAMPS.owner()
        self._looker = Looker(self._process, self._url)
        self._told: Instant = 0
        """The store's time, as it said when it was written to last."""
        self._names: set[str] = set()
        self._counts: dict[tuple[str, str], list[float]] = {}
        self._hour: dict[tuple[str, str], list[float]] = {}
        self._over: list[Over] = []
        self._at: Instant | None = None
        """When the present minute began, by the store's clock; None until the store was asked."""
        self._ends = float("inf")
        """When it ends, by the clock of this process that nobody sets."""

    def __call__(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            if self._inside:
                self._put_off.append(event)
                return
            self._inside = True
            try:
                self._count(event)
                self._catch_up()
            finally:
                self._inside = False

    def _count(self, event: Event) -> None:
        name = (event.key.operation, event.kind)
        if time.monotonic() >= self._ends:
            self._turn()
        counts = self._counts.get(name)
        if counts is None:
            counts = self._begun(name)
        counts[0] += 1
        if event.seconds:
            counts[1] += event.seconds
            counts[2 + bucket_of(event.seconds)] += 1

    def _catch_up(self) -> None:
        while self._put_off:
            self._count(self._put_off.pop())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The numbers are this thread's, and what a signal handler has counted meanwhile is put off."""
        with self._lock:
            before, self._inside = self._inside, True
            try:
                self._catch_up()
                yield
            finally:
                self._inside = before

    def _begun(self, name: tuple[str, str]) -> list[float]:
        """The numbers of a name that comes for the first time in this minute."""
        if self._thread is None:
            self._start()
        operation, kind = name
        if operation not in self._names:
            if len(self._names) >= MOST_NAMES:
                return self._counts.setdefault((OTHER, kind), [0.0] * (2 + BUCKETS))
            self._names.add(operation)
        return self._counts.setdefault(name, [0.0] * (2 + BUCKETS))

    def start(self) -> None:
        """Begin, without waiting for the first event: what stands is to be seen where nobody calls, too."""
        with self._alone():
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="umavez-minutes", daemon=True)
        self._thread.start()
        atexit.register(_at_the_end, WeakMethod(self.close))

    def _run(self) -> None:
        stopped = self._stopped
        self._keep(self.flush)  # at once, to learn the store's time
        while not stopped.wait(self._every):
            self._keep(self.flush)
            if self._gauges:
                self._keep(self.look)

    def _keep(self, write: Callable[[], object]) -> None:
        """Write; what cannot be written now is written next time."""
        try:
            write()
        except UmavezError as error:
            LOG.warning("The minutes could not be kept, and are written later: %s", error, extra={"error": str(error)})
        except Exception:  # its thread goes on
            LOG.exception("The minutes could not be kept")

    def flush(self) -> None:
        """Write what was counted. Raises StoreError."""
        with self._writing:
            if self._store is None:
                self._opened = open_store(self._url)
                self._store = _counting(self._opened)
            if self._at is None:
                self._learn(self._store.tally(self._process, MINUTE, ()))
            over, present = self._taken()
            minutes = [tally for one in over if one.span == MINUTE for tally in _tallies(one)]
            hours = [tally for one in over if one.span == HOUR for tally in _tallies(one)]
            now = self._written(self._store, MINUTE, [*minutes, *_tallies(present[0])])
            self._written(self._store, HOUR, [*hours, *summed([*_tallies(present[1]), *_tallies(present[2])])])
            with self._alone():
                self._over = [one for one in self._over if all(one is not written for written in over)]
            self._learn(now)
            self._told = now

    def look(self) -> bool:
        """Keep what stands in the store, where no other process has in this minute; says whether. Raises StoreError."""
        with self._writing:
            return self._store is not None and self._told > 0 and self._looker.look(self._store, self._told)

    def _written(self, store: Tallies, span: Millis, tallies: list[Tally]) -> Instant:
        """Write them, some at a time: what waited while the store was away may be much."""
        now = 0
        for first in range(0, max(len(tallies), 1), MOST_AT_ONCE):
            now = store.tally(self._process, span, tallies[first : first + MOST_AT_ONCE])
        return now

    def close(self) -> None:
        """Write what was counted, and stop. Safe to repeat; a later event begins anew."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread is not threading.current_thread():
            thread.join(self._every)
        self._keep(self.flush)
        opened, self._opened = self._opened, None
        if opened is not None:
            self._store = None
            opened.close()

    def _taken(self) -> tuple[list[Over], tuple[Over, Over, Over]]:
        """What is over, and of what is not the minute, the hour before it, and the minute as a part of the hour."""
        with self._alone():
            if time.monotonic() >= self._ends:
                self._turn()
            at = self._at or 0
            minute = {name: list(counts) for name, counts in self._counts.items()}
            hour = {name: list(counts) for name, counts in self._hour.items()}
            hourly = begun(at, HOUR)
            return list(self._over), (Over(MINUTE, at, minute), Over(HOUR, hourly, hour), Over(HOUR, hourly, minute))

    def _turn(self) -> None:
        """The minute is over: another begins, and sometimes another hour."""
        assert self._at is not None  # noqa: S101  # it ends only once it has begun
        late = int((time.monotonic() - self._ends) * 1000)
        self._begin(begun(self._at + MINUTE + late, MINUTE), self._ends + (MINUTE - late % MINUTE + late) / 1000)

    def _begin(self, at: Instant, ends: float) -> None:
        before = self._at
        if before is not None and before != at:
            self._over.append(Over(MINUTE, before, self._counts))
            _add(self._hour, self._counts)
            if begun(before, HOUR) != begun(at, HOUR):
                self._over.append(Over(HOUR, begun(before, HOUR), self._hour))
                self._hour = {}
            self._counts = {}
            del self._over[:-MOST_WAITING]
        self._at, self._ends = at, ends

    def _learn(self, now: Instant) -> None:
        """Go by the store's clock, which said so just now; never back into a minute that was over."""
        at = begun(now, MINUTE)
        with self._alone():
            if self._at is None or at >= self._at:
                self._begin(at, time.monotonic() + (at + MINUTE - now) / 1000)


def _counting(store: Store) -> Counting:
    if not isinstance(store, Tallies) or iscoroutinefunction(store.tally):
        raise ConfigurationError(f"{type(store).__name__} keeps no minutes for threads; give the URL of a store.")
    return cast("Counting", store)


def _add(counts: dict[tuple[str, str], list[float]], more: dict[tuple[str, str], list[float]]) -> None:
    for name, numbers in more.items():
        known = counts.setdefault(name, [0.0] * (2 + BUCKETS))
        known[:] = map(float.__add__, known, map(float, numbers))


def _tallies(over: Over) -> list[Tally]:
    return [
        Tally(over.at, legible(operation)[:LONGEST], kind, int(count), seconds, tuple(map(int, buckets)))
        for (operation, kind), (count, seconds, *buckets) in over.counts.items()
    ]


def _at_the_end(close: WeakMethod[Callable[[], None]]) -> None:
    method = close()
    if method is not None:
        method()
