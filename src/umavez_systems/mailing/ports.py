"""What mailing needs from outside: somebody who carries mails, and a place for files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from umavez_systems.mailing.domain import Capability


@dataclass(frozen=True, slots=True)
class Mail:
    """One person's mail as it goes out: the same bytes at every attempt."""

    entry: str
    key: str
    message_id: str
    sender: str
    recipient: str
    subject: str
    content: bytes
    text: str | None = None
    html: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    principal: str = "local"


class Fate(StrEnum):
    """What became of a call. UNREACHED: nobody was there to refuse it, which is not the mail's fault."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LATER = "later"
    UNKNOWN = "unknown"
    UNREACHED = "unreached"


@dataclass(frozen=True, slots=True)
class Answer:
    """A provider's answer. `slow`: everybody must slow down, for `rest` seconds if it says so; `hard`: this address

    does not exist.
    """

    fate: Fate
    text: str
    external_id: str | None = None
    slow: bool = False
    hard: bool = False
    rest: float = 0.0


Proof = Callable[[], Awaitable[None]]
"""Proves, at the last moment before a mail leaves, that its sender still may; raises ClaimLost."""


class Provider(Protocol):
    """Carries mails. Raises nothing for what a far side does: every end of a call is an Answer."""

    capability: Capability

    async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
        """Hand over a group; an answer for each. Raises what `proof` raises."""
        ...

    async def ask(self, message_id: str, external_id: str | None) -> bool | None:
        """Whether a mail was taken; None where nobody can tell."""
        ...

    async def close(self) -> None:
        """Give connections back. Safe to repeat."""
        ...


class Storage(Protocol):
    """A place for uploaded files that every host of a deployment reaches."""

    def keep(self, path: Path, name: str) -> str:
        """Move a finished local file in, durably; returns its URL."""
        ...

    def read(self, url: str, offset: int) -> AbstractContextManager[BinaryIO]:
        """The bytes from `offset` on. Raises FileNotFoundError."""
        ...

    def remove(self, url: str) -> None:
        """Forget a file; one that is not there is forgotten already."""
        ...

    def names(self) -> Iterator[tuple[str, float]]:
        """Every file's URL and its age in seconds."""
        ...
