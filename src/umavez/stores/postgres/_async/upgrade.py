"""Carries the upgrade from version 1 to 2 out; see `umavez.stores.postgres.upgrade`. For tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from umavez.stores.postgres import upgrade as online
from umavez.stores.postgres.statements import INSTALLED

T = TypeVar("T")


async def async_upgraded(connection: AsyncConnection[Any]) -> None:
    """Bring the tables of version 1 to 2 on a connection in autocommit mode; returns too when another process did.

    Raises StoreUnavailable when others hold the table or a record for too long, and psycopg's errors.
    """
    await connection.execute(online.SESSION)
    await _alone(connection)
    if await _value(connection, INSTALLED) != 1:
        return
    await async_between_transactions(partial(connection.execute, online.EXPAND))
    await _backfilled(connection)
    await async_between_transactions(partial(connection.execute, online.ALL_HAVE_ONE))
    for text in online.BESIDE:
        await async_between_transactions(partial(connection.execute, text))
    # An index that is built beside the callers waits for their transactions without being in anybody's way.
    await connection.execute("SET lock_timeout = 0")
    for name, text in online.INDEXES.items():
        await _indexed(connection, name, text)
    await connection.execute(online.SESSION)
    await async_between_transactions(partial(_contracted, connection))


async def _alone(connection: AsyncConnection[Any]) -> None:
    """Wait until no other process upgrades. The lock ends with the session."""
    deadline = time.monotonic() + 60 * online.PATIENCE
    while not await _value(connection, online.ALONE):
        if time.monotonic() > deadline:
            raise online.held_up("the upgrade itself")
        await asyncio.sleep(0.2)


async def _backfilled(connection: AsyncConnection[Any]) -> None:
    """Give every record an id, some at a time; new ones get theirs by themselves."""
    progressed_at = time.monotonic()
    last: bytes | None = b""
    while True:
        began_at = time.monotonic()
        cursor = await connection.execute(online.BACKFILL, (last, online.BATCH))
        ((count, last),) = await cursor.fetchall()
        if count:
            progressed_at = time.monotonic()
            await asyncio.sleep((progressed_at - began_at) * online.SHARE)
            continue
        if not await _value(connection, online.LEFT):
            return
        if time.monotonic() - progressed_at > online.PATIENCE:
            raise online.held_up("a record")
        last = b""  # another round, for what was held in this one
        await asyncio.sleep(0.1)


async def _indexed(connection: AsyncConnection[Any], name: str, text: str) -> None:
    cursor = await connection.execute(online.VALID, (name,))
    found = await cursor.fetchone()
    if found is not None and found[0]:
        return
    await connection.execute(online.unfinished(name))
    await connection.execute(text)


async def _contracted(connection: AsyncConnection[Any]) -> None:
    async with connection.transaction():
        await connection.execute(online.LOCKED)
        first = int(await _value(connection, online.NEXT_ID))
        await connection.execute(online.contract(first))


async def async_between_transactions(change: Callable[[], Awaitable[T]]) -> T:
    """Make a change of the table in a moment in which nobody uses it. Steps back and tries again, for a while.

    `change` bounds its own wait for locks by `online.BRIEF`. Raises StoreUnavailable when there was no such moment.
    """
    deadline = time.monotonic() + online.PATIENCE
    while True:
        try:
            return await change()
        except LockNotAvailable as error:
            if time.monotonic() > deadline:
                raise online.held_up("the table") from error
            await asyncio.sleep(online.BRIEF)


async def _value(connection: AsyncConnection[Any], text: str) -> Any:
    cursor = await connection.execute(text)
    row = await cursor.fetchone()
    return None if row is None else row[0]
