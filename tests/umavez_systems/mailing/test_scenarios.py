"""The seed's cenários 1 to 4 with real processes: the embedded default, and PostgreSQL with RabbitMQ and SMTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.umavez_systems.mailing.conftest import TABLES, query, send
from umavez_systems.settings import Settings

UMAVEZ = str(Path(sys.executable).parent / "umavez")
PATIENCE = 180.0
LOCK = 1.0


class World:
    """Processes of one deployment. `kill_worker` is kill -9 to whoever sends."""

    def __init__(self, client: httpx.Client, settings: Settings, mails: Callable[[], Counter[str]]) -> None:
        self.client = client
        self.settings = settings
        self.mails = mails
        self.kill_worker: Callable[[], None] = lambda: None

    def until(self, mailing: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a mailing is as it should be."""
        end = time.monotonic() + PATIENCE
        found: dict[str, Any] = {}
        while time.monotonic() < end:
            with suppress(httpx.TransportError):
                found = self.client.get(f"/mailings/{mailing}").json()
                if done(found):
                    return found
            time.sleep(0.05)
        pytest.fail(f"it never came so far: {found}")

    def sent(self, mailing: str) -> dict[str, Any]:
        """Wait for the end."""
        return self.until(mailing, lambda found: found["status"] in ("SENT", "PAUSED", "FAILED"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(words: list[str], environment: dict[str, str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of the command line, killed at the end."""
    with subprocess.Popen(
        [UMAVEZ, *words], env=environment, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def environment_of(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "UMAVEZ_MAILING_LOCK_SECONDS": str(LOCK),
        "UMAVEZ_MAILING_RECOVERY_SECONDS": "1",
        "UMAVEZ_MAILING_GROUP": "10",
        "UMAVEZ_MAILING_RATE": "100",
        **more,
    }


def reached(client: httpx.Client) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if client.get("/ready").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("the server never answered")


def listening(port: int) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail("nobody listens")


@contextmanager
def embedded(folder: Path) -> Iterator[World]:
    """`umavez serve` and nothing else."""
    port = free_port()
    settings = Settings(database=f"sqlite:///{folder}/umavez.db")
    environment = environment_of(UMAVEZ_PORT=str(port))

    def mails() -> Counter[str]:
        return Counter(row[0] for row in query(settings, "SELECT destinatario FROM mailing_sink"))

    with ExitStack() as stack, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        server = stack.enter_context(running(["serve"], environment, folder))
        reached(client)
        world = World(client, settings, mails)

        def kill() -> None:
            server.kill()
            server.wait()
            stack.enter_context(running(["serve"], environment, folder))
            reached(client)

        world.kill_worker = kill
        yield world


@contextmanager
def production(folder: Path, postgres: str, rabbitmq: str, prefix: str) -> Iterator[World]:
    """Server, relay, two workers, a broker and an SMTP server: each a process, all with the same settings."""
    port, smtp = free_port(), free_port()
    settings = Settings(database=postgres)
    for table in TABLES:
        query(settings, f"DELETE FROM {table}")
    ledger = folder / "ledger"
    with ExitStack() as stack, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        # All of them start at once, and find each other as they come up.
        words = ["mailing", "sink", "--port", str(smtp), "--ledger", str(ledger)]
        stack.enter_context(running(words, environment_of(), folder))
        environment = environment_of(
            UMAVEZ_PORT=str(port),
            UMAVEZ_DATABASE=postgres,
            UMAVEZ_BROKER=rabbitmq,
            UMAVEZ_BROKER_PREFIX=prefix,
            UMAVEZ_SMTP_URL=f"smtp://127.0.0.1:{smtp}?starttls=never",
            UMAVEZ_STORAGE=str(folder / "lists"),
        )
        stack.enter_context(running(["serve"], environment, folder))
        stack.enter_context(running(["relay", "run", "--store", postgres], environment, folder))
        words = ["mailing", "work"]
        workers = [stack.enter_context(running(words, environment, folder)) for _ in range(2)]
        reached(client)
        listening(smtp)

        def mails() -> Counter[str]:
            return Counter(line.split()[1] for line in ledger.read_text().splitlines())

        world = World(client, settings, mails)

        def kill() -> None:
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            stack.enter_context(running(words, environment, folder))

        world.kill_worker = kill
        yield world


@pytest.fixture(params=["embedded", pytest.param("production", marks=[pytest.mark.postgres, pytest.mark.rabbitmq])])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A deployment."""
    if request.param == "embedded":
        with embedded(tmp_path) as made:
            yield made
        return
    from umavez_systems.server import prepare

    urls = [request.getfixturevalue(name) for name in ("postgres_url", "rabbitmq_url", "rabbitmq_prefix")]
    prepare(Settings(database=urls[0]))
    with production(tmp_path, *urls) as made:
        yield made


@pytest.mark.slow
def test_s2_13_cenarios_1_to_4(world: World) -> None:
    # Cenário 1: the client tries again after a timeout. Cenário 2: addresses repeated in the list.
    csv = "email\nuser@example.com\nadmin@example.com\nuser@example.com\nadmin@example.com\n"
    first, again = (send(world.client, "monthly.csv", csv).json() for _ in range(2))
    assert (again["mailingId"], again["created"]) == (first["mailingId"], False)
    done = world.sent(first["mailingId"])
    assert (done["status"], done["entradas"]["total"], done["linhas"]["duplicadas"]) == ("SENT", 2, 2)

    # Cenário 3: the message comes twice, and once more after the end.
    people = [f"u{number}@example.com" for number in range(300)]
    mailing = send(world.client, "big.csv", "email\n" + "\n".join(people), duvida="reenviar").json()["mailingId"]
    copy = "INSERT INTO umavez_outbox (id, topic, body, state, attempts, created_at, due_at) SELECT '{}' || id, topic,"
    copy += f" body, 'WAITING', 0, created_at, 0 FROM umavez_outbox WHERE body LIKE '%{mailing}%'"
    query(world.settings, copy.format("again-"))

    # Cenário 4: whoever sends is killed in the middle; recovery finds it, and the sending goes on.
    world.until(mailing, lambda found: found["entradas"]["SENT"] >= 30)
    world.kill_worker()
    done = world.sent(mailing)
    assert (done["status"], done["entradas"]["SENT"], done["entradas"]["UNKNOWN"]) == ("SENT", 300, 0)
    assert done["tentativa"] > 1
    mails = world.mails()
    assert not [one for one in people if not mails[one]], "lost"
    repeated = sum(many - 1 for many in mails.values())
    assert repeated <= 10, f"{repeated} repeated, more than the group that was on its way"
    assert mails["user@example.com"] == mails["admin@example.com"] == 1
