"""A plain connection to Redis, for looking at the server. The store's own are `pipe` and `async_pipe`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from umavez.stores.redis.sentinel import located
from umavez.stores.redis.url import address_of


def connect(url: str) -> Any:
    """A plain client of redis-py to look at the server of `url`, which waits seconds and tries once.

    Raises StoreUnavailable where no sentinel says which that is.
    """
    import redis  # noqa: PLC0415  # the store speaks the protocol itself; only who looks at a server needs this
    from redis.backoff import NoBackoff  # noqa: PLC0415  # the same
    from redis.retry import Retry  # noqa: PLC0415  # the same

    address = located(address_of(url))
    authority = parse_qs(urlsplit(url).query).get("ca", [None])[0]
    secured: dict[str, Any] = {"ssl": True, "ssl_ca_certs": authority} if address.tls else {}
    return redis.Redis(
        host=address.host,
        port=address.port,
        db=address.database,
        username=address.username,
        password=address.password,
        socket_connect_timeout=3,
        socket_timeout=5,
        retry=Retry(NoBackoff(), 0),
        **secured,
    )
