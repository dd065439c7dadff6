"""How many commands each verb costs, counted by a server that nobody else talks to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.servers import Private
from tests.stores.redis.redis_drafts import claim, done, opened
from umavez.core.record import Query, Status

pytestmark = pytest.mark.redis


@pytest.fixture(params=["sync", "async"])
def counted(request: pytest.FixtureRequest, private_server: Callable[[str], Private]) -> Iterator[tuple[Any, Any]]:
    url = private_server("redis").url
    with redis.Redis.from_url(url) as client, opened(request.param, url) as store:
        store.migrate()

        def count(verb: str, *words: Any) -> dict[str, int]:
            client.config_resetstat()
            getattr(store, verb)(*words)
            stats: dict[str, Any] = client.info("commandstats")
            return {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}

        yield count, client


def test_a_first_call_is_two_scripts_and_a_replay_one_that_writes_nothing(counted: tuple[Any, Any]) -> None:
    count, client = counted
    draft = claim("k", "s")
    claiming = count("swap", None, draft)
    settling = count("swap", "s", done(draft, "t"))
    written = client.info("persistence")["aof_current_size"]
    replaying = count("swap", None, claim("k", "u"))
    assert [commands["evalsha"] for commands in (claiming, settling, replaying)] == [1, 1, 1]
    assert replaying == {"evalsha": 1, "time": 1, "get": 1, "config|resetstat": 1}
    assert client.info("persistence")["aof_current_size"] == written
    once = dict.fromkeys(("evalsha", "config|resetstat", "time", "get", "zadd"), 1)
    assert claiming == once | {"set": 2}  # the record and the fence
    assert settling == once | {"set": 1}
    assert count("read", draft.key)["evalsha"] == 1


def test_finding_by_instance_or_status_does_not_walk_the_keys(counted: tuple[Any, Any]) -> None:
    count, client = counted
    with client.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.set(f"{{umavez}}:other{number}", "x")
        pipe.execute()
    count("swap", None, claim("k", "s", process_instance="p"))
    found = count("find", Query(process_instance="p"))
    assert (found["evalsha"], found["zrange"], found["get"]) == (1, 1, 1)
    found = count("find", Query(status=Status.PENDING, older_than=0))
    assert (found["evalsha"], found["zrange"]) == (2, 2)  # those that last and those that expire
