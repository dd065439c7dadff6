"""Target: which PostgreSQL a URL means, and how umavez's own connections to it are set up."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from umavez.errors import ConfigurationError
from umavez.stores import without_password

LANES = 2
"""Connections that carry swaps: while one waits for its commit, the next batch is on its way on the other."""

LOCK_TIMEOUT = 800
"""Milliseconds that a swap waits for a transaction that holds its key. Below the server's deadlock_timeout (1 s), so
that in a knot with a caller's transaction it is umavez that gives way, never the caller."""

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
_DEFAULTS = {
    "application_name": "umavez",
    "connect_timeout": "10",
    # A server that vanished without a word is noticed after half a minute, not after the kernel's quarter of an hour.
    "tcp_user_timeout": "30000",
    "keepalives_idle": "30",
}


class Target(NamedTuple):
    """Where to connect, and with how many lanes."""

    conninfo: str
    lanes: int


def target_of(url: str) -> Target:
    """The target of `url`. `?lanes=` is umavez's own; every other parameter is libpq's and wins over the defaults.

    Raises ConfigurationError when libpq cannot read it.
    """
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    lanes = dict(pairs).get("lanes", str(LANES))
    if not lanes.isascii() or not lanes.isdigit() or not 1 <= int(lanes) <= 64:
        raise ConfigurationError(f"lanes={lanes} is not a number from 1 to 64; leave it out to get {LANES}.")
    kept = urlencode([pair for pair in pairs if pair[0] != "lanes"])
    try:
        given = conninfo_to_dict(urlunsplit(parts._replace(query=kept)))
    except psycopg.Error as error:
        raise ConfigurationError(
            f"{without_password(url)!r} is not a PostgreSQL URL; use postgresql://user@host:port/database."
        ) from error
    options = " ".join([*(f"-c {name}={value}" for name, value in _SETTINGS.items()), str(given.get("options", ""))])
    # UTF-8 whatever PGCLIENTENCODING says: columns are packed as UTF-8.
    fixed = {"options": options.strip(), "client_encoding": "utf8"}
    chosen: dict[str, Any] = {**_DEFAULTS, **given, **fixed}
    return Target(make_conninfo("", **chosen), int(lanes))
