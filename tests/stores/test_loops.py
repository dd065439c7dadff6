"""An async engine that outlives its event loop: the loop ended in the middle of calls, and another one begins."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from umavez import AsyncOnce

SERVERS = ("postgres", "mariadb", "redis")
BACKENDS = ["memory", "sqlite", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SERVERS)]
ENDINGS = 6


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


if __name__ == "__main__":
    main(sys.argv[1])
