"""Addresses: the nodes of a RabbitMQ that one URL names, as in amqp://user@a:5672,b:5672,c/vhost."""

from __future__ import annotations

from urllib.parse import urlsplit

from umavez.errors import ConfigurationError
from umavez.stores import without_password

MOST = 16
"""Nodes in one URL; a cluster of quorum queues has three or five."""


def addresses_of(url: str) -> tuple[str, ...]:
    """One URL for each node, in the order given. Raises ConfigurationError when it cannot be read."""
    scheme, sign, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    if not slash:
        place, mark, query = place.partition("?")
        path = mark + query
    account, at, hosts = place.rpartition("@")
    found = tuple(f"{scheme}{sign}{account}{at}{host}{slash}{path}" for host in hosts.split(","))
    if scheme not in ("amqp", "amqps") or not sign or len(found) > MOST or not all(_is_readable(one) for one in found):
        raise ConfigurationError(
            f"{without_password(url)!r} names no RabbitMQ; use amqp://user@host:5672/, or several hosts as"
            f" amqp://user@a:5672,b:5672,c:5672/ (at most {MOST})."
        )
    return found


def _is_readable(url: str) -> bool:
    try:
        split = urlsplit(url)
        return bool(split.hostname) and (split.port is None or split.port > 0)
    except ValueError:
        return False
