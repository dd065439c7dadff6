"""Wires: a machine's network for each node of a cluster, so that one can be cut off. Needs root and `ip`.

Each node lives in a network namespace with an address of its own, behind one virtual wire to a bridge, over which the
trial reaches it. Cutting the wire leaves the node alone with whoever is inside it.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.servers.private import CannotStart

CLONE_NEWNET = 0x40000000
LOOPBACK = "127.0.0.1"


class Loopback:
    """All nodes on one machine: nothing to cut."""

    def address(self, number: int) -> str:
        """Where node `number` listens."""
        return LOOPBACK

    def within(self, number: int) -> list[str]:
        """What to put before a command so that it runs where the node is."""
        return []

    def close(self) -> None:
        """Nothing was made."""


class Wires:
    """Namespaces for `count` nodes. Raises CannotStart where they cannot be made."""

    def __init__(self, count: int) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise CannotStart("cutting a node off needs root and the program ip (apt install iproute2)")
        token = secrets.token_hex(3)
        self._bridge = f"uvb{token}"
        self._net = f"10.203.{secrets.randbelow(254) + 1}"
        self.names = [f"umavez-{token}-{number}" for number in range(count)]
        self._ends = [f"uv{token}{number}" for number in range(count)]
        try:
            self._lay()
        except CannotStart:
            self.close()
            raise

    def _lay(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, (name, end) in enumerate(zip(self.names, self._ends, strict=True)):
            _ip("netns", "add", name)
            _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", end, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")

    def address(self, number: int) -> str:
        """Where node `number` listens."""
        return f"{self._net}.{number + 11}"

    def within(self, number: int) -> list[str]:
        """What to put before a command so that it runs where the node is."""
        return ["ip", "netns", "exec", self.names[number]]

    def cut(self, number: int) -> None:
        """Nothing reaches the node any more, nor leaves it; nobody is told."""
        _ip("link", "set", self._ends[number], "down")

    def mend(self, number: int) -> None:
        """The wire is whole again."""
        _ip("link", "set", self._ends[number], "up")

    def close(self) -> None:
        """Take everything away."""
        links, names = [*self._ends, self._bridge], self.names
        # Links first: a network lives on, and its wire with it, for as long as anybody is inside.
        for command in (*(["link", "del", link] for link in links), *(["netns", "del", name] for name in names)):
            with suppress(CannotStart):
                _ip(*command)


def enter(name: str) -> None:
    """Put this process, and the threads it starts from now on, into a node's network."""
    with Path("/run/netns", name).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network of {name}")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise CannotStart(f"ip {' '.join(words)}: {done.stderr.strip()}")
