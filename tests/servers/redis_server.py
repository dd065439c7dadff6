"""Redis for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import redis

from tests.servers.kind import Kind, Launch, NoAnswer, Occupied, Place, parts, with_path

# The mark lies in database 0, so a test that flushes its own database does not give it away.
MARK = "umavez:test:database:"

# Two runs may see the same dead mark; only the one that still finds it unchanged takes it.
REPLACE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class Redis(Kind):
    """Each run gets a numbered database that was empty; what was there before is never flushed."""

    name = "redis"
    variable = "UMAVEZ_TEST_REDIS"
    package = "redis-server"
    programs = ("redis-server",)
    accounts = ("redis",)

    def standard(self) -> list[str]:
        return ["redis://127.0.0.1:6379"]

    def answer(self, url: str) -> str:
        try:
            with closing(_client(url)) as client:
                client.ping()  # refused while the log is being loaded; INFO is not
                return str(client.info("server")["redis_version"])
        except (redis.RedisError, ValueError) as error:
            raise NoAnswer(str(error)) from error

    def prepare(self, place: Place) -> Launch:
        options = {
            "bind": "127.0.0.1",
            "port": str(place.port),
            "dir": str(place.directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return Launch([str(place.programs["redis-server"]), *words], f"redis://127.0.0.1:{place.port}")

    @contextmanager
    def lend(self, url: str, name: str, *, private: bool) -> Iterator[str]:
        with closing(_client(with_path(url, "0"), single=True)) as keeper:
            number = _claim(keeper, url)
            mine = with_path(url, str(number))
            try:
                yield mine
            finally:
                with closing(_client(mine)) as client:
                    client.flushdb()
                keeper.delete(f"{MARK}{number}")


def _client(url: str, *, single: bool = False) -> redis.Redis:
    """A client; a single one keeps one connection open, and its id proves that the run still lives."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_connect_timeout=3,
        socket_timeout=10,
        single_connection_client=single,
    )


def _claim(keeper: redis.Redis, url: str) -> int:
    """Take an empty database, or one that a dead run left behind; Occupied if there is none."""
    asked = parts(url).path.strip("/")
    numbers = [int(asked)] if asked else range(15, 0, -1)
    try:
        for number in numbers:
            if _claim_number(keeper, url, number):
                return number
    except redis.RedisError as error:
        raise Occupied(str(error)) from error
    raise Occupied("every database is in use")


def _claim_number(keeper: redis.Redis, url: str, number: int) -> bool:
    mark, me = f"{MARK}{number}", str(keeper.client_id())
    if keeper.set(mark, me, nx=True):
        with closing(_client(with_path(url, str(number)))) as client:
            if _is_empty(client, number):
                return True
        keeper.delete(mark)
        return False
    return _take_over(keeper, url, number, me)


def _is_empty(client: redis.Redis, number: int) -> bool:
    """Empty but for our own mark, which lies in database 0."""
    ours = 1 if number == 0 else 0
    return int(client.dbsize()) <= ours


def _take_over(keeper: redis.Redis, url: str, number: int, me: str) -> bool:
    """A mark whose connection is gone belongs to a run that was killed: what lies there is litter of ours."""
    mark = f"{MARK}{number}"
    holder = keeper.get(mark)
    living = {entry["id"] for entry in keeper.client_list()}
    if number == 0 or holder is None or holder in living:
        return False
    if not keeper.eval(REPLACE, 1, mark, holder, me):
        return False
    with closing(_client(with_path(url, str(number)))) as client:
        client.flushdb()
    return True
