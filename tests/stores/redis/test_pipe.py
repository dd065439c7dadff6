"""The queue of threads in front of one socket, when one of them is interrupted in its sleep."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from umavez.stores.redis.async_pipe import AsyncPipe
from umavez.stores.redis.command import packed
from umavez.stores.redis.pipe import Pipe, bound_in_time
from umavez.stores.redis.url import address_of


class Halting(Pipe):
    """Answers each command with itself, as soon as `gate` lets it."""

    def __init__(self) -> None:
        super().__init__(address_of("redis://127.0.0.1"))
        self.gate = threading.Semaphore(0)
        self.flights: list[list[bytes]] = []

    def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        self.flights.append(list(commands))
        assert self.gate.acquire(timeout=10)
        return list(commands)


class Callers:
    """Threads that call a pipe, and what each was answered."""

    def __init__(self, pipe: Halting) -> None:
        self.pipe = pipe
        self.answers: dict[bytes, Any] = {}
        self.threads: list[threading.Thread] = []

    def call(self, command: bytes) -> None:
        def work() -> None:
            self.answers[command] = self.pipe.call(command)

        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def finish(self) -> None:
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def callers() -> Iterator[Callers]:
    # A shell starts what it puts into the background with SIGINT ignored, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = Callers(Halting())
    yield made
    made.finish()
    signal.signal(signal.SIGINT, before)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def interrupted_call(callers: Callers, meanwhile: Callable[[], None]) -> None:
    """Call from the main thread, the only one that a signal interrupts, and interrupt it after `meanwhile`."""

    def interrupt() -> None:
        until(lambda: any(ticket.command == b"main" for ticket in callers.pipe._queue))
        meanwhile()
        time.sleep(0.02)  # it is in the queue, and a moment later asleep
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.02)
        callers.pipe.gate.release(5)

    helper = threading.Thread(target=interrupt, daemon=True)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        callers.pipe.call(b"main")
    helper.join(10)


def test_one_interrupted_at_the_head_of_the_queue_leaves_it_to_the_others(callers: Callers) -> None:
    def queue_two_more() -> None:
        callers.call(b"b")
        callers.call(b"c")
        until(lambda: len(callers.pipe._queue) == 3)

    callers.call(b"a")
    until(lambda: callers.pipe._busy)
    interrupted_call(callers, queue_two_more)
    callers.finish()
    assert callers.answers == {b"a": b"a", b"b": b"b", b"c": b"c"}
    assert not any(b"main" in flight for flight in callers.pipe.flights)


def test_one_interrupted_in_flight_still_wakes_the_one_behind_it(callers: Callers) -> None:
    def let_them_fly() -> None:
        callers.call(b"c")
        until(lambda: len(callers.pipe._queue) == 3)
        callers.pipe.gate.release()
        until(lambda: [b"b", b"main", b"c"] in callers.pipe.flights)

    callers.call(b"a")
    until(lambda: callers.pipe._busy)
    callers.call(b"b")
    until(lambda: len(callers.pipe._queue) == 1)
    interrupted_call(callers, let_them_fly)
    callers.finish()
    assert callers.answers == {b"a": b"a", b"b": b"b", b"c": b"c"}
    assert not callers.pipe._busy


def test_a_batch_is_one_write_and_everybody_gets_its_own_answer(callers: Callers) -> None:
    callers.call(b"first")
    until(lambda: callers.pipe._busy)
    for number in range(20):
        callers.call(b"%d" % number)
    until(lambda: len(callers.pipe._queue) == 20)
    callers.pipe.gate.release(2)
    callers.finish()
    assert len(callers.pipe.flights) == 2
    assert all(command == answer for command, answer in callers.answers.items())
    assert len(callers.answers) == 21


def test_a_socket_with_a_high_descriptor_is_looked_at_after_a_quiet_second(redis_url: str) -> None:
    """select() refuses descriptors from 1024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    pipe = Pipe(address_of(redis_url))
    try:
        assert pipe.call(packed("PING")) == b"PONG"
        wire = pipe._wire
        assert wire is not None
        assert wire._socket.fileno() >= 1024
        wire.last_heard -= 60

        assert pipe.call(packed("PING")) == b"PONG"
        assert pipe._wire is wire, "a socket that is open was taken for one that is not"
        wire.shut()
        wire._shut = False
        wire.last_heard -= 60
        assert pipe.call(packed("PING")) == b"PONG"
        assert pipe._wire is not wire
    finally:
        pipe.close()
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("way", ["reading", "sending"])
def test_a_far_side_that_neither_speaks_nor_listens_holds_nobody(way: str) -> None:
    near, far = socket.socketpair()
    with near, far:
        bound_in_time(near, 0.2)
        began = time.monotonic()
        with pytest.raises(OSError, match=r"timed out|temporarily unavailable"):
            near.recv(1) if way == "reading" else near.sendall(b"x" * 50_000_000)
        assert 0.1 < time.monotonic() - began < 5


def test_no_time_at_all_is_not_for_ever() -> None:
    near, far = socket.socketpair()
    with near, far:
        bound_in_time(near, 0.0000001)
        with pytest.raises(OSError, match=r"timed out|temporarily unavailable"):
            near.recv(1)


@pytest.mark.redis
def test_a_crowd_that_comes_while_a_connection_is_opened_opens_one(redis_url: str) -> None:
    """One more with each failover would be open until the process ends."""

    async def work() -> int:
        pipe = AsyncPipe(address_of(redis_url))
        calls: list[asyncio.Task[Any]] = []

        async def call() -> Any:
            return await pipe.call(packed("PING"))

        while pipe._wire is None or len(calls) < 100:  # some of them in every turn of the loop
            calls.append(asyncio.create_task(call()))
            await asyncio.sleep(0)
        assert set(await asyncio.gather(*calls)) == {b"PONG"}
        await pipe.close()
        return pipe.opened

    assert asyncio.run(work()) == 1
