"""The servers as fixtures, and a last line that says where each came from."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers import KINDS, CannotStart, Found, Missing, Private, Run

RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("umavez_run")
    config.stash[RUN] = Run(Path(given[0]), given[1]) if given else Run.begin()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each worker of pytest-xdist shares the servers of the process that started it."""
    run = node.config.stash[RUN]
    node.workerinput["umavez_run"] = (str(run.directory), run.owner)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run and run.owner == os.getpid():
        run.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a server's URL carries the marker of that server."""
    for item in items:
        for name in KINDS:
            if f"{name}_url" in getattr(item, "fixturenames", ()):
                item.add_marker(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    known = config.stash[RUN].known()
    if not known:
        return
    for server in known:
        for note in server.notes:
            terminalreporter.write_line(f"{server.name}: {note}")
    texts = [str(s) if isinstance(s, Found) else _lost(s, terminalreporter) for s in known]
    terminalreporter.write_line("servers: " + " · ".join(texts))


def _lost(server: Missing, reporter: pytest.TerminalReporter) -> str:
    """What could not be tested: each file on a line of its own, and all in a few words."""
    outcome = "failed" if _must_have_servers() else "skipped"
    reports = [*reporter.stats.get("skipped", []), *reporter.stats.get("error", [])]
    files = Counter(r.nodeid.partition("::")[0] for r in reports if f"{server} " in str(r.longrepr))
    for file, count in sorted(files.items()):
        reporter.write_line(f"{server.name}: {count} {outcome} in {file}")
    return f"{server}: {files.total()} tests {outcome}; {server.advice}"


@pytest.fixture(scope="session")
def server_run(pytestconfig: pytest.Config) -> Run:
    """The servers of this run."""
    return pytestconfig.stash[RUN]


def _lend(run: Run, name: str) -> Iterator[str]:
    server = run.server(KINDS[name])
    if isinstance(server, Missing):
        _miss(f"{server} ({'; '.join(server.notes)}): {server.advice}")
    else:
        with run.lend(KINDS[name], server) as url:
            yield url


def _miss(reason: str) -> None:
    """Skip, except under CI=true: there a suite that tested less than it should must not look green."""
    if _must_have_servers():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _must_have_servers() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


@pytest.fixture(scope="session")
def postgres_url(server_run: Run) -> Iterator[str]:
    """An empty PostgreSQL database of this run, as postgresql://user@host:port/name."""
    yield from _lend(server_run, "postgres")


@pytest.fixture(scope="session")
def mariadb_url(server_run: Run) -> Iterator[str]:
    """An empty MariaDB database of this run, as mariadb://user@host:port/name."""
    yield from _lend(server_run, "mariadb")


@pytest.fixture(scope="session")
def redis_url(server_run: Run) -> Iterator[str]:
    """An empty numbered Redis database of this run, as redis://host:port/number."""
    yield from _lend(server_run, "redis")


@pytest.fixture(scope="session")
def rabbitmq_url(server_run: Run) -> Iterator[str]:
    """A RabbitMQ virtual host, as amqp://user:password@host:port/vhost; see also `rabbitmq_prefix`."""
    yield from _lend(server_run, "rabbitmq")


@pytest.fixture
def rabbitmq_prefix() -> str:
    """What every queue and exchange name of this test starts with."""
    return f"umavez-test-{secrets.token_hex(5)}-"


@pytest.fixture
def empty_database(server_run: Run) -> Iterator[Callable[[str], str]]:
    """Makes a database on a server, such as empty_database("postgres"), in which no other test has been."""
    with ExitStack() as lent:

        def make(name: str) -> str:
            server = server_run.server(KINDS[name])
            if isinstance(server, Missing):
                pytest.skip(f"{server}: {server.advice}")
            return lent.enter_context(server_run.lend(KINDS[name], server))

        yield make


@pytest.fixture
def private_server(server_run: Run) -> Iterator[Callable[[str], Private]]:
    """Starts a server that this test alone uses and may kill, freeze and restart: private_server("redis")."""
    started: list[Private] = []

    def start(name: str) -> Private:
        try:
            started.append(server_run.private(KINDS[name]))
        except CannotStart as error:
            _miss(f"a private {name} cannot be started: {error}")
        return started[-1]

    yield start
    for private in started:
        private.stop()
