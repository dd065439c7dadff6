"""Mailing, put together: use cases, storage and provider over one database, as the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

from umavez import Once
from umavez_systems.database import Database, open_database
from umavez_systems.mailing.ingest.storage import open_storage
from umavez_systems.mailing.letters.previews import Letters
from umavez_systems.mailing.live import Watchers
from umavez_systems.mailing.operations import Mailings, Rules
from umavez_systems.mailing.sending.holding import Holdings
from umavez_systems.mailing.suppression import Suppressions
from umavez_systems.settings import Settings


@dataclass(frozen=True, slots=True)
class Desk:
    """The system by itself: what commands and workers need, without the other systems and the server."""

    settings: Settings
    database: Database
    mailing: Mailing


@contextmanager
def open_desk(settings: Settings) -> Iterator[Desk]:
    """The system as the settings describe it; its tables must be there."""
    database = open_database(settings.database, settings.threads)
    try:
        with Once(database.store_url, scope="umavez") as once:
            yield Desk(settings, database, Mailing(settings, once, database))
    finally:
        database.close()


def tables_ready(settings: Settings) -> bool:
    """Whether the tables are at the version that this program knows."""
    steps = files("umavez_systems.migrations").joinpath("versions").iterdir()
    newest = max(step.name[:4] for step in steps if step.name[:4].isdigit())
    sqlite = settings.database.startswith("sqlite")
    look = "SELECT name FROM sqlite_master WHERE name = ?" if sqlite else "SELECT to_regclass(?) AS name"
    database = open_database(settings.database, 1)
    try:
        with database.statements() as connection:
            found = connection.row(look, ("systems_version",))
            if found is None or found["name"] is None:
                return False
            row = connection.row("SELECT version_num FROM systems_version")
            return row is not None and row["version_num"] == newest
    finally:
        database.close()


class Mailing:
    """What routes, commands and workers use."""

    def __init__(self, settings: Settings, once: Once, database: Database) -> None:
        rules = Rules(
            settings.mailing_from,
            settings.keep_seconds,
            settings.mailing_lock_seconds,
            settings.mailing_recovery_seconds,
        )
        self.settings = settings
        self.cases = Mailings(once, database, open_storage(settings.storage_folder), rules)
        self.holdings = Holdings(self.cases)
        self.letters = Letters(self.cases)
        self.suppressions = Suppressions(database)
        self.watchers = Watchers()
