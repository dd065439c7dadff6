"""What went wrong on the way to Redis, in umavez's words."""

from __future__ import annotations

import ssl

from umavez.errors import ConfigurationError, StoreUnavailable, StoreUncertain
from umavez.stores.redis.url import Address


def not_opened(address: Address, error: BaseException) -> StoreUnavailable | ConfigurationError:
    """Why there is no connection: trying again helps, except with a certificate that is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"The certificate of Redis at {address} is not trusted; name its authority's PEM file with ca=."
        )
    return unreachable(address)


def unreachable(address: Address) -> StoreUnavailable:
    """Nothing was sent, because there is no connection."""
    return StoreUnavailable(
        f"Redis at {address} does not answer; check that it runs and that the store's URL names it."
    )


def uncertain(address: Address) -> StoreUncertain:
    """The command was sent, and its reply will never come."""
    return StoreUncertain(
        f"The connection to Redis at {address} was lost before its reply, so the write may stand;"
        " send the same call again to learn what does."
    )
