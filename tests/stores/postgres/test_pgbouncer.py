"""Behind a real PgBouncer umavez works, or says in a sentence what to set."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.servers import KINDS, Found, Run
from tests.servers.private import free_port
from umavez import Once, StoreUnavailable
from umavez.cli.doctor.findings import Level
from umavez.cli.doctor.postgres import examine

pytestmark = pytest.mark.postgres
PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
Pooled = Callable[..., str]


@pytest.fixture
def database(server_run: Run) -> Iterator[str]:
    server = server_run.server(KINDS["postgres"])
    if not isinstance(server, Found):
        pytest.skip("no PostgreSQL")
    with server_run.lend(KINDS["postgres"], server) as url, Once(url, scope="loja") as once:
        once.migrate()
        yield url


@pytest.fixture
def pooled(database: str) -> Iterator[Pooled]:
    """Starts a PgBouncer in front of the database: pooled("transaction", …) with more lines for its settings."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed (apt install pgbouncer)")
    split = urlsplit(database)
    started: list[subprocess.Popen[bytes]] = []

    def start(mode: str, *more: str) -> str:
        port, name = free_port(), split.path.lstrip("/")
        lines = [
            "[databases]",
            f"{name} = host={split.hostname} port={split.port or 5432} user={split.username or 'postgres'}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {port}",
            "unix_socket_dir =",
            "auth_type = any",
            f"pool_mode = {mode}",
            "default_pool_size = 4",
            *more,
        ]
        settings = folder / f"{port}.ini"
        settings.write_text("\n".join(lines) + "\n")
        # It refuses to be root.
        as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        process = subprocess.Popen([PROGRAM or "", str(settings)], stderr=subprocess.DEVNULL, cwd="/", **as_user)
        started.append(process)
        await_listener(port, process)
        return f"postgresql://{split.username or 'postgres'}@127.0.0.1:{port}/{name}"

    with tempfile.TemporaryDirectory(prefix="umavez-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield start
        for process in started:
            process.kill()
            process.wait()


def await_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    pytest.skip(f"pgbouncer did not start ({process.poll()})")


def set_lock_timeout(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {urlsplit(database).path.lstrip('/')} SET lock_timeout = '800ms'")


def paid(url: str, many: int = 30, scope: str = "loja") -> int:
    """How many of so many calls were done."""
    with Once(url, scope=scope) as once:
        return sum(once.run("pay", key=f"k{one}", call=lambda: 1, unknown="rerun").value for one in range(many))


def test_a_pooler_that_refuses_startup_options_is_told_how_to_let_them_pass(pooled: Pooled) -> None:
    with pytest.raises(StoreUnavailable, match="ignore_startup_parameters = options"):
        paid(pooled("session"))


def test_a_pooler_that_drops_lock_timeout_is_refused_with_the_sentence_that_mends_it(pooled: Pooled) -> None:
    url = pooled("session", "ignore_startup_parameters = options,extra_float_digits")

    with pytest.raises(StoreUnavailable, match=r"ALTER ROLE name SET lock_timeout = '800ms'"):
        paid(url)
    assert {finding.setting: finding.level for finding in examine(url).findings}["pooler"] is Level.DANGER


def test_with_sessions_kept_apart_it_works(database: str, pooled: Pooled) -> None:
    set_lock_timeout(database)
    url = pooled("session", "ignore_startup_parameters = options,extra_float_digits")

    assert paid(url) == 30
    told = {finding.setting: finding for finding in examine(url).findings}
    assert told["pooler"].level is Level.WARNING


@pytest.mark.parametrize("keeps", [False, True], ids=["forgotten", "kept"])
def test_with_sessions_shared_by_many_it_works(database: str, pooled: Pooled, keeps: bool) -> None:
    """As it is, statements land on servers that never heard of them; a newer PgBouncer prepares them there."""
    if keeps and not prepared_statements():
        pytest.skip("max_prepared_statements needs PgBouncer 1.21")
    set_lock_timeout(database)
    more = prepared_statements() if keeps else []
    url = pooled("transaction", "ignore_startup_parameters = options,extra_float_digits", *more)
    done: list[int] = []
    callers = [Thread(target=lambda one=one: done.append(paid(url, scope=f"loja {one}"))) for one in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert done == [30] * 6


def prepared_statements() -> list[str]:
    """The setting that lets transactions share sessions, where the installed version has it."""
    shown = subprocess.run([PROGRAM or "", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = (int(part) for part in shown.split()[1].split(".")[:2])
    return ["max_prepared_statements = 100"] if (major, minor) >= (1, 21) else []
