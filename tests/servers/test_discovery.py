"""How the suite finds its servers, seen from outside: a pytest run in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.servers import KINDS, NoAnswer, Private, Run
from tests.servers.kind import Occupied, parts, shown
from tests.servers.redis_server import MARK

ROOT = Path(__file__).parents[2]
NOWHERE = "redis://127.0.0.1:1"

PROBE = """
def test_first(redis_url):
    print("URL", redis_url)

def test_second(redis_url):
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of two tests that uses the real conftest."""
    shutil.copytree(ROOT / "tests" / "servers", tmp_path / "tests" / "servers")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "servers" / "test_discovery.py").unlink()
    (tmp_path / "tests" / "test_probe.py").write_text(PROBE)
    return tmp_path


def run_suite(suite: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "UMAVEZ")) and k != "CI"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *arguments],
        cwd=suite,
        env={**inherited, "UMAVEZ_TEST_INSTALL": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def bare_path(folder: Path) -> str:
    """A PATH on which no server is installed."""
    folder.mkdir(exist_ok=True)
    return str(folder)


def url_printed(output: str) -> str:
    return next(line.split("URL ")[1] for line in output.splitlines() if "URL " in line)


def listens(port: int | None) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port or 0)) == 0


@pytest.fixture
def installed() -> None:
    if KINDS["redis"].locate() is None:
        pytest.skip("redis-server is not installed; apt install redis-server")


@pytest.mark.usefixtures("installed")
def test_a_wrong_url_in_the_environment_leads_to_a_private_server_and_never_to_the_standard_port(
    suite: Path,
) -> None:
    done = run_suite(suite, UMAVEZ_TEST_REDIS=NOWHERE)
    port = parts(url_printed(done.stdout)).port
    assert done.returncode == 0, done.stdout
    assert port not in {1, 6379}
    assert f"UMAVEZ_TEST_REDIS is set, but {NOWHERE} is of no use" in done.stdout
    assert f"(private, port {port})" in done.stdout
    assert not listens(port)


@pytest.mark.usefixtures("installed")
def test_parallel_workers_share_one_private_server_and_have_a_database_each(suite: Path) -> None:
    (suite / "tests" / "test_probe.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_url(redis_url, worker_id, n):\n"
        "    pathlib.Path(f'seen-{worker_id}').write_text(redis_url)\n"
    )
    done = run_suite(suite, "-n", "2", UMAVEZ_TEST_REDIS=NOWHERE)
    urls = {file.read_text() for file in suite.glob("seen-*")}
    assert done.returncode == 0, done.stdout
    assert len(urls) == 2
    assert len({parts(url).port for url in urls}) == 1
    assert done.stdout.count("(private, port") == 1
    assert not listens(parts(urls.pop()).port)


def test_a_missing_server_skips_its_tests_and_says_which_and_how_to_get_it(suite: Path) -> None:
    done = run_suite(suite, UMAVEZ_TEST_REDIS=NOWHERE, PATH=bare_path(suite / "empty"))
    assert done.returncode == 0, done.stdout
    assert "redis: 2 skipped in tests/test_probe.py" in done.stdout
    assert "redis not available: 2 tests skipped; apt install redis-server" in done.stdout


def test_a_missing_server_is_a_failure_under_ci(suite: Path) -> None:
    done = run_suite(suite, UMAVEZ_TEST_REDIS=NOWHERE, PATH=bare_path(suite / "empty"), CI="true")
    assert done.returncode == 1, done.stdout
    assert "2 errors" in done.stdout
    assert "redis not available: 2 tests failed; apt install redis-server" in done.stdout


@pytest.fixture
def shared_folder() -> Iterator[str]:
    """A temporary folder that other accounts may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="umavez-") as folder:
        Path(folder).chmod(0o755)
        yield folder


@pytest.mark.usefixtures("installed")
def test_a_private_server_ends_with_a_run_that_was_killed(suite: Path, shared_folder: str) -> None:
    (suite / "tests" / "test_probe.py").write_text(
        "import pathlib, time\n"
        "def test_hangs(redis_url):\n"
        "    pathlib.Path('url.part').write_text(redis_url)\n"
        "    pathlib.Path('url.part').rename('url')\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "UMAVEZ_TEST_REDIS": NOWHERE, "TMPDIR": shared_folder}
    run = subprocess.Popen([sys.executable, "-m", "pytest", "-q"], cwd=suite, env=environment)
    try:
        wait_until((suite / "url").exists)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    port = parts((suite / "url").read_text()).port
    wait_until(lambda: not listens(port))
    wait_until(lambda: not list(Path(shared_folder).glob("umavez-redis-*")))


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within time"
        time.sleep(0.02)


@pytest.fixture
def server(private_server: Callable[[str], Private]) -> Private:
    return private_server("redis")


def test_a_database_with_foreign_keys_is_never_lent_nor_flushed(server: Private, server_run: Run) -> None:
    with redis.Redis.from_url(f"{server.url}/15") as foreign:
        foreign.set("theirs", "1")
        with KINDS["redis"].lend(server.url, "any", private=True) as url:
            assert url.endswith("/14")
        assert foreign.get("theirs") == b"1"


def test_a_lent_database_is_not_lent_twice_and_is_empty_again_at_the_end(server: Private) -> None:
    kind = KINDS["redis"]
    with kind.lend(server.url, "one", private=True) as one:
        with kind.lend(server.url, "two", private=True) as two, redis.Redis.from_url(two) as client:
            assert one != two
            client.set("left", "behind")
        with redis.Redis.from_url(two) as client:
            assert client.dbsize() == 0
    with redis.Redis.from_url(server.url) as client:
        assert client.keys("*") == []


def test_what_a_killed_run_left_behind_is_taken_over(server: Private) -> None:
    with redis.Redis.from_url(server.url) as client, redis.Redis.from_url(f"{server.url}/15") as litter:
        client.set(f"{MARK}15", "999999")
        litter.set("left", "behind")
        with KINDS["redis"].lend(server.url, "any", private=True) as url:
            assert url.endswith("/15")
            assert litter.dbsize() == 0


def test_a_url_that_names_a_used_database_is_occupied(server: Private) -> None:
    with redis.Redis.from_url(f"{server.url}/3") as foreign:
        foreign.set("theirs", "1")
    with (
        pytest.raises(Occupied, match="in use"),
        KINDS["redis"].lend(f"{server.url}/3", "any", private=True),
    ):
        pass


def test_a_killed_server_answers_nothing_and_a_restarted_one_still_holds_its_data(server: Private) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "1")
        server.kill()
        with pytest.raises(NoAnswer):
            server.kind.answer(server.url)
        server.restart()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"1"


def test_a_frozen_server_keeps_silent_and_a_thawed_one_goes_on(server: Private) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=0.1, retry=None) as client:
        client.ping()
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
        assert client.ping()


def test_a_password_is_not_shown() -> None:
    assert shown("amqp://guest:secret@host:5672/v") == "amqp://guest:***@host:5672/v"
    assert shown("redis://host:6379/1") == "redis://host:6379/1"
