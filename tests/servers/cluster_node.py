"""One node of a private cluster: etcd, Patroni, and the PostgreSQL that Patroni runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.kind import Account
from tests.servers.private import _environment, _keep


class Node:
    """A machine's worth of processes, each under a keeper that ends it with the test run."""

    def __init__(
        self,
        directory: Path,
        number: int,
        places: Sequence[dict[str, str]],
        within: list[str],
        account: Account | None,
        owner: int,
    ) -> None:
        self.name = f"n{number}"
        self.number = number
        self.directory = directory / self.name
        self.place = places[number]
        self.rest = f"http://{self.place['rest']}"
        self.data = self.directory / "data"
        self._peers = ",".join(f"n{one}=http://{each['peer']}" for one, each in enumerate(places))
        self._within = within
        self._account = account
        self._owner = owner
        self._plans: dict[str, dict[str, Any]] = {}
        self._keepers: dict[str, subprocess.Popen[str]] = {}

    def lay_out(self, etcd: list[str], patroni: list[str], settings: dict[str, Any]) -> None:
        """Write what both programs need to start; nothing runs yet."""
        self.directory.mkdir()
        written = self.directory / "patroni.json"
        written.write_text(json.dumps(settings))
        client, peer = (f"http://{self.place[name]}" for name in ("etcd", "peer"))
        said = {
            "name": self.name,
            "data-dir": str(self.directory / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": self._peers,
            "heartbeat-interval": "200",
            "election-timeout": "2000",
            # Written, not synced: kill -9 loses nothing of it, and the disk is the tests' own.
            "unsafe-no-fsync": "true",
        }
        self._plan("etcd", [*etcd, *(f"--{name}={value}" for name, value in said.items())])
        self._plan("patroni", [*patroni, str(written)])

    def _plan(self, name: str, command: list[str]) -> None:
        account = self._account
        self._plans[name] = {
            "command": command,
            "directory": str(self.directory),
            "environment": _environment(self.directory),
            "log_file": str(self.directory / f"{name}.log"),
            "owner": self._owner,
            "pid_file": str(self.directory / f"{name}.pid"),
            "stop_signal": int(signal.SIGKILL),
            "uid": account.uid if account else None,
            "gid": account.gid if account else None,
            "within": self._within,
        }

    def start(self) -> None:
        """Start what does not run."""
        for name, plan in self._plans.items():
            keeper = self._keepers.get(name)
            if keeper is None or keeper.poll() is not None:
                self._keepers[name] = _keep(plan)

    def ended(self) -> list[str]:
        """The programs that were started and run no more."""
        return [name for name, keeper in self._keepers.items() if keeper.poll() is not None]

    def kill_postgres(self) -> None:
        """kill -9 for PostgreSQL and all its processes."""
        self._signal(self._postgres(), signal.SIGKILL)

    def kill_unsent(self, seconds: float) -> None:
        """As `kill_postgres`, after `seconds` in which its log reached no standby, as over a slow network."""
        self._signal([pid for pid in self._postgres() if _is_called(pid, b"walsender")], signal.SIGSTOP)
        time.sleep(seconds)
        self.kill_postgres()

    def kill(self) -> None:
        """kill -9 for everything."""
        # Patroni first: it would start PostgreSQL again.
        self._signal([*self._own("patroni"), *self._postgres(), *self._own("etcd")], signal.SIGKILL)
        for keeper in self._keepers.values():
            with suppress(subprocess.TimeoutExpired):
                keeper.wait(10)

    def freeze(self) -> None:
        """Everything stands still."""
        self._signal([*self._own("patroni"), *self._postgres(), *self._own("etcd")], signal.SIGSTOP)

    def thaw(self) -> None:
        """Everything goes on."""
        self._signal([*self._own("etcd"), *self._postgres(), *self._own("patroni")], signal.SIGCONT)

    def last_words(self) -> str:
        """The ends of both logs."""
        logs = [Path(plan["log_file"]) for plan in self._plans.values()]
        texts = [log.read_text(errors="replace").strip()[-300:] for log in logs if log.exists()]
        return f"{self.name}: {' / '.join(texts)}"

    def _own(self, name: str) -> list[int]:
        with suppress(OSError, ValueError, KeyError):
            return [int(Path(self._plans[name]["pid_file"]).read_text())]
        return []

    def _postgres(self) -> list[int]:
        with suppress(OSError, ValueError, IndexError):
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
            return [postmaster, *_below(postmaster)]
        return []

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _is_called(pid: int, word: bytes) -> bool:
    with suppress(OSError):
        return word in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _below(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def settings_of(node: Node, places: Sequence[dict[str, str]], programs: Path, commit: str) -> dict[str, Any]:
    """Patroni's settings: quorum commit, quick to notice, and old primaries that come back by themselves."""
    address, rest = node.place["postgres"], node.place["rest"]
    nets = ("127.0.0.1/32", f"{address.rpartition('.')[0]}.0/24")
    return {
        "scope": "umavez",
        "name": node.name,
        "restapi": {"listen": rest, "connect_address": rest},
        "etcd3": {"hosts": [each["etcd"] for each in places]},
        "bootstrap": {
            "dcs": {
                "ttl": 20,
                "loop_wait": 1,
                "retry_timeout": 3,
                "synchronous_mode": "quorum",
                "synchronous_node_count": 1,
                "primary_start_timeout": 0,
                "postgresql": {
                    "use_pg_rewind": True,
                    "parameters": {"max_connections": 200, "synchronous_commit": commit, "wal_log_hints": "on"},
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
        },
        "postgresql": {
            "listen": address,
            "connect_address": address,
            "data_dir": str(node.data),
            "bin_dir": str(programs),
            # Replication from everywhere, its own address too, or no old primary ever comes back.
            "pg_hba": [f"host {what} all {net} trust" for what in ("all", "replication") for net in nets],
            "authentication": {
                "superuser": {"username": "postgres"},
                "replication": {"username": "replicator"},
                "rewind": {"username": "postgres"},
            },
            "parameters": {"unix_socket_directories": str(node.directory), "shared_buffers": "64MB"},
            # Without it a replica made anew waits for the next checkpoint, which may take minutes.
            "basebackup": [{"checkpoint": "fast"}],
            "remove_data_directory_on_rewind_failure": True,
            "remove_data_directory_on_diverged_timelines": True,
        },
    }
