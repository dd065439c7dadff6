"""One connection and channel to RabbitMQ, opened anew by whoever finds it dead.

Plain connections, not "robust" ones: those have come back with a channel that delivers nothing. Here one that is not
whole is dropped, and the next use opens another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.connection import make_url
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

from umavez.concurrency.after_fork import reset_after_fork
from umavez.messaging.broker import BrokerUnavailable
from umavez.messaging.rabbitmq.addresses import addresses_of
from umavez.stores import without_password

CONNECT_SECONDS = 10.0
NODE_SECONDS = 2.0
"""For each of several nodes: while a silent one is waited for, another could have answered."""
FAILURES = (AMQPError, ChannelInvalidStateError, OSError, asyncio.TimeoutError, RuntimeError)
"""What aio-pika raises when a connection is gone; RuntimeError is its word for a closed channel or writer."""


class RabbitConnection:
    """A connection with one channel in confirm mode that raises what the broker returns."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._nodes = deque(addresses_of(url))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self.version = (0, 0)
        reset_after_fork(self)

    def reset(self) -> None:
        """Begin anew in a forked child: a farewell from here would end the parent's session."""
        _INHERITED.append((self._connection, self._channel))
        self._connection = self._channel = self._loop = None

    @property
    def whole(self) -> bool:
        """Whether connection and channel are open, as far as this side knows."""
        return (
            self._connection is not None
            and not self._connection.is_closed
            and self._channel is not None
            and not self._channel.is_closed
        )

    async def channel(self) -> AbstractChannel:
        """An open channel. Raises BrokerUnavailable."""
        self._move()
        async with self._lock:
            if not self.whole or self._channel is None:
                await self._dropped()
                with failures(self._url):
                    await self._opened_somewhere()
            assert self._channel is not None  # noqa: S101 - _opened has set it or raised
            return self._channel

    def _move(self) -> None:
        """Leave behind what a loop that is over has opened: the server ends it when its heartbeats stay away."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
            self._connection = self._channel = None

    async def _opened_somewhere(self) -> None:
        """At the node that answered last, or the first after it that does; raises what the last one said."""
        seconds = CONNECT_SECONDS if len(self._nodes) == 1 else NODE_SECONDS
        for left in range(len(self._nodes) - 1, -1, -1):
            try:
                async with asyncio.timeout(seconds):
                    await self._opened(self._nodes[0], seconds)
                return
            except FAILURES:
                await self._dropped()
                self._nodes.rotate(-1)
                if not left:
                    raise

    async def _opened(self, url: str, seconds: float) -> None:
        # Not by aio_pika.connect: what that cannot open stays unclosed, and is collected in any thread.
        connection = self._connection = aio_pika.Connection(make_url(url))
        await connection.connect(seconds)
        self.version = _version(connection)
        self._channel = await connection.channel(publisher_confirms=True, on_return_raises=True)

    async def _dropped(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            try:
                with suppress(*FAILURES):
                    async with asyncio.timeout(2):  # a frozen broker never answers the farewell
                        await connection.close()
            finally:
                await connection.close()  # without its socket, which is gone by now, it is only marked as closed

    async def close(self) -> None:
        """Close the connection; the next use opens another."""
        self._move()
        async with self._lock:
            await self._dropped()


_INHERITED: list[object] = []
"""Connections of a parent process. Kept, because the client says goodbye on one that is thrown away."""


def _version(connection: AbstractConnection) -> tuple[int, int]:
    transport = getattr(connection, "transport", None)
    properties = getattr(getattr(transport, "connection", None), "server_properties", {})
    text = properties.get("version", "0.0")
    parts = (text.decode() if isinstance(text, bytes) else str(text)).split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)


@contextmanager
def failures(url: str) -> Iterator[None]:
    """Turn the client's errors into BrokerUnavailable, without the password."""
    try:
        yield
    except FAILURES as error:
        raise BrokerUnavailable(
            f"RabbitMQ at {without_password(url)} did not answer ({type(error).__name__}); check URL and server."
        ) from error
