"""HAProxy before a private cluster, with the settings of deploy/haproxy.cfg: only its addresses are others."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from tests.servers.cluster import NODES
from tests.servers.cluster_node import Node
from tests.servers.private import CannotStart, _environment, _keep, free_port

SHIPPED = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
PATIENCE = 20.0
"""Seconds for it to find the primary."""


class Proxy:
    """A running HAProxy that leads to whoever is the primary. Ends with the process that owns it."""

    def __init__(self, nodes: Sequence[Node], owner: int) -> None:
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise CannotStart("the proxy before a cluster needs HAProxy (apt install haproxy)")
        self._directory = Path(tempfile.mkdtemp(prefix="umavez-proxy-"))
        self._port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        settings = self._directory / "haproxy.cfg"
        settings.write_text(settings_for(nodes, self._port))
        plan = {
            "command": [program, "-db", "-f", str(settings)],
            "directory": str(self._directory),
            "environment": _environment(self._directory),
            "log_file": str(self._directory / "haproxy.log"),
            "owner": owner,
            "pid_file": str(self._directory / "haproxy.pid"),
            "stop_signal": int(signal.SIGTERM),
            "uid": None,
            "gid": None,
        }
        self._log = Path(str(plan["log_file"]))
        self._keeper = _keep(plan)
        try:
            self._await_primary()
        except BaseException:
            self.stop()
            raise

    def _await_primary(self) -> None:
        """Just started it takes every server for the primary, until its checks have failed."""
        deadline = time.monotonic() + PATIENCE
        while not self._leads():
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace")[-500:] if self._log.exists() else ""
                raise CannotStart(f"HAProxy leads to no primary: {said}")
            time.sleep(0.5)

    def _leads(self) -> bool:
        """Whether each of some connections in a row ends at a server that takes writes."""
        try:
            for _ in range(2 * NODES):
                psycopg.connect(self.url, target_session_attrs="read-write", connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True

    def stop(self) -> None:
        """End it and remove its files."""
        self._keeper.terminate()
        self._keeper.wait(20)
        shutil.rmtree(self._directory, ignore_errors=True)


def settings_for(nodes: Sequence[Node], port: int) -> str:
    """The shipped settings with `nodes`. Raises CannotStart where they name others than db1 to db3."""
    text, bound = re.subn(r"bind \*:5000\b", f"bind 127.0.0.1:{port}", SHIPPED.read_text())
    for number, node in enumerate(nodes, 1):
        rest = node.place["rest"].rpartition(":")[2]
        text, found = re.subn(
            rf"server db{number} db{number}:5432 check port 8008\b",
            f"server {node.name} {node.place['postgres']} check port {rest}",
            text,
        )
        bound &= found
    if bound != 1:
        raise CannotStart("deploy/haproxy.cfg names other addresses than this trial knows how to replace")
    return text
