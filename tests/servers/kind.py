"""What the suite must know about one kind of server."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

# A service account's PATH often lacks these, and mariadbd and rabbitmqctl live there.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


class NoAnswer(Exception):
    """Nothing usable answers at the URL; the text says what was tried and what came back."""


class Occupied(Exception):
    """The server answers but has no room of its own for this run."""


@dataclass(frozen=True)
class Account:
    """The unprivileged user a private server runs as when the tests run as root."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Place:
    """Where a private server is to live."""

    directory: Path
    port: int
    programs: dict[str, Path]
    execute: Callable[[list[str]], None] = field(repr=False)


@dataclass(frozen=True)
class Launch:
    """How to run a prepared private server in the foreground, and where it will answer."""

    command: list[str]
    url: str
    environment: dict[str, str] = field(default_factory=dict)


class Kind(ABC):
    """One kind of server: how to ask it, run it, and get a corner of it for one test run."""

    name: ClassVar[str]
    variable: ClassVar[str]
    package: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    folders: ClassVar[tuple[str, ...]] = ()
    accounts: ClassVar[tuple[str, ...]] = ("nobody",)
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    patience: ClassVar[float] = 30.0

    @abstractmethod
    def standard(self) -> list[str]:
        """The URLs at which a server on the standard port would let us in."""

    @abstractmethod
    def answer(self, url: str) -> str:
        """The version of the server at `url`; NoAnswer if there is none or it cannot serve the tests."""

    @abstractmethod
    def prepare(self, place: Place) -> Launch:
        """Lay out an empty server at `place` and say how to run it."""

    @abstractmethod
    def lend(self, url: str, name: str, *, private: bool) -> AbstractContextManager[str]:
        """Give the URL of a corner called `name` that is empty at first and removed at the end."""

    def locate(self) -> dict[str, Path] | None:
        """The installed programs by name, or None if one is missing."""
        found = {name: self._program(name) for name in self.programs}
        return {name: path for name, path in found.items() if path} if all(found.values()) else None

    def account(self) -> Account | None:
        """The user to run as: none unless the tests run as root."""
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        entry = next((known[name] for name in (*self.accounts, "nobody") if name in known), None)
        return Account(entry.pw_uid, entry.pw_gid) if entry else None

    def _program(self, name: str) -> Path | None:
        folders = [*self._own_folders(), *os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS]
        path = shutil.which(name, path=os.pathsep.join(folders))
        return Path(path) if path else None

    def _own_folders(self) -> Iterator[str]:
        for pattern in self.folders:
            yield from sorted(glob.glob(pattern), key=_by_number, reverse=True)  # noqa: PTH207 -- absolute pattern


def _by_number(folder: str) -> list[int]:
    """The numbers in a path, so that version 15 comes before version 9."""
    return [int(part) for part in folder.split("/") if part.isdigit()]


def parts(url: str) -> SplitResult:
    """The parts of a URL."""
    return urlsplit(url)


def with_path(url: str, path: str) -> str:
    """The same server, another database."""
    return urlsplit(url)._replace(path=f"/{path}").geturl()


def shown(url: str) -> str:
    """The URL as it may be printed: without its password."""
    split = urlsplit(url)
    if split.password is None:
        return url
    user, _, host = split.netloc.rpartition("@")
    return split._replace(netloc=f"{user.partition(':')[0]}:***@{host}").geturl()
