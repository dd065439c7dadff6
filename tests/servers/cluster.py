"""Three PostgreSQL under Patroni, with an etcd beside each: a private cluster on loopback, as an ordinary user."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.servers.cluster_node import Node, settings_of
from tests.servers.kind import Account
from tests.servers.postgres_server import Postgres
from tests.servers.private import CannotStart, _hand_over, free_port
from tests.servers.wires import Loopback, Wires

NODES = 3
PATIENCE = 90.0
"""Seconds for the cluster to be whole; 8 to 11 were seen at the start, 6 to 8 after a kill, 35 after a lost node."""
BEHIND = 1 << 19
"""Bytes of log that a standby may lack and still count as following."""
View = dict[str, dict[str, Any]]
"""What one node says about every member, by name."""
LEADING = ("leader", "running")
HOW_TO_GET_IT = (
    "a cluster needs etcd (apt install etcd-server), PostgreSQL's own programs, and Patroni 4 or newer: "
    "pip install 'patroni[etcd3,psycopg3]', or UMAVEZ_TEST_PATRONI=/path/to/patroni"
)


def patroni() -> list[str] | None:
    """How to start Patroni here, or None."""
    named = os.environ.get("UMAVEZ_TEST_PATRONI") or shutil.which("patroni")
    if named:
        return [named]
    return [sys.executable, "-m", "patroni"] if find_spec("patroni") else None


class Cluster:
    """A running cluster. It can be harmed like a private server, and in ways that only a cluster survives."""

    def __init__(self, owner: int, commit: str = "on", *, wired: bool = False, patience: float = PATIENCE) -> None:
        """`wired`: each node has a network of its own and can be cut off. Raises CannotStart."""
        self._patience = patience
        programs, command, etcd = Postgres().locate(), patroni(), shutil.which("etcd")
        account = Postgres().account()
        if programs is None or command is None or etcd is None:
            raise CannotStart(HOW_TO_GET_IT)
        _require_runnable(command, account)
        self.wires = Wires(NODES) if wired else Loopback()
        self.directory = Path(tempfile.mkdtemp(prefix="umavez-cluster-"))
        places = [
            {name: f"{self.wires.address(number)}:{free_port()}" for name in ("etcd", "peer", "postgres", "rest")}
            for number in range(NODES)
        ]
        self.nodes = [
            Node(self.directory, number, places, self.wires.within(number), account, owner) for number in range(NODES)
        ]
        for node in self.nodes:
            node.lay_out([etcd], command, settings_of(node, places, programs["postgres"].parent, commit))
        _hand_over(self.directory, account)
        for node in self.nodes:
            _hand_over(node.directory, account)
            node.start()
        hosts = ",".join(each["postgres"] for each in places)
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        self._down: list[Callable[[], None]] = []
        try:
            self.await_whole()
        except BaseException:
            self.stop()
            raise

    def views(self) -> list[View]:
        """Who is what, by name, as each node that answers tells it."""
        with ThreadPoolExecutor(NODES) as asking:
            told = list(asking.map(_view, self.nodes))
        return [view for view in told if view]

    def primary(self) -> Node | None:
        """The node that takes writes, if most nodes name the same: one that was cut off may still name itself."""
        named = Counter(_leader(view) for view in self.views())
        agreed = [node for node in self.nodes if named[node.name] > NODES // 2]
        return agreed[0] if agreed else None

    def is_whole(self) -> bool:
        """All agree on one leader, and every other member streams closely: "running" alone is not yet in the quorum."""
        views = self.views()
        return len(views) == NODES and len({_leader(view) for view in views}) == 1 and all(map(_is_whole, views))

    def await_whole(self) -> None:
        """Return when it is. Raises CannotStart when that takes too long."""
        self._await(self.is_whole, "is not whole")

    def _await(self, met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._patience
        while not met():
            ended = [f"{name} of {node.name}" for node in self.nodes for name in node.ended()]
            if ended and not self._down:
                raise CannotStart(f"{' and '.join(ended)} ended: {self._logs()}")
            if time.monotonic() > deadline:
                raise CannotStart(f"the cluster {what} after {self._patience:g} s: {self.views()} {self._logs()}")
            time.sleep(0.2)

    def _logs(self) -> str:
        return " | ".join(node.last_words() for node in self.nodes)

    def kill(self) -> None:
        """kill -9 for the primary's PostgreSQL and all its processes; Patroni finds out by itself."""
        self._leading().kill_postgres()

    def kill_unsent(self, seconds: float) -> None:
        """As `kill`, after `seconds` in which nothing of its log reached a standby."""
        self._leading().kill_unsent(seconds)

    def kill_node(self) -> None:
        """The primary's whole machine is gone: PostgreSQL, Patroni and etcd. `restart` brings it back."""
        node = self._leading()
        node.kill()
        self._down.append(node.start)

    def freeze(self) -> None:
        """The primary's machine stands still, as a virtual machine that is moved; `restart` lets it go on."""
        node = self._leading()
        node.freeze()
        self._down.append(node.thaw)

    def cut(self) -> None:
        """Nothing reaches the primary's machine, nor leaves it, and nobody is told; `restart` mends the wire."""
        assert isinstance(self.wires, Wires), "only a wired cluster can be cut"
        number = self._leading().number
        self.wires.cut(number)
        self._down.append(partial(self.wires.mend, number))

    def switch(self) -> None:
        """A planned hand-over to a standby."""
        node = self._leading()
        other = next(one for one in self.nodes if one is not node)
        asked = urllib.request.Request(  # noqa: S310 - our own
            f"{node.rest}/switchover",
            json.dumps({"leader": node.name, "candidate": other.name}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - our own
            answer.read()

    def await_another(self, before: Node) -> None:
        """Return when somebody else leads."""
        self._await(lambda: self.primary() not in (None, before), f"has no other primary than {before.name}")

    def restart(self) -> None:
        """Undo the harm, and return when the cluster is whole."""
        down, self._down = self._down, []
        for undo in down:
            undo()
        self.await_whole()

    def thaw(self) -> None:
        """Let whatever is frozen go on."""
        for node in self.nodes:
            node.thaw()

    def _leading(self) -> Node:
        self._await(lambda: self.primary() is not None, "has no primary")
        node = self.primary()
        assert node is not None
        return node

    def stop(self) -> None:
        """Everything is ended and its files are removed."""
        for node in self.nodes:
            node.thaw()
            node.kill()
        self.wires.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _view(node: Node) -> View:
    """What a node says about all; empty when it does not answer."""
    with suppress(OSError, ValueError, urllib.error.URLError, http.client.HTTPException):
        with urllib.request.urlopen(f"{node.rest}/cluster", timeout=2) as answer:  # noqa: S310 - our own
            told = json.load(answer)
        return {member["name"]: member for member in told["members"]}
    return {}


def _leader(view: View) -> str | None:
    """Who leads and runs, as this view has it."""
    leaders = [name for name, member in view.items() if (member.get("role"), member.get("state")) == LEADING]
    return leaders[0] if leaders else None


def _is_whole(view: View) -> bool:
    followers = [member for member in view.values() if member.get("role") != "leader"]
    return (
        len(view) == NODES
        and _leader(view) is not None
        and len(followers) == NODES - 1
        and all(_follows(one) for one in followers)
    )


def _follows(member: dict[str, Any]) -> bool:
    """Whether a standby could take over: Patroni promotes none that is a megabyte behind."""
    lag = member.get("lag", 0)
    close = isinstance(lag, int) and lag < BEHIND
    return close and member.get("state") == "streaming" and "standby" in str(member.get("role"))


def _require_runnable(command: list[str], account: Account | None) -> None:
    """Python may lie in a home that the account of the servers must not enter."""
    as_user: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    try:
        subprocess.run([*command, "--version"], cwd="/", capture_output=True, timeout=60, check=True, **as_user)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotStart(
            f"the servers' account cannot run {' '.join(command)} ({error}); make a virtualenv of the system's Python, "
            "install 'patroni[etcd3,psycopg3]' there, and name its patroni in UMAVEZ_TEST_PATRONI"
        ) from error
