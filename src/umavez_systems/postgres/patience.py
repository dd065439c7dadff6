"""Patience: how long a PostgreSQL connection of the systems waits, for the server and by itself.

The server ends what takes too long, but a server that fell silent ends nothing: then the connection gives up by itself,
a moment later than the server would have.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo

from umavez.postgres import given_in, patience

RV = TypeVar("RV")
GRACE = 1.0
"""Seconds in which the server's own time-out may still arrive."""


class NoAnswer(psycopg.OperationalError):
    """The server was silent for too long; the connection was closed, and what was sent may have been done."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that never waits for an answer for ever."""

    _seconds = 10.0 + GRACE
    plain = False
    """Whether texts go in UTF-8, as `trips` writes them."""
    columns: dict[bytes, list[str]]
    """The names of what a prepared statement returns, by its name."""

    def allow(self, seconds: float) -> None:
        """Let a statement take so long."""
        self._seconds = seconds + GRACE
        self.plain = self.pgconn.parameter_status(b"client_encoding") == b"UTF8"
        self.columns = {}

    def known_statements(self) -> OrderedDict[tuple[bytes, tuple[int, ...]], bytes]:
        """What psycopg has prepared here: a name by a statement's text and the types of its values."""
        return self._prepared._names  # noqa: SLF001  # psycopg tells in no other way what it has prepared

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """As psycopg's; raises NoAnswer."""
        try:
            return super().wait(_within(gen, self._seconds), *args, **options)
        except NoAnswer:
            # Not to be used again: the answer may still come, and would be taken for the next one.
            self.close()
            raise


def _within(gen: PQGen[RV], seconds: float) -> PQGen[RV]:
    """The same steps. psycopg comes by every tenth of a second while nothing arrives."""
    end = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= end:
                raise NoAnswer(f"PostgreSQL was silent for {seconds:g} s.")
            wanted = gen.send(ready)
    except StopIteration as done:
        result: RV = done.value
        return result


def patient(url: str, seconds: float) -> str:
    """`url` with a bound on everything that the server or the network could make us wait for; the URL's own win."""
    given: dict[str, Any] = dict(given_in(url))
    bound = f"{int(seconds * 1000)}"
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    options = " ".join([*(f"-c {name}={bound}" for name in names), str(given.get("options", ""))])
    chosen: dict[str, Any] = {
        "application_name": "umavez",
        **patience(given, seconds + GRACE),
        **given,
        "options": options.strip(),
    }
    return make_conninfo("", **chosen)
