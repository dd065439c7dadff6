"""What a driver's error means: nothing written, answer lost, or tables missing.

Both drivers carry the server's error numbers, so one table serves both.
"""

from __future__ import annotations

import asyncmy.errors
import pymysql

from umavez.backoff import drawn, grown
from umavez.errors import TABLES_MISSING, NotStorable, SchemaOutdated, StoreError, StoreUnavailable, StoreUncertain

FAILURES = (pymysql.MySQLError, asyncmy.errors.MySQLError, OSError)
"""What both drivers raise."""

LOCK_TIMEOUT = 1205
DEADLOCK = 1213
CHANGED_SINCE_READ = 1020
TRIES = {LOCK_TIMEOUT: 2, DEADLOCK: 8, CHANGED_SINCE_READ: 8}
"""How often a statement is sent when the server refuses it for a rival's sake. A lock time-out has waited already."""

ROUNDS = 5
"""How often a swap whose answer says neither is repeated."""

LOST = {2006, 2013, 2014, 2027, 2055}
"""The client lost the connection, or its place in the conversation."""

CUT_SHORT = {1053, 1152, 1159, 1160, 1161, 1184, 1317, 1927, 1969, 3024}
"""The server ended the statement midway: of a compound statement a part may be committed already."""

MISSING = {1054, 1146, 1305, 1364, 1356, 4091}
NOT_ALLOWED = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
TOO_LARGE = {1118, 1153, 1301, 1406}


class Blocked(StoreUnavailable):
    """Another transaction holds the row; nothing was written."""

    blocked = True


def number(error: BaseException) -> int:
    """The server's or driver's number of `error`; 0 where it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def tries(error: BaseException | None) -> int:
    """How often a transaction that met this error is sent in all; 0 for an error that no rival caused."""
    return TRIES.get(number(error), 0) if isinstance(error, pymysql.MySQLError | asyncmy.errors.MySQLError) else 0


def pause(tried: int) -> float:
    """Seconds to wait before the next try: random, so that rivals do not meet again; at most 64 ms."""
    return drawn(grown(tried, 0.002, 2.0, 0.064))


def stubborn() -> StoreUnavailable:
    """Every round said neither."""
    return StoreUnavailable("Others kept changing this record; nothing was written, try again.")


def unreachable(error: BaseException, where: str) -> StoreError:
    """What a failed attempt to connect means."""
    code = number(error)
    if code in NOT_ALLOWED:
        return StoreUnavailable(f"MariaDB at {where} does not let this user in (error {code}); check the URL.")
    if code == 1049:
        return StoreUnavailable(f"MariaDB at {where} has no such database; create it or correct the URL.")
    if code == 1040:
        return StoreUnavailable(f"MariaDB at {where} has no free connection; raise max_connections or lower lanes.")
    return StoreUnavailable(
        f"MariaDB at {where} cannot be reached (error {code}); start it or correct the URL.", waited=_timed_out(error)
    )


def failed(error: BaseException, where: str) -> StoreError:
    """What an error after sending means. An unknown kind counts as an answer that was lost."""
    code = number(error)
    if code in MISSING:
        return SchemaOutdated(TABLES_MISSING)
    if code == LOCK_TIMEOUT:
        return Blocked("Another transaction holds this record; nothing was written, try again later.")
    if code in (DEADLOCK, CHANGED_SINCE_READ):
        return StoreUnavailable(f"MariaDB gave way to rival transactions too often (error {code}); try again.")
    if code in NOT_ALLOWED:
        return StoreUnavailable(f"MariaDB at {where} does not allow this to the user (error {code}); grant it.")
    if code in TOO_LARGE:
        return StoreUnavailable(f"MariaDB at {where} refuses a value as too long (error {code}); store less.")
    if code in LOST or code in CUT_SHORT or not 1000 <= code < 5000:
        return StoreUncertain(
            f"MariaDB at {where} was lost before it answered (error {code});"
            " send the same call again to learn what stands.",
            waited=_timed_out(error),
        )
    return StoreUnavailable(f"MariaDB at {where} refused the statement (error {code}); nothing was written.")


def translate(error: BaseException) -> StoreError | None:
    """What a driver's error on a plain connection means; None for an error of somebody else."""
    return failed(error, "that URL") if isinstance(error, FAILURES) else None


def unstorable(error: UnicodeEncodeError) -> NotStorable:
    """A text that is no text, found before sending."""
    return NotStorable(
        f"A text of this write holds a lone surrogate ({error.reason}), which cannot be stored; remove it."
    )


def _timed_out(error: BaseException | None) -> bool:
    """Whether a driver's time-out is behind `error`; both wrap it in an error of their own."""
    while error is not None:
        if isinstance(error, TimeoutError) or "timed out" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def oversized(size: int, limit: int) -> NotStorable:
    """A statement above the server's packet limit, found before sending."""
    return NotStorable(
        f"The statement has {size} bytes and the server's max_allowed_packet is {limit}; raise it or store less."
    )
