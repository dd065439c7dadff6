"""An async engine that outlives its event loop: the loop ended in the middle of calls, and another one begins."""

from __future__ import annotations

import asyncio
import gc
import secrets
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from umavez import AsyncOnce

SERVERS = ("postgres", "mariadb", "redis")
BACKENDS = ["memory", "sqlite", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SERVERS)]
ENDINGS = 6
ESTABLISHED = "01"
"""How the kernel's table of connections calls one that is whole."""


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in SERVERS:
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'loops.db'}"


def test_an_engine_goes_on_in_the_next_loop(url: str) -> None:
    """In a process of its own: what was left in the middle complains when it is thrown away, and should."""
    words = [sys.executable, "-W", "ignore", __file__, url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.split() == ["went", "on"], done.stderr[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the connections of a process")
@pytest.mark.parametrize("url", BACKENDS[2:], indirect=True)
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_loops_that_are_over_leave_no_connection_at_the_server(url: str, kind: str) -> None:
    """A process that makes a loop for each of its jobs would keep everybody out after some dozens of them."""
    pytest.importorskip(kind)
    words = [sys.executable, "-W", "ignore", __file__, url, kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    first, last = map(int, done.stdout.split() or (0, 1))
    assert last <= first, done.stderr[-2000:]


async def paid() -> str:
    await asyncio.sleep(0.001)
    return "paid"


def main(url: str) -> None:
    once = AsyncOnce(url, scope=f"loops-{secrets.token_hex(4)}")
    left: list[Any] = []

    async def pay(key: str) -> str:
        return (await once.run("pay", key=key, call=paid, unknown="rerun", lease=30)).value

    async def begin(ending: int) -> None:
        left.extend(asyncio.create_task(pay(f"{ending}-{number}")) for number in range(12))
        left.append(asyncio.create_task(once.get("pay", "1")))
        await asyncio.sleep(0.0007 * ending)

    async def end() -> None:
        values = await asyncio.wait_for(asyncio.gather(*(pay(f"last-{number}") for number in range(12))), 20)
        assert values == ["paid"] * 12
        assert await asyncio.wait_for(once.get("pay", "last-0"), 20) is not None
        await asyncio.wait_for(once.close(), 20)

    asyncio.run(once.migrate())
    loops = [asyncio.new_event_loop() for _ in range(ENDINGS)]
    for ending, loop in enumerate(loops):
        loop.run_until_complete(begin(ending))  # and not a turn further
    asyncio.run(end())
    sys.stdout.write("went on")


def count(url: str, kind: str) -> None:
    run = import_module(kind).run
    once = AsyncOnce(url, scope=f"loops-{secrets.token_hex(4)}")

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(once.run("pay", key=secrets.token_hex(4), call=paid, unknown="rerun"))
            group.create_task(once.get("pay", "1"))

    asyncio.run(once.migrate())
    gc.disable()  # what nobody closes must not be closed by chance
    counts = []
    for _ in range(8):
        run(work())
        counts.append(sessions())
    sys.stdout.write(f"{counts[2]} {counts[-1]}")


def sessions() -> int:
    """How many connections of this process are whole."""
    own = set()
    for opened in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(opened.readlink()))
    lines = (line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:])
    return sum(words[3] == ESTABLISHED and f"socket:[{words[9]}]" in own for words in lines)


if __name__ == "__main__":
    (count if sys.argv[2:] else main)(*sys.argv[1:])
