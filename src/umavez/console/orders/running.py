"""Bulks: orders about many records, carried out one at a time in a thread of the console's own.

An order's run is a record of its own, `console.bulk`: how far it got is a checkpoint there, so that every process shows
the same page, and a run whose process died is taken up by whoever asks for it.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, NamedTuple

from umavez.console.books import Books
from umavez.console.decisions import KEEP, SCOPE, Decisions, told_by
from umavez.console.orders.choosing import Order, Porter, Tally, ordered
from umavez.core.encoding.codec import JsonCodec
from umavez.core.key import Key
from umavez.core.record import Record, Status
from umavez.errors import OperationInProgress, UmavezError

LOG = logging.getLogger("umavez.console")
OPERATION = "console.bulk"
CHUNK = 20
"""Records between two looks at whether somebody wants it stopped."""
LEASE = 30.0
_JSON = JsonCodec()


class Standing(NamedTuple):
    """An order and how far it got: `waiting`, `running`, `done`, `stopped`, or `gone` with its process."""

    order: Order
    tally: Tally
    state: str


class _Closing(Exception):
    """The console is closed; somebody else goes on."""


class Bulks:
    """The orders of one console."""

    def __init__(self, books: Books, decisions: Decisions) -> None:
        self._books = books
        self._decisions = decisions
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def begin(self, name: str) -> bool:
        """Carry the order out in a thread; False where one is at work here already."""
        with self._lock:
            if self._closing.is_set() or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(target=self._run, args=(name,), name="umavez-bulk", daemon=True)
            self._thread.start()
            return True

    def close(self) -> None:
        """End after the record at hand."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(30)

    def standing(self, name: str) -> Standing | None:
        """The order of this name and how far it got."""
        order = ordered(self._books, name)
        if order is None:
            return None
        seen = self._books.engine.store.read(Key(SCOPE, OPERATION, name))
        total = len(order.sight.seen)
        if seen.current is None:
            return Standing(order, Tally(total), "waiting")
        tally = _tally(seen.current, total)
        if seen.current.status is Status.SUCCESS:
            return Standing(order, tally, "stopped" if tally.stopped else "done")
        running = seen.current.status is Status.PENDING and not seen.current.lapsed(seen.now)
        return Standing(order, tally, "running" if running else "gone")

    def is_stopped(self, name: str) -> bool:
        """Whether somebody has stopped it."""
        return told_by(self._books, stop_name(name)) is not None

    def _run(self, name: str) -> None:
        try:
            self.carry_out(name)
        except OperationInProgress:
            LOG.info("A bulk is carried out elsewhere")
        except _Closing:
            LOG.info("A bulk waits for another process: this one ends")
        except UmavezError as error:
            LOG.warning("A bulk stands still: %s", error)

    def carry_out(self, name: str) -> None:
        """Carry the order out, to its end or until it is stopped. Raises OperationInProgress where somebody does."""
        order = ordered(self._books, name)
        if order is None:
            return
        block = self._books.engine.attempt(
            OPERATION,
            key=name,
            scope=SCOPE,
            activity=order.action,
            # Each record is a decision under a key of its own: to go on repeats what was done, and changes nothing.
            unknown="rerun",
            lease=LEASE,
            keep=KEEP,
            max_retries=1000,
            codec=_JSON,
        )
        with block as attempt:
            if not attempt.replayed:
                attempt.succeed(self._tallied(name, order, attempt).written())

    def _tallied(self, name: str, order: Order, attempt: Any) -> Tally:
        porter = Porter(self._books, self._decisions, name, order)
        steps = porter.steps()
        while porter.tally.rest:
            attempt.checkpoint(porter.tally.written())
            if self._closing.is_set():
                raise _Closing
            if self.is_stopped(name):
                porter.tally.stopped = True
                break
            for _ in range(CHUNK):
                if next(steps, None) is None:
                    break
        self._books.forget()
        return porter.tally


def stop_name(name: str) -> str:
    """The form that stops an order: there is one, whoever sends it."""
    return f"{name}.stop"


def _tally(record: Record, total: int) -> Tally:
    text = record.progress if record.settled is None else record.settled.body
    kept = _JSON.decode(text, record.key) if text else {}
    known = {name: value for name, value in kept.items() if name in Tally.__slots__} if isinstance(kept, dict) else {}
    return Tally(**{**known, "total": total})
