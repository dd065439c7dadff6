"""Shares of threads, and the turnstile before them: a system that is stuck, or a crowd, keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.umavez_systems.test_house import SYSTEMS as FOLDERS
from umavez import Crowded
from umavez_systems.corridas.operations import Corridas
from umavez_systems.gates.connections import GuardedProtocol
from umavez_systems.gates.shares import OTHERS, SYSTEMS, Shares, divided, system_of
from umavez_systems.gates.turnstile import Turnstile

NAMES = ("a", "b", "c")


def run(act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What `act` returns; a caller that is never answered fails the test instead of holding it up."""

    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await act()

    return asyncio.run(bounded())


@pytest.fixture
def go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_every_system_has_a_share() -> None:
    assert set(SYSTEMS) == set(FOLDERS)
    assert system_of(Corridas.sweep) == "corridas"
    assert system_of(partial(partial(Corridas.sweep), 1)) == "corridas"
    assert [system_of(case) for case in (next, lambda: None, run)] == [OTHERS] * 3


@pytest.mark.parametrize("threads", [1, 4, 16, 20, 100])
def test_threads_are_divided_so_that_each_has_one_and_one_is_for_all(threads: int) -> None:
    own, common = divided(threads, 6)
    assert own >= 1
    assert common >= 1
    assert common + 6 * own == max(threads, 7)


def test_a_system_that_is_stuck_leaves_the_others_theirs(go: threading.Event) -> None:
    shares = Shares(NAMES, 5, 10, 30.0)

    async def act() -> list[str]:
        stuck = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(13)]
        stuck += [asyncio.create_task(shares.run("b", go.wait, 30)) for _ in range(3)]
        await asyncio.sleep(0)
        told = [await shares.run("c", str, number) for number in range(20)]
        go.set()
        assert all(await asyncio.gather(*stuck))
        return told

    assert run(act) == [str(number) for number in range(20)]
    shares.close()


def test_a_call_too_many_of_a_system_is_refused_and_the_others_may_wait(go: threading.Event) -> None:
    shares = Shares(NAMES, 5, 2, 30.0)

    async def act() -> None:
        # One of its own, two of the common ones, two in line.
        stuck = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Crowded, match="2 calls wait"):
            await shares.run("a", int)
        other = [asyncio.create_task(shares.run("b", go.wait, 30)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in other)
        go.set()
        assert all(await asyncio.gather(*stuck, *other))
        assert await shares.run("a", int) == 0

    run(act)
    shares.close()


def test_a_call_that_waited_for_too_long_is_given_up_and_never_run(go: threading.Event) -> None:
    shares, ran = Shares(NAMES, 5, 10, 0.05), list[str]()

    async def act() -> None:
        stuck = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Crowded, match="No thread was free"):
            await shares.run("a", ran.append, "too late")
        go.set()
        await asyncio.gather(*stuck)
        await shares.run("a", ran.append, "in time")

    run(act)
    shares.close()
    assert ran == ["in time"]


def test_callers_that_go_away_take_no_place_along(go: threading.Event) -> None:
    shares = Shares(NAMES, 5, 10, 30.0)

    async def act() -> None:
        running = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(3)]
        waiting = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in (running[0], waiting[0], waiting[2]):
            task.cancel()
        await asyncio.gather(running[0], waiting[0], waiting[2], return_exceptions=True)
        last = asyncio.create_task(shares.run("a", str, 7))
        await asyncio.sleep(0)
        assert not last.done(), "what was begun keeps its thread until it is over"
        go.set()
        assert await asyncio.gather(running[1], running[2], waiting[1]) == [True] * 3
        assert await last == "7"
        assert len(await asyncio.gather(*(shares.run("a", int) for _ in range(8)))) == 8

    run(act)
    shares.close()


def test_one_that_is_let_in_and_cancelled_in_one_moment_gives_its_place_back(go: threading.Event) -> None:
    shares = Shares(("a",), 2, 10, 30.0)

    async def act() -> None:
        running = [asyncio.create_task(shares.run("a", go.wait, 30)) for _ in range(2)]
        waiting = asyncio.create_task(shares.run("a", go.wait, 30))
        await asyncio.sleep(0)
        share = shares._shares["a"]
        shares._end(share)  # as if one were over: the one that waits is let in
        assert not share.line
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert share.running == 1
        shares._begin(share)  # the one that is not over after all
        go.set()
        assert all(await asyncio.gather(*running))
        assert share.running == 0

    run(act)
    shares.close()


def test_what_is_raised_reaches_its_caller() -> None:
    shares = Shares(NAMES, 5, 10, 30.0)
    with pytest.raises(KeyError):
        run(lambda: shares.run("a", {}.__getitem__, "nothing"))
    shares.close()


def test_a_crowd_is_let_in_a_few_at_a_time_and_a_probe_goes_past_it() -> None:
    order: list[str] = []

    async def act() -> None:
        turnstile = Turnstile(asyncio.get_running_loop(), 2)

        def ask(path: str) -> None:
            turnstile.enter(path, lambda: order.append(path))

        for number in range(50):
            ask(f"/{number}")
        ask("/health")
        ask("/ready")
        assert order == ["/0", "/1", "/health", "/ready"]
        await asyncio.sleep(0)
        assert order[4:] == ["/2", "/3"]
        while turnstile._line:  # noqa: ASYNC110 - one turn of the loop is what is tested
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ask("/later")
        assert order[-1] == "/later", "nobody is in line any more"

    run(act)
    assert [path for path in order if path not in ("/health", "/ready")] == [
        *(f"/{number}" for number in range(50)),
        "/later",
    ]


def test_a_request_that_fails_to_begin_holds_nobody_up() -> None:
    order: list[str] = []

    def fails() -> None:
        raise RuntimeError("its connection is gone")

    async def act() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: order.append("told"))
        turnstile = Turnstile(loop, 1)
        turnstile.enter("/0", lambda: order.append("first"))
        turnstile.enter("/1", fails)
        turnstile.enter("/2", lambda: order.append("last"))
        while turnstile._line:  # noqa: ASYNC110 - one turn of the loop is what is tested
            await asyncio.sleep(0)

    run(act)
    assert order == ["first", "told", "last"]


def test_every_request_goes_through_the_turnstile(client: httpx.Client) -> None:
    """uvicorn begins with a request in this method; under another name it would go past the turnstile."""
    assert GuardedProtocol._start_asgi_task is not HttpToolsProtocol._start_asgi_task
    assert client.get("/api/governance/drivers").status_code == 200
