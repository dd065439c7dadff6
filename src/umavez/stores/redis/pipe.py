"""Pipe: one socket to Redis, shared by threads. `AsyncPipe` is written beside it, because waiting differs.

A lone thread writes its command and reads the reply itself. While one does, the others queue; the head of
the queue then takes all of it along in one write. Whoever has its answer wakes the next one of its batch: woken
all at once, they would only wait again, for the interpreter's lock. Replies come in the order of the commands and are
counted: one too many, or anything unreadable, closes the socket, so no thread is ever given another one's
reply.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from hiredis import ProtocolError, Reader

from umavez.concurrency.after_fork import reset_after_fork
from umavez.errors import StoreError
from umavez.stores.redis.errors import not_opened, uncertain
from umavez.stores.redis.handshake import admit, greeting
from umavez.stores.redis.sentinel import located
from umavez.stores.redis.url import Address

MOST = 256
"""Most commands in one write."""

QUIET = 1.0
"""Seconds without traffic after which the server is suspected to have hung up meanwhile."""


class _Ticket:
    """A thread in the queue: sleeps until it has an answer, or leads the next batch."""

    __slots__ = ("answer", "awake", "batch", "behind", "command")

    def __init__(self, command: bytes) -> None:
        self.command = command
        self.answer: Any = None
        self.batch: list[_Ticket] | None = None
        self.behind: _Ticket | None = None
        self.awake = threading.Lock()
        self.awake.acquire()


class Pipe:
    """Carries packed commands. It repairs itself: after a failure the next call opens a new socket."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._closing = False
        self._queue: list[_Ticket] = []
        self._wire: Wire | None = None
        self.opened = 0
        """How often a socket was opened: who compares before and after knows whether it was the same one."""

    def call(self, command: bytes) -> Any:
        """The reply to `command`: a value, or a ReplyError as a value. Raises StoreError."""
        with self._lock:
            ticket = _Ticket(command) if self._busy else None
            if ticket is None:
                self._busy = True
            else:
                self._queue.append(ticket)
        if ticket is None:
            try:
                return self._exchange((command,))[0]
            finally:
                self._pass_on()
        try:
            ticket.awake.acquire()
        except BaseException:
            self._leave(ticket)
            raise
        self._serve(ticket)
        if isinstance(ticket.answer, StoreError):
            raise ticket.answer
        return ticket.answer

    def _serve(self, ticket: _Ticket) -> None:
        """What falls to a thread that was woken: to lead its batch, or to wake the next one of it."""
        if ticket.batch is not None:
            self._lead(ticket.batch)
        elif ticket.behind is not None:
            ticket.behind.awake.release()

    def _leave(self, ticket: _Ticket) -> None:
        """Interrupted in its sleep (KeyboardInterrupt), a thread leaves the queue, or serves the others first."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                return
        ticket.awake.acquire()
        self._serve(ticket)

    def _lead(self, batch: list[_Ticket]) -> None:
        # What followers are told if this thread is interrupted (KeyboardInterrupt): they must not sleep on.
        answers: Sequence[Any] = [uncertain(self._address) for _ in batch]
        try:
            answers = self._exchange([ticket.command for ticket in batch])
        except StoreError as error:
            answers = [type(error)(str(error)) for _ in batch]
            for answer in answers:
                answer.__cause__ = error.__cause__
        finally:
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.answer = answer
            for ticket, behind in pairwise(batch):
                ticket.behind = behind
            if len(batch) > 1:
                batch[1].awake.release()
            self._pass_on()

    def _pass_on(self) -> None:
        """Hand the socket to the head of the queue, with its batch; or leave it idle."""
        with self._lock:
            if not self._queue:
                self._busy = False
                if self._closing:
                    self._closing = False
                    self._drop()
                return
            batch, self._queue = self._queue[:MOST], self._queue[MOST:]
        batch[0].batch = batch
        batch[0].awake.release()

    def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        wire = self._wire
        # After traffic a moment ago nobody is suspected, and every call comes by.
        if wire is not None and (wire.is_shut or time.monotonic() - wire.last_heard >= QUIET) and wire.hung_up():
            self._drop()
            wire = None
        if wire is None:
            wire = self._wire = _opened(self._address)
            self.opened += 1
        try:
            return wire.exchange(commands)
        except (OSError, ProtocolError) as error:
            self._drop()
            raise uncertain(self._address) from error
        except BaseException:
            # An interruption leaves a reply on its way; nobody else may read it.
            self._drop()
            raise

    def distrust(self) -> None:
        """Let nobody use the socket again. It is shut, not closed: another thread may be reading from it."""
        wire = self._wire
        if wire is not None:
            wire.shut()

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def close(self) -> None:
        """Close the socket when whoever uses it has its reply."""
        with self._lock:
            if self._busy:
                self._closing = True
            else:
                self._drop()

    def reset(self) -> None:
        """Begin anew in a forked child. Closing this copy of the socket sends nothing to the server."""
        wire = self._wire
        self._begin()
        if wire is not None:
            wire.close()


class Wire:
    """A connected socket and the replies that arrive on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = Reader()
        self.last_heard = time.monotonic()
        self.is_shut = False

    def exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """One reply for each command, in order. After OSError or ProtocolError the wire is of no more use."""
        many, reader, connection = len(commands), self._reader, self._socket
        connection.sendall(commands[0] if many == 1 else b"".join(commands))
        replies: list[Any] = []
        while many:
            data = connection.recv(65536)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(data)
            # Not one more than were asked for: what is left then is no answer to anything.
            while many and (reply := reader.gets()) is not False:
                replies.append(reply)
                many -= 1
        if reader.has_data():
            raise ProtocolError("more replies than commands")
        self.last_heard = time.monotonic()
        return replies

    def hung_up(self) -> bool:
        """Whether the server closed the connection, or spoke unasked, while nobody was listening."""
        if self.is_shut:
            return True
        # poll, not select: that refuses descriptors from 1024 on, which a busy server has.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def shut(self) -> None:
        """End the conversation from any thread; who reads gets an end of file."""
        self.is_shut = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _opened(address: Address) -> Wire:
    """A wire on which the server has accepted the greeting. Raises StoreUnavailable or ConfigurationError."""
    address = located(address)
    commands = greeting(address)
    wire: Wire | None = None
    try:
        wire = Wire(_connected(address))
        replies = wire.exchange(commands)
        admit(address, replies)
    except (OSError, ProtocolError) as error:
        if wire is not None:
            wire.close()
        raise not_opened(address, error) from error
    except BaseException:
        if wire is not None:
            wire.close()
        raise
    return wire


def _connected(address: Address) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), address.connect_timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = address.tls.wrap_socket(plain, server_hostname=address.host) if address.tls else plain
        bound_in_time(connection, address.timeout)
    except BaseException:
        plain.close()
        raise
    return connection


def bound_in_time(connection: socket.socket, seconds: float) -> None:
    """Let no sending and no reading take longer.

    Where the kernel looks after it, a call is spared two system calls: 2.6 of 24 us for an exchange with nothing in it.
    OpenSSL takes the kernel's "not in time" for "try again", so TLS keeps Python's way.
    """
    if sys.platform != "linux" or isinstance(connection, ssl.SSLSocket):
        connection.settimeout(seconds)
        return
    connection.settimeout(None)
    whole, part = divmod(max(round(seconds * 1_000_000), 1), 1_000_000)  # zero would mean for ever
    for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, side, struct.pack("@ll", whole, part))
