"""Excuses: which failures of a handler are an outage's and not its message's.

While the database fails over every handler fails, whatever it was given; counted as attempts, a few such turns would
bury messages that nothing is wrong with.
"""

from __future__ import annotations

from collections import OrderedDict

from umavez.errors import StoreError, StoreUnavailable, StoreUncertain

LIMIT = 12
"""How often in a row a message is excused: one that makes the store itself refuse it is counted after that."""
KEPT = 10_000
"""Messages whose excuses are remembered at a time; the oldest are forgotten first."""


class Excuses:
    """Counts them, by the message's id."""

    def __init__(self) -> None:
        self._given: OrderedDict[str, int] = OrderedDict()

    def excuse(self, message: str, error: BaseException) -> int:
        """How often this message was excused in a row, this time included; 0 when the failure is its own."""
        if not is_outage(error):
            self.forget(message)
            return 0
        given = self._given.pop(message, 0) + 1
        self._given[message] = given
        if len(self._given) > KEPT:
            self._given.popitem(last=False)
        return given if given <= LIMIT else 0

    def forget(self, message: str) -> None:
        """It was handled, or failed by its own fault."""
        self._given.pop(message, None)


def is_outage(error: BaseException) -> bool:
    """Whether the database was away: unreachable, or gone before it answered. One that holds a record is there.

    A handler has connections of its own; their drivers are recognised by what their errors carry, so that none of
    them is imported here.
    """
    if isinstance(error, StoreError):
        return isinstance(error, StoreUnavailable | StoreUncertain) and not error.blocked
    found = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    if not {kind.__name__ for kind in type(found).__mro__} & {"OperationalError", "InterfaceError", "InternalError"}:
        return False
    number = next(iter(found.args), None)
    if isinstance(number, int):
        return number in _GONE_NUMBERS
    state = getattr(found, "sqlstate", "")
    return state is None or state.startswith(_GONE_STATES)  # None: psycopg heard nothing from the server


_GONE_STATES = ("08", "57P", "25006", "53300")
"""PostgreSQL: connection lost, server going or coming, a standby, no connection left."""
_GONE_NUMBERS = frozenset((1040, 1047, 1053, 1927, 2002, 2003, 2006, 2013, 2055))
"""MariaDB: too many connections, node not ready, shutting down, killed, not reached, gone, lost."""
