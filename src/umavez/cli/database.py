"""A connection of one's own to the database behind `--store`, for instruments that keep tables there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from umavez.cli.options import named, shown
from umavez.errors import ConfigurationError, SchemaOutdated, StoreError
from umavez.stores import BACKENDS

DRIVERS = {
    "umavez.stores.sqlite": "umavez.cli.database_sqlite",
    "umavez.stores.postgres": "umavez.cli.database_postgres",
    "umavez.stores.mariadb": "umavez.cli.database_mariadb",
}
"""The module whose `connected` opens a backend, and whose `meaning` says what its driver's errors mean."""


class Place(NamedTuple):
    """Which tables are looked for, in words, and the command that makes them."""

    tables: str
    migrate: str


def holds_tables(url: str) -> bool:
    """Whether instruments can keep tables of their own at `url`."""
    return _backend(url)[0] in DRIVERS


def _backend(url: str) -> tuple[str, str]:
    return BACKENDS.get(url.partition(":")[0], ("", ""))


@contextmanager
def reading(url: str | None, place: Place) -> Iterator[Any]:
    """A driver's connection to look through. Raises StoreError; SchemaOutdated says how to make the tables."""
    with _translated(driver := _driver(url, place), place), driver.connected(named(url), writing=False) as connection:
        yield connection


@contextmanager
def writing(url: str | None, place: Place) -> Iterator[Any]:
    """As `reading`, with a transaction that is committed at the end and rolled back on any error."""
    with _translated(driver := _driver(url, place), place), driver.connected(named(url), writing=True) as connection:
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def _driver(url: str | None, place: Place) -> Any:
    module, extra = _backend(named(url))
    if module not in DRIVERS:
        raise ConfigurationError(
            f"{shown(named(url))!r} cannot hold {place.tables}; use sqlite:///file, postgresql://… or mariadb://…."
        )
    try:
        return import_module(DRIVERS[module])
    except ModuleNotFoundError as missing:
        if not extra:
            raise
        raise ConfigurationError(f"{missing.name} is not installed; run: pip install 'umavez[{extra}]'.") from missing


@contextmanager
def _translated(driver: Any, place: Place) -> Iterator[None]:
    try:
        yield
    except driver.ERRORS as error:
        meaning: StoreError = driver.meaning(error)
        if isinstance(meaning, SchemaOutdated):
            # The store speaks of its own tables, which are others.
            raise SchemaOutdated(
                f"The tables of {place.tables} are missing or old; run: {place.migrate} --store URL."
            ) from error
        raise meaning from error
