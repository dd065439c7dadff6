"""Three RabbitMQ in one private Erlang cluster on loopback; each may be killed and comes back on its own files."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.kind import NoAnswer
from tests.servers.private import CannotStart, _environment, _hand_over, _keep, free_port
from tests.servers.rabbitmq_server import RabbitMQ

NODES = 3
PATIENCE = 180.0
"""Seconds for all to run as one cluster; 20 to 40 were seen on a quiet machine with two cores."""


class Brokers:
    """A running cluster, behind one URL that names every node."""

    def __init__(self, owner: int) -> None:
        self._kind = RabbitMQ()
        programs = self._kind.locate()
        if programs is None:
            raise CannotStart("a cluster of RabbitMQ needs its programs (apt install rabbitmq-server)")
        self.directory = Path(tempfile.mkdtemp(prefix="umavez-brokers-"))
        self._account = self._kind.account()
        _hand_over(self.directory, self._account)
        self._owner = owner
        self._server = str(programs["rabbitmq-server"])
        self._token, self._cookie, self._mapper = secrets.token_hex(3), secrets.token_hex(16), free_port()
        self._ports = [free_port() for _ in range(NODES)]
        self._keepers: dict[str, subprocess.Popen[str]] = {}
        self._plans = {f"n{number}": self._laid_out(number) for number in range(NODES)}
        # Left to itself the first node starts a port mapper, which would die with it.
        mapper = [str(programs["epmd"]), "-port", str(self._mapper), "-address", "127.0.0.1"]
        self._plans["epmd"] = self._plan("epmd", mapper, {})
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.url = f"amqp://guest:guest@{hosts}/"
        self._turn = 0
        try:
            self._start("epmd")
            self.restart()
            self._await(self._is_one_cluster, "did not become one")
        except BaseException:
            self.stop()
            raise

    def _name(self, number: int) -> str:
        return f"umavez-{self._token}-{number}@localhost"

    def _laid_out(self, number: int) -> dict[str, Any]:
        here = self.directory / f"n{number}"
        here.mkdir()
        (here / "env.conf").touch()
        (here / "plugins").write_text("[].\n")
        (here / ".erlang.cookie").write_text(self._cookie)
        (here / ".erlang.cookie").chmod(0o400)
        nodes = [f"cluster_formation.classic_config.nodes.{one + 1} = {self._name(one)}" for one in range(NODES)]
        settings = [
            f"listeners.tcp.1 = 127.0.0.1:{self._ports[number]}",
            "cluster_formation.peer_discovery_backend = classic_config",
            "cluster_formation.randomized_startup_delay_range.min = 0",
            "cluster_formation.randomized_startup_delay_range.max = 2",
            "cluster_partition_handling = pause_minority",
            *nodes,
        ]
        (here / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
        _hand_over(here, self._account)
        environment = {
            "HOME": str(here),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(here / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_NODENAME": self._name(number),
            "RABBITMQ_PID_FILE": str(here / "rabbitmq.pid"),
        }
        return self._plan(f"n{number}", [self._server], environment)

    def _plan(self, name: str, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        here = self.directory / name
        here.mkdir(exist_ok=True)
        _hand_over(here, self._account)
        return {
            "command": command,
            "directory": str(here),
            "environment": {**_environment(here), **environment},
            "log_file": str(here / "server.log"),
            "owner": self._owner,
            "pid_file": str(here / "server.pid"),
            "stop_signal": int(signal.SIGKILL),
            "uid": self._account.uid if self._account else None,
            "gid": self._account.gid if self._account else None,
        }

    def _start(self, name: str) -> None:
        keeper = self._keepers.get(name)
        if keeper is None or keeper.poll() is not None:
            self._keepers[name] = _keep(self._plans[name])

    def kill(self) -> None:
        """kill -9 for one node, each in its turn."""
        name = f"n{self._turn % NODES}"
        self._turn += 1
        self._end(name)

    def _end(self, name: str) -> None:
        with suppress(OSError, ValueError):
            os.killpg(int(Path(self._plans[name]["pid_file"]).read_text()), signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired, KeyError):
            self._keepers[name].wait(10)

    def restart(self) -> None:
        """Start every node that does not run, and return when each answers. Raises CannotStart."""
        for number in range(NODES):
            self._start(f"n{number}")
        self._await(self._all_answer, "does not answer")

    def _all_answer(self) -> bool:
        try:
            for port in self._ports:
                self._kind.answer(f"amqp://guest:guest@127.0.0.1:{port}/")
        except NoAnswer:
            return False
        return True

    def _is_one_cluster(self) -> bool:
        plan = self._plans["n0"]
        control = shutil.which("rabbitmqctl", path=str(Path(self._server).parent)) or "rabbitmqctl"
        as_user: dict[str, Any] = {}
        if self._account:
            as_user = {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        done = subprocess.run(
            [control, "-n", self._name(0), "--quiet", "cluster_status", "--formatter", "json"],
            cwd=plan["directory"],
            env=plan["environment"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **as_user,
        )
        return done.returncode == 0 and len(json.loads(done.stdout)["running_nodes"]) == NODES

    def _await(self, met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not met():
            ended = [name for name, keeper in self._keepers.items() if keeper.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = [Path(plan["log_file"]) for plan in self._plans.values()]
                said = " | ".join(log.read_text(errors="replace").strip()[-300:] for log in logs if log.exists())
                raise CannotStart(f"the cluster of RabbitMQ {what} ({' '.join(ended) or 'too late'}): {said}")
            time.sleep(0.3)

    def stop(self) -> None:
        """Everything is ended and its files are removed."""
        for name in self._plans:
            self._end(name)
        shutil.rmtree(self.directory, ignore_errors=True)
