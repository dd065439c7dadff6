"""What a Redis URL may say."""

from __future__ import annotations

import pytest

from umavez.errors import ConfigurationError
from umavez.stores import open_store
from umavez.stores.redis.url import address_of


def test_a_bare_url_means_the_usual_server() -> None:
    address = address_of("redis://")
    assert (address.host, address.port, address.database) == ("127.0.0.1", 6379, 0)
    assert (address.prefix, address.strict, address.timeout, address.tls) == ("{umavez}", False, 5.0, None)


def test_every_part_of_a_url_is_heard() -> None:
    address = address_of("rediss://me:p%40ss@cache.example:7000/3?prefix=shop&strict=1&timeout=2&connect_timeout=0.5")
    assert (address.host, address.port, address.database) == ("cache.example", 7000, 3)
    assert (address.username, address.password) == ("me", "p@ss")
    assert (address.prefix, address.strict, address.timeout, address.connect_timeout) == ("{shop}", True, 2.0, 0.5)
    assert address.tls is not None
    assert address.tls.check_hostname


def test_an_address_never_shows_its_password() -> None:
    address = address_of("redis://me:hidden@localhost")
    assert "hidden" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("redis://host:port", "cannot be read; write it as redis://"),
        ("redis://host/one", "cannot be read"),
        ("redis://host?prefix", "cannot be read"),
        ("redis://host?prefix=", "prefix=umavez"),
        ("redis://host?prefix={a}", "without braces"),
        ("redis://host?strict=yes", "write strict=1"),
        ("redis://host?timeout=0", "write timeout=5"),
        ("redis://host?timeout=nan", "write timeout=5"),
        ("redis://host?connect_timeout=soon", "write connect_timeout=5"),
        ("redis://host?retries=3", "no option 'retries'; use prefix, strict"),
        ("rediss://host?ca=/nowhere.pem", "give the path of a PEM file"),
    ],
)
def test_a_wrong_url_says_what_to_write(url: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        open_store(url)
