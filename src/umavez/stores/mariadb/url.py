"""Where a MariaDB store is and how to talk to it, read from its URL."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from umavez.errors import ConfigurationError
from umavez.stores import without_password

SESSION = (
    "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin,"
    " sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',"
    " autocommit = 1, innodb_lock_wait_timeout = 1, sql_notes = 0"
)
"""Own connections: strict, or a long text would be cut silently; impatient, or one locked row or table would stop a
lane; without notes, for which asyncmy would make a round trip of its own."""
GRACE = 1.0
"""Seconds in which the server's own time-outs may still be heard, before it counts as silent."""
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
LIMITS = "SELECT @@max_allowed_packet, version()"
SHAPE = "mariadb://user:password@host:port/database"
MOST = 16
"""Hosts in one URL."""


class Address(NamedTuple):
    """The parts of a store's URL."""

    host: str
    port: int
    user: str
    password: str
    database: str
    lanes: int = 2
    timeout: float = 30.0
    ssl_ca: str = ""
    patient: bool = True
    """Whether it is the only host; among several, a silent one costs the time in which another could have answered."""
    others: tuple[tuple[str, int], ...] = ()
    """Hosts to try after `host`, in turn. Everybody begins with the first, so that one node takes all writes."""

    def each(self) -> list[Address]:
        """This address and those of the other hosts, each alone."""
        alone = self._replace(others=())
        return [alone, *(alone._replace(host=host, port=port) for host, port in self.others)]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"

    def session(self) -> str:
        """The statement that sets a connection of our own up. A table lock is waited for twice; see TRIES."""
        lock = max(1, int(self.timeout / 3))
        return f"{SESSION}, lock_wait_timeout = {lock}, max_statement_time = {self.timeout}"

    def arguments(self) -> dict[str, Any]:
        """The arguments of connect() that both drivers share."""
        given: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "database": self.database,
            "charset": "utf8mb4",
            "connect_timeout": min(self.timeout, 10.0 if self.patient else 2.0),
            "read_timeout": self.timeout + GRACE,
        }
        if self.ssl_ca:
            given["ssl"] = {"ca": self.ssl_ca, "check_hostname": True}
        return given


def address_of(url: str) -> Address:
    """The address in `url`. Raises ConfigurationError where it names none."""
    shown = without_password(url)
    try:
        url, others = _first_host(url)
        split = urlsplit(url)
        port = split.port or 3306
    except ValueError as error:
        raise ConfigurationError(f"{shown!r} is not a URL ({error}); write {SHAPE}.") from error
    database = unquote(split.path.removeprefix("/"))
    if split.scheme not in {"mariadb", "mysql"} or not split.hostname or not database or "/" in database:
        raise ConfigurationError(f"{shown!r} names no host and database; write {SHAPE}.")
    options = _options(split.query, shown)
    return Address(
        split.hostname,
        port,
        unquote(split.username or "root"),
        unquote(split.password or ""),
        database,
        int(_between(options.get("lanes", "2"), "lanes", (1, 64), shown)),
        _between(options.get("timeout", "30"), "timeout", (1, 3600), shown),
        options.get("ssl_ca", ""),
        not others,
        others,
    )


def _first_host(url: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The URL with its first host alone, and the others. Raises ValueError."""
    scheme, sign, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    account, at, hosts = place.rpartition("@")
    first, *more = hosts.split(",")
    if len(more) >= MOST:
        raise ValueError(f"more than {MOST} hosts")
    parts = [urlsplit(f"//{host}") for host in more]
    if not all(part.hostname for part in parts):
        raise ValueError("a host is missing")
    others = tuple((part.hostname or "", part.port or 3306) for part in parts)
    return f"{scheme}{sign}{account}{at}{first}{slash}{path}", others


def bare_address_of(url: str) -> Address:
    """The same for a URL that may name a server without a database: a look needs none, though a store does."""
    parts = urlsplit(url)
    if parts.path.strip("/"):
        return address_of(url)
    return address_of(parts._replace(path="/none").geturl())._replace(database="")


def _options(query: str, shown: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"lanes", "timeout", "ssl_ca"})
    if unknown:
        raise ConfigurationError(
            f"{shown!r} has an unknown option {unknown[0]!r}; known are lanes, timeout and ssl_ca."
        )
    return options


def _between(text: str, name: str, bounds: tuple[float, float], shown: str) -> float:
    least, most = bounds
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ConfigurationError(f"{shown!r} must have {name} from {least:g} to {most:g}; correct it.")
    return value


def refuse_other_servers(version: str, where: str) -> None:
    """Raises ConfigurationError for a server that lacks RETURNING, sequences or SKIP LOCKED."""
    name = version.partition("-")[0].split(".")
    if "MariaDB" not in version or (int(name[0]), int(name[1])) < (10, 6):
        raise ConfigurationError(f"The server at {where} is {version}; umavez needs MariaDB 10.6 or newer.")
