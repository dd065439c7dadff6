"""Crashes: an operation is stopped at every call to its store, before and after, as if its process had died.

    def operate(store, ledger):
        once = Once(store, scope="shop")
        return once.run("charge", key="42", call=lambda: ledger.enter("42"), unknown="hold")

    for crash in crash_everywhere(operate):
        assert len(crash.ledger.entries) <= 1

Between two calls to the store nothing is remembered, so these points are all there are: a process that dies
inside its effect leaves what one leaves that dies before or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar

from umavez.core.record import Query, Record
from umavez.stores import Store
from umavez.stores.memory import MemoryStore
from umavez.testing.clock import ManualClock
from umavez.testing.faults import Tapped

T = TypeVar("T")
When = Literal["before", "after"]


class Died(BaseException):
    """The process is gone. Not an Exception: no code of a dead process handles anything."""


class Ledger:
    """The far side's book of effects. It has no unique constraint: one would hide what is looked for."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def enter(self, what: str, downstream_key: str = "") -> int:
        """Write one effect; returns its number."""
        self.entries.append((what, downstream_key))
        return len(self.entries)

    def has(self, what: str) -> bool:
        """Whether there is an effect called `what`; for operations that ask."""
        return any(entry[0] == what for entry in self.entries)


class Dying(Tapped):
    """A store whose user dies at the n-th call. The dead stay dead: their handlers reach it no more."""

    def __init__(self, store: Store, nth: int, when: When) -> None:
        super().__init__(store, nth)
        self._when = when
        self._dead = False

    def _call(self, verb: Callable[[], T]) -> T:
        if self._dead:
            raise Died
        return super()._call(verb)

    def _fault(self, verb: Callable[[], T]) -> T:
        self._dead = True
        if self._when == "after":
            verb()
        raise Died


class Crash(NamedTuple):
    """One crash and what became of it: the ledger, what each retry gave or raised, and the records at the end."""

    nth: int
    when: When
    ledger: Ledger
    answers: tuple[Any, ...]
    records: tuple[Record, ...]


def crash_everywhere(
    operate: Callable[[Store, Ledger], Any],
    *,
    retries: int = 3,
    lease: float = 31.0,
    prepare: Callable[[Store, Ledger], Any] | None = None,
) -> Iterator[Crash]:
    """Run `operate` once for each point at which it can die, then let `lease` seconds pass and retry it.

    `prepare` runs first, on the sound store. Ends when `operate` lives to its end.
    """
    for nth in count(1):
        for when in _WHENS:
            clock, ledger = ManualClock(), Ledger()
            store = MemoryStore(clock)
            if prepare is not None:
                prepare(store, ledger)
                clock.advance(lease)
            dying = Dying(store, nth, when)
            _lived(operate, dying, ledger)
            if not dying.struck:
                return
            answers = []
            for _ in range(retries):
                clock.advance(lease)
                answers.append(_lived(operate, store, ledger))
            yield Crash(nth, when, ledger, tuple(answers), tuple(store.find(Query())))


_WHENS: tuple[When, ...] = ("before", "after")


def _lived(operate: Callable[[Store, Ledger], Any], store: Store, ledger: Ledger) -> Any:
    try:
        return operate(store, ledger)
    except (Exception, Died) as error:  # noqa: BLE001 (what a caller would have got is the answer to judge)
        return error
