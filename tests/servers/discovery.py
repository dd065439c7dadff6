"""Where a server comes from: the environment, the standard port, installed programs, a Debian package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.servers.install import install, may_install
from tests.servers.kind import Kind, NoAnswer, parts, shown
from tests.servers.private import CannotStart, Private, start


@dataclass(frozen=True)
class Found:
    """A server that answers. `keeper` and `directory` are set when it is private and must be stopped."""

    name: str
    url: str
    version: str
    origin: str
    notes: list[str] = field(default_factory=list)
    keeper: int | None = None
    directory: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.origin})"


@dataclass(frozen=True)
class Missing:
    """No server: why, and what to do."""

    name: str
    advice: str
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name} not available"


def find(kind: Kind, owner: int, exclusive: AbstractContextManager[Any]) -> tuple[Found | Missing, Private | None]:
    """The first server that works, and its process if it was started here.

    A variable that names a dead address leads to a private server, never to the standard port: whoever set it
    did not ask for that server.
    """
    notes: list[str] = []
    running = _running(kind, notes)
    if running:
        return running, None
    private = _private(kind, owner, exclusive, notes)
    if private:
        return found_private(private, notes), private
    return Missing(kind.name, f"apt install {kind.package}, or set {kind.variable} to a URL", notes), None


def found_private(private: Private, notes: list[str]) -> Found:
    """A private server as the run records it."""
    name, port = private.kind.name, parts(private.url).port
    origin = f"private, port {port}"
    return Found(name, private.url, private.version, origin, notes, private.keeper.pid, str(private.directory))


def from_record(record: dict[str, Any]) -> Found | Missing:
    """The reverse of `to_record`."""
    return Missing(**record) if "advice" in record else Found(**record)


def to_record(server: Found | Missing) -> dict[str, Any]:
    """Plain data, to hand to other processes of the same run."""
    return asdict(server)


def _running(kind: Kind, notes: list[str]) -> Found | None:
    for url, origin in _candidates(kind):
        try:
            version = kind.answer(url)
        except NoAnswer as error:
            if origin == kind.variable:
                notes.append(f"{kind.variable} is set, but {shown(url)} is of no use: {error}")
            continue
        return Found(kind.name, url, version, origin, notes)
    return None


def _candidates(kind: Kind) -> Iterator[tuple[str, str]]:
    named = os.environ.get(kind.variable)
    if named:
        yield named, kind.variable
        return
    for url in kind.standard():
        yield url, f"running, port {parts(url).port}"


def _private(kind: Kind, owner: int, exclusive: AbstractContextManager[Any], notes: list[str]) -> Private | None:
    programs = kind.locate()
    if programs is None and may_install():
        with exclusive:
            problem = install(kind.package)
        notes.append(problem or f"installed the Debian package {kind.package}")
        programs = kind.locate()
    if programs is None:
        notes.append(f"not all of these are installed: {', '.join(kind.programs)}")
        return None
    try:
        return start(kind, programs, owner)
    except CannotStart as error:
        notes.append(str(error))
        return None
