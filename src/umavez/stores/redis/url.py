"""Address: what a redis:// or rediss:// URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from umavez.errors import ConfigurationError

OPTIONS = ("prefix", "strict", "timeout", "connect_timeout", "ca")


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

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address_of(url: str) -> Address:
    """The address in `url`. Raises ConfigurationError, without repeating the URL, when a part is wrong."""
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
    )


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
