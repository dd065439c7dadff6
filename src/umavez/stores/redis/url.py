"""Address: what a redis://, rediss:// or redis+sentinel:// URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from umavez.errors import ConfigurationError

OPTIONS = ("prefix", "strict", "timeout", "connect_timeout", "ca", "wait")
SENTINEL = "redis+sentinel"
SENTINEL_SHAPE = "redis+sentinel://host1,host2,host3/name?wait=1"
MOST = 16
"""Sentinels in one URL, and replicas that can be waited for."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis server is, who asks, and how long to wait. Never shows its password."""

    host: str
    port: int
    database: int
    username: str | None
    password: str | None = field(repr=False)
    tls: ssl.SSLContext | None
    prefix: str
    strict: bool
    timeout: float
    connect_timeout: float
    wait: int = 0
    """How many replicas must have received a write before it counts as done."""
    sentinels: tuple[tuple[str, int], ...] = ()
    """Who knows where the master is; empty where the URL names the server itself."""
    name: str = ""
    """The sentinels' name for the master."""

    def at(self, host: str, port: int) -> Address:
        """The same, at the server that the sentinels named."""
        return replace(self, host=host, port=port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"{self.name} of the sentinels"


def address_of(url: str) -> Address:
    """The address in `url`. Raises ConfigurationError, without repeating the URL, when a part is wrong."""
    if url.startswith(f"{SENTINEL}:"):
        return _behind_sentinels(url)
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        database = int(parts.path.strip("/") or 0)
    except ValueError as error:
        raise ConfigurationError(
            "The Redis URL cannot be read; write it as redis://user:password@host:port/number?prefix=name."
        ) from error
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ConfigurationError(f"The Redis URL has no option {unknown[0]!r}; use {', '.join(OPTIONS)}.")
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        database=database,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=_tls(options.get("ca")) if parts.scheme == "rediss" else None,
        prefix=_tagged(options.get("prefix", "umavez")),
        strict=_flag(options.get("strict", "0")),
        timeout=_seconds("timeout", options),
        connect_timeout=_seconds("connect_timeout", options),
        wait=_replicas(options.get("wait", "0")),
    )


def _behind_sentinels(url: str) -> Address:
    """The address of a master that sentinels know; nowhere yet."""
    place, _, query = url.partition("://")[2].partition("?")
    where, _, path = place.partition("/")
    account, at, hosts = where.rpartition("@")
    name, _, database = path.partition("/")
    try:
        parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
        sentinels = tuple((part.hostname or "", part.port or 26379) for part in parts)
    except ValueError as error:
        raise ConfigurationError(f"The sentinels of the Redis URL cannot be read; write {SENTINEL_SHAPE}.") from error
    if not name or len(sentinels) > MOST or not all(host for host, _ in sentinels):
        raise ConfigurationError(f"The Redis URL names no sentinels or no master; write {SENTINEL_SHAPE}.")
    address = address_of(f"redis://{account}{at}unknown/{database}" + (f"?{query}" if query else ""))
    if address.strict:
        raise ConfigurationError("strict=1 refuses a master with replicas, which sentinels have; leave it out.")
    return replace(address, host="", port=0, sentinels=sentinels, name=unquote(name))


def _replicas(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MOST:
        raise ConfigurationError(f"The Redis option wait is a number of replicas from 0 to {MOST}; write wait=1.")
    return int(text)


def _tagged(prefix: str) -> str:
    """The prefix as a hash tag: a cluster then keeps all keys of one script in one slot."""
    if not prefix or "{" in prefix or "}" in prefix:
        raise ConfigurationError("The Redis option prefix must be a name without braces; write prefix=umavez.")
    return f"{{{prefix}}}"


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ConfigurationError("The Redis option strict is 0 or 1; write strict=1 to refuse risky servers.")
    return text == "1"


def _seconds(name: str, options: dict[str, str]) -> float:
    try:
        seconds = float(options.get(name, "5"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"The Redis option {name} must be a number of seconds above 0; write {name}=5.")
    return seconds


def _tls(authority: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigurationError(
            "The certificate file in the Redis option ca cannot be read; give the path of a PEM file."
        ) from error
