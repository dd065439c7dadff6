"""RabbitMQ for the tests."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import aio_pika

from tests.servers.kind import SYSTEM_FOLDERS, Kind, Launch, NoAnswer, Place, parts, with_path

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class RabbitMQ(Kind):
    """Each run gets its own virtual host where rabbitmqctl can make one, and otherwise shares the URL's."""

    name = "rabbitmq"
    variable = "UMAVEZ_TEST_RABBITMQ"
    package = "rabbitmq-server"
    # Debian's /usr/sbin/rabbitmq-server insists on the system's account and folders; what it wraps does not.
    folders = ("/usr/lib/rabbitmq/bin",)
    programs = ("rabbitmq-server", "epmd")
    accounts = ("rabbitmq",)
    patience = 120.0

    def standard(self) -> list[str]:
        return ["amqp://guest:guest@127.0.0.1:5672/"]

    def answer(self, url: str) -> str:
        _require_listener(url)
        try:
            return asyncio.run(_version(url))
        except Exception as error:  # the client raises types of three libraries; each means no
            raise NoAnswer(str(error) or type(error).__name__) from error

    def prepare(self, place: Place) -> Launch:
        here = place.directory
        (here / "env.conf").touch()
        (here / "plugins").write_text("[].\n")
        (here / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{place.port}\n")
        own_epmd = _free_port()
        environment = {
            "HOME": str(here),
            "ERL_EPMD_PORT": str(own_epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(here / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_NODENAME": f"umavez-{secrets.token_hex(4)}@localhost",
            "RABBITMQ_PID_FILE": str(here / "rabbitmq.pid"),
        }
        # Left to itself Erlang starts a port mapper that outlives the broker; ours dies with the group.
        epmd = shlex.join([str(place.programs["epmd"]), "-port", str(own_epmd), "-address", "127.0.0.1"])
        server = shlex.quote(str(place.programs["rabbitmq-server"]))
        return Launch(
            ["/bin/sh", "-c", f"{epmd} & exec {server}"],
            f"amqp://guest:guest@127.0.0.1:{place.port}/",
            environment,
        )

    @contextmanager
    def lend(self, url: str, name: str, *, private: bool) -> Iterator[str]:
        if private or not _make_vhost(url, name):
            yield url
            return
        try:
            yield with_path(url, name)
        finally:
            _control(["delete_vhost", name])


def _require_listener(url: str) -> None:
    """A bare connection first: the client's own failing attempt costs much, and a start is polled often."""
    split = parts(url)
    try:
        socket.create_connection((split.hostname or "127.0.0.1", split.port or 5672), timeout=3).close()
    except OSError as error:
        raise NoAnswer(str(error)) from error


async def _version(url: str) -> str:
    connection = await aio_pika.connect(url, timeout=5)
    try:
        transport = getattr(connection, "transport", None)
        properties = getattr(getattr(transport, "connection", None), "server_properties", {})
        version = properties.get("version", "?")
        return version.decode() if isinstance(version, bytes) else str(version)
    finally:
        await connection.close()


def _make_vhost(url: str, name: str) -> bool:
    """True once the virtual host exists; False where the local rabbitmqctl does not govern that server."""
    split = parts(url)
    if split.hostname not in LOOPBACK or (split.port or 5672) != 5672:
        return False
    user = unquote(split.username or "guest")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    definitions = {"vhosts": [{"name": name}], "permissions": [{"user": user, "vhost": name, **everything}]}
    return _control(["import_definitions", "--format", "json"], json.dumps(definitions))


def _control(arguments: list[str], text: str = "") -> bool:
    path = shutil.which("rabbitmqctl") or shutil.which("rabbitmqctl", path=":".join(SYSTEM_FOLDERS))
    if not path:
        return False
    command = [str(Path(path)), "--quiet", *arguments]
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
