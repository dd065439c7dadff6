"""Redis behind real sentinels: the master is found again after it was killed, and what was waited for is there."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.servers import CannotStart, Private, Run
from tests.servers.kind import Launch, Place
from tests.servers.private import start
from tests.servers.redis_server import Redis
from umavez import AsyncOnce, ConfigurationError, Once, StoreError, StoreUnavailable, StoreUncertain
from umavez.cli.doctor.findings import Level
from umavez.cli.doctor.redis import examine
from umavez.stores.redis.url import address_of

NAME = "loja"


class Replica(Redis):
    """A server that follows another."""

    def __init__(self, master: int) -> None:
        self._master = master

    def prepare(self, place: Place) -> Launch:
        launch = super().prepare(place)
        return Launch([*launch.command, "--replicaof", "127.0.0.1", str(self._master)], launch.url)


class Sentinel(Redis):
    """One that watches a master and has a replica promoted."""

    def __init__(self, master: int) -> None:
        self._master = master

    def prepare(self, place: Place) -> Launch:
        lines = [
            f"port {place.port}",
            "bind 127.0.0.1",
            f"dir {place.directory}",
            f"sentinel monitor {NAME} 127.0.0.1 {self._master} 2",
            f"sentinel down-after-milliseconds {NAME} 500",
            f"sentinel failover-timeout {NAME} 3000",
        ]
        settings = place.directory / "sentinel.conf"
        settings.write_text("\n".join(lines) + "\n")
        command = [str(place.programs["redis-server"]), str(settings), "--sentinel"]
        return Launch(command, f"redis://127.0.0.1:{place.port}")


def port_of(server: Private) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def watched(server_run: Run) -> Iterator[tuple[list[Private], str]]:
    """A master, two replicas, and three sentinels that know them all."""
    programs = Redis().locate()
    if programs is None:
        pytest.skip("redis-server is not installed (apt install redis-server)")
    started: list[Private] = []
    try:
        started.append(start(Redis(), programs, server_run.owner))
        master = port_of(started[0])
        started += [start(Replica(master), programs, server_run.owner) for _ in range(2)]
        started += [start(Sentinel(master), programs, server_run.owner) for _ in range(3)]
        places = ",".join(f"127.0.0.1:{port_of(one)}" for one in started[3:])
        await_known([port_of(one) for one in started[3:]])
        yield started, f"redis+sentinel://{places}/{NAME}"
    except CannotStart as error:
        pytest.skip(f"sentinels cannot be started: {error}")
    finally:
        for server in started:
            with suppress(ProcessLookupError, FileNotFoundError):
                server.stop()
            shutil.rmtree(Path(server.directory), ignore_errors=True)


def await_known(sentinels: list[int]) -> None:
    """Until each sentinel knows both replicas and both others."""
    deadline = time.monotonic() + 40
    for port in sentinels:
        with redis.Redis(port=port, socket_timeout=5) as client:
            while time.monotonic() < deadline:
                seen = client.sentinel_master(NAME)
                if seen["num-slaves"] >= 2 and seen["num-other-sentinels"] >= 2:
                    break
                time.sleep(0.1)


def insisted(call: Callable[[], object]) -> object:
    """What a caller gets who tries again until somebody leads."""
    deadline = time.monotonic() + 40
    while True:
        try:
            return call()
        except StoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.redis
@pytest.mark.slow
def test_after_the_master_was_killed_another_is_found_and_knows_what_was_waited_for(
    watched: tuple[list[Private], str],
) -> None:
    servers, url = watched
    waiting = f"{url}?wait=1&connect_timeout=1"
    with Once(waiting, scope="loja") as once:
        first = [insisted(lambda k=k: once.run("pay", key=k, call=lambda: k, unknown="rerun").value) for k in "abc"]
        with Once(f"{url}?wait=3&timeout=1", scope="greedy") as greedy, pytest.raises(StoreUncertain, match="2 of 3"):
            greedy.run("pay", key="a", call=lambda: 1, unknown="rerun")
        servers[0].kill()
        insisted(lambda: once.run("pay", key="d", call=lambda: "d", unknown="rerun"))
        again = [insisted(lambda k=k: once.run("pay", key=k, call=lambda: "x", unknown="rerun").value) for k in "abc"]
    assert again == first == ["a", "b", "c"]

    async def awaited() -> object:
        async def call() -> str:
            return "x"

        async with AsyncOnce(waiting, scope="loja") as once:
            return (await once.run("pay", key="a", call=call, unknown="rerun")).value

    assert asyncio.run(awaited()) == "a"
    told = {finding.setting: finding.level for finding in examine(url).findings}
    assert (told["sentinel"], told["role"]) == (Level.DANGER, Level.FINE)
    assert {finding.setting: finding.level for finding in examine(waiting).findings}["sentinel"] is Level.WARNING


def test_without_a_sentinel_that_answers_nothing_is_guessed() -> None:
    url = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/loja"
    with Once(url, scope="loja") as once, pytest.raises(StoreUnavailable, match=r"No sentinel of 127\.0\.0\.1:1"):
        once.run("pay", key="a", call=lambda: 1, unknown="rerun")
    assert "No sentinel" in str(examine(url).problem)


def test_every_part_of_the_url_is_read() -> None:
    address = address_of("redis+sentinel://ana:s%40e@a:1,b/loja/3?wait=2&prefix=p")

    assert address.sentinels == (("a", 1), ("b", 26379))
    assert (address.name, address.database, address.wait, address.prefix) == ("loja", 3, 2, "{p}")
    assert (address.username, address.password, address.host) == ("ana", "s@e", "")


@pytest.mark.parametrize(
    "rest", ["", "a", "a/", "/loja", "a,/loja", "a:port/loja", "a/loja?strict=1", "a/loja?wait=x", "a/loja?wait=99"]
)
def test_a_url_that_says_too_little_or_too_much_is_refused(rest: str) -> None:
    with pytest.raises(ConfigurationError):
        address_of(f"redis+sentinel://{rest}")
