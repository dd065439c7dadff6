"""Drive: carries the commands of a flow to a store, apart from the shells: a law needs only a store."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from umavez.core.flow import Command, Read, Reply
from umavez.stores import AsyncStore, Store

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A flow of either kind: `Flow[T]` or `SwapFlow[T]`."""


def carry_out(store: Store, command: Command) -> Reply:
    """The store's answer to one command."""
    if isinstance(command, Read):
        return store.read(command.key)
    return store.swap(command.expected, command.draft)


async def acarry_out(store: AsyncStore, command: Command) -> Reply:
    """See `carry_out`."""
    if isinstance(command, Read):
        return await store.read(command.key)
    return await store.swap(command.expected, command.draft)


def drive(flow: Steps[T], store: Store) -> T:
    """What `flow` returns when its commands go to `store`."""
    try:
        command = next(flow)
        while True:
            command = flow.send(carry_out(store, command))
    except StopIteration as end:
        value: T = end.value
        return value


async def adrive(flow: Steps[T], store: AsyncStore) -> T:
    """See `drive`."""
    try:
        command = next(flow)
        while True:
            command = flow.send(await acarry_out(store, command))
    except StopIteration as end:
        value: T = end.value
        return value
