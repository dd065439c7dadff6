"""Target: which PostgreSQL a URL means, and how umavez's own connections to it are set up."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from umavez.errors import ConfigurationError
from umavez.stores import without_password
from umavez.stores.postgres.hosts import patience

LANES = 2
"""Connections that carry swaps: while one waits for its commit, the next batch is on its way on the other."""

LOCK_TIMEOUT = 800
"""Milliseconds that a swap waits for a transaction that holds its key. Below the server's deadlock_timeout (1 s), so
that in a knot with a caller's transaction it is umavez that gives way, never the caller."""

TIMEOUT = 30.0
"""Seconds that a statement may take, and that a silent server is waited for."""

_SETTINGS = {
    "lock_timeout": str(LOCK_TIMEOUT),
    # Planned once, by index: a plan made while the table was small must not scan it when it has grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "default_transaction_isolation": "read\\ committed",
}


class Target(NamedTuple):
    """Where to connect, with how many lanes, and how many seconds to wait for an answer."""

    conninfo: str
    lanes: int
    timeout: float = TIMEOUT
    database: str = ""
    """Its name, where the URL says it."""


def target_of(url: str) -> Target:
    """The target of `url`. `?lanes=` and `?timeout=` are umavez's own; others are libpq's and win over the defaults.

    Raises ConfigurationError when libpq cannot read it.
    """
    lanes = dict(_parameters(url)).get("lanes", str(LANES))
    if not lanes.isascii() or not lanes.isdigit() or not 1 <= int(lanes) <= 64:
        raise ConfigurationError(f"lanes={lanes} is not a number from 1 to 64; leave it out to get {LANES}.")
    timeout = _seconds(dict(_parameters(url)).get("timeout", str(TIMEOUT)))
    given = given_in(url)
    settings = {**_SETTINGS, "statement_timeout": str(int(timeout * 1000))}
    options = " ".join([*(f"-c {name}={value}" for name, value in settings.items()), given.get("options", "")])
    # UTF-8 whatever PGCLIENTENCODING says: columns are packed as UTF-8.
    fixed = {"options": options.strip(), "client_encoding": "utf8"}
    chosen: dict[str, Any] = {"application_name": "umavez", **patience(given, timeout), **given, **fixed}
    return Target(make_conninfo("", **chosen), int(lanes), timeout, given.get("dbname", ""))


def given_in(url: str) -> dict[str, str]:
    """What `url` says to libpq, by libpq's names. Raises ConfigurationError when libpq cannot read it."""
    kept = urlencode([pair for pair in _parameters(url) if pair[0] not in ("lanes", "timeout")], quote_via=quote)
    # By hand: urlunsplit makes postgresql:/loja of postgresql:///loja, where no host means the local socket.
    place = url.partition("?")[0]
    try:
        found = conninfo_to_dict(f"{place}?{kept}" if kept else place)
    except psycopg.Error as error:
        raise ConfigurationError(
            f"{without_password(url)!r} is not a PostgreSQL URL; use postgresql://user@host:port/database."
        ) from error
    return {name: str(value) for name, value in found.items()}


def _parameters(url: str) -> list[tuple[str, str]]:
    """By hand: parse_qsl makes a space of a plus sign, which to libpq is one, in a password too."""
    pairs = (part.partition("=") for part in url.partition("?")[2].split("&") if part)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise ConfigurationError(f"timeout={text} is not a number of seconds from 1 to 3600; leave it out to get 30.")
    return seconds
