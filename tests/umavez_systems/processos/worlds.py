"""A small world for processes: a payer's ledger, a database, a store, and workers that die where they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from umavez import Store, open_store
from umavez.testing.clock import ManualClock
from umavez_systems.database import Connection, Database, open_database
from umavez_systems.processos.attempts import Terms
from umavez_systems.processos.database import Reservas
from umavez_systems.processos.operations import Faturamento
from umavez_systems.processos.portal.client import HttpPortal
from umavez_systems.processos.portal.ledger import Ledger
from umavez_systems.processos.runner import Runner
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

T = TypeVar("T")
LOCAL = "local"


class Died(BaseException):
    """The worker is gone. Not an Exception: no code of a dead process handles anything."""


@dataclass
class Fate:
    """Counts the moments of a worker's life and ends it at the n-th. The dead reach nothing any more."""

    nth: int = 0
    moments: int = 0
    dead: bool = False

    def cross(self) -> None:
        if self.dead:
            raise Died
        self.moments += 1
        if self.moments == self.nth:
            self.dead = True
            raise Died

    def around(self, verb: Callable[[], T]) -> T:
        self.cross()
        result = verb()
        self.cross()
        return result


class MortalStore:
    """A store whose user may die before and after every call."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self._store = store
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name == "announce":  # comes from a thread of its own, at no step of the worker's
            return verb
        return lambda *args, **options: self._fate.around(lambda: verb(*args, **options))


class MortalDatabase:
    """A database whose user may die before, inside and after every transaction."""

    def __init__(self, database: Database, fate: Fate) -> None:
        self._database = database
        self._fate = fate
        self.url, self.store_url = database.url, database.store_url

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        self._fate.cross()
        with self._database.transaction() as connection:
            yield connection
            self._fate.cross()
        self._fate.cross()

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        with self._database.statements() as connection:
            yield connection

    def close(self) -> None:
        pass


class LedgerPortal(HttpPortal):
    """The portal's adapter without the wire: straight to the ledger, dying before and after the payer acts."""

    def __init__(self, ledger: Ledger, fate: Fate) -> None:
        # Not the adapter's own __init__: this one needs no connections.
        self._ledger = ledger
        self._fate = fate
        self.sent: list[str] = []

    def _sent(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(path)
        return self._fate.around(lambda: self._ledger.act(path, content)[1])


@dataclass
class World:
    """What survives every worker."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    terms: Terms = field(default_factory=lambda: Terms(quiet=0))

    def __post_init__(self) -> None:
        url = f"sqlite:///{self.folder}/world.db"
        prepare(Settings(database=url))
        self.database = open_database(url, 1)
        self.store = open_store("memory:", clock=self.clock)
        self.ledger = Ledger(str(self.folder / "ledger.db"), refuse_duplicates=False)

    def worker(self, nth: int = 0) -> Worker:
        """A worker that dies at its n-th moment; 0: never."""
        return Worker(self, Fate(nth))

    @property
    def submissions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ledger.contents()["submissions"]
        return found

    @property
    def payments(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ledger.contents()["payments"]
        return found

    @property
    def appeals(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ledger.contents()["appeals"]
        return found

    def close(self) -> None:
        self.database.close()
        self.store.close()


class Worker:
    """One worker's runner, with everything it reaches going through its fate."""

    def __init__(self, world: World, fate: Fate) -> None:
        self.fate = fate
        self.portal = LedgerPortal(world.ledger, fate)
        store: Any = MortalStore(world.store, fate)
        database = MortalDatabase(world.database, fate)
        self.faturamento = Faturamento(store, self.portal, Reservas(database), terms=world.terms)
        self.runner = Runner(database, self.faturamento, pause=0.01, clock=world.clock.now)
