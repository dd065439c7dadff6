"""Claims of the engine that share a commit with the books: begun with what is stored, ended with what was answered.

Each commit waits for the disk. Together with the writings that they belong to, a claim and its end cost none of their
own, and no crash leaves one without the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from umavez import Attempt, ClaimLost
from umavez_systems.database import Connection


class Reserva:
    """A claim that is made in the transaction which stores its act, for whoever carries the act after the commit.

    One that nobody used is left to its lease: where the transaction was rolled back, there is none.
    """

    def __init__(self) -> None:
        self._held = ExitStack()
        self._attempt: Attempt | None = None

    @property
    def feita(self) -> bool:
        """Whether a claim was made and not used yet."""
        return self._attempt is not None

    @property
    def attempt(self) -> Attempt | None:
        """The attempt while it is not used; who ends it here must end it before this block is over."""
        return self._attempt

    def fazer(self, block: AbstractContextManager[Attempt]) -> None:
        """Make the claim. Raises as the engine does."""
        self._attempt = self._held.enter_context(block)

    @contextmanager
    def usada(self) -> Iterator[Attempt]:
        """The attempt, ended with this block, however that ends. Raises ValueError where there is none."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            raise ValueError("A reserva não foi feita, ou já foi usada.")
        with self._held.pop_all():
            yield attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.replayed and not attempt.done:
            attempt.leave_unrecorded()
        self._held.close()


def encerrar(attempt: Attempt, connection: Connection, kept: Any) -> None:
    """End an attempt in the transaction that writes its answer.

    A claim that was lost meanwhile takes nothing from the answer: it is written, and the attempt stays open for its
    owner to learn of the loss.
    """
    try:
        attempt.succeed(kept, connection=connection.raw)
    except ClaimLost:
        return
