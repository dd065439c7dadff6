"""Sentinels: who is asked where the master is, each time a connection is opened.

Asked each time, because whatever remembers an address, or passes on to whoever says "master", also reaches one that led
before and does not know yet that it leads no more.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from hiredis import HiredisError, Reader

from umavez.errors import StoreUnavailable
from umavez.stores.redis.command import packed
from umavez.stores.redis.url import Address

LONGEST = 4096
"""Bytes of an answer: a host and a port."""
_FAILURES = (OSError, HiredisError, ValueError)


def located(address: Address) -> Address:
    """Where the master is now, as the first sentinel says that answers. Raises StoreUnavailable."""
    if not address.sentinels:
        return address
    for place in address.sentinels:
        try:
            with socket.create_connection(place, min(2.0, address.connect_timeout)) as connection:
                connection.settimeout(min(2.0, address.timeout))
                connection.sendall(_question(address))
                reader, heard = Reader(), 0
                while (reply := reader.gets()) is False:
                    heard = _fed(reader, connection.recv(LONGEST), heard)
                return _named(address, reply)
        except _FAILURES:
            continue
    raise _lost(address)


async def async_located(address: Address) -> Address:
    """See `located`."""
    for host, port in address.sentinels:
        try:
            async with asyncio.timeout(min(2.0, address.connect_timeout)):
                return await _asked(address, host, port)
        except _FAILURES:
            continue
    if address.sentinels:
        raise _lost(address)
    return address


async def _asked(address: Address, host: str, port: int) -> Address:
    incoming, outgoing = await asyncio.open_connection(host, port)
    try:
        outgoing.write(_question(address))
        reader, heard = Reader(), 0
        while (reply := reader.gets()) is False:
            heard = _fed(reader, await incoming.read(LONGEST), heard)
        return _named(address, reply)
    finally:
        outgoing.close()


def _question(address: Address) -> bytes:
    return packed("SENTINEL", "get-master-addr-by-name", address.name)


def _fed(reader: Reader, data: bytes, heard: int) -> int:
    """Give what came to the reader; how much came in all. Raises ValueError where it is no answer."""
    if not data or heard + len(data) > LONGEST:
        raise ValueError("no answer of a sentinel")
    reader.feed(data)
    return heard + len(data)


def _named(address: Address, reply: Any) -> Address:
    """The address in a sentinel's reply. Raises ValueError where it knows no such master."""
    if not isinstance(reply, list) or len(reply) != 2:
        raise ValueError("an unknown master")
    host, port = reply
    return address.at(host.decode(), int(port))


def _lost(address: Address) -> StoreUnavailable:
    places = ", ".join(f"{host}:{port}" for host, port in address.sentinels)
    return StoreUnavailable(
        f"No sentinel of {places} says where the master {address.name!r} is; check that they run and know that name."
    )
