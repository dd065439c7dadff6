"""A connection of one's own to the database behind a store's URL, for those who keep tables there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from umavez.errors import ConfigurationError
from umavez.stores import holds_tables, part_of, without_password


@contextmanager
def reading(url: str, tables: str) -> Iterator[Any]:
    """A driver's connection to look through; it can write nothing. `tables` says in a word what is looked for.

    Raises StoreError (SchemaOutdated names the command that makes the tables), and ConfigurationError for a URL that
    names no database.
    """
    with _translated(url, tables), closing(part_of(url, "connection").connect(url, read_only=True)) as connection:
        yield connection


@contextmanager
def writing(url: str, tables: str) -> Iterator[Any]:
    """As `reading`, with a transaction that is committed at the end and rolled back on any error."""
    with _translated(url, tables):
        driver = part_of(url, "connection")
        with closing(driver.connect(url)) as connection:
            driver.begin(connection)
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()


@contextmanager
def _translated(url: str, tables: str) -> Iterator[None]:
    if not holds_tables(url):
        raise ConfigurationError(
            f"{without_password(url)!r} cannot hold {tables}; use sqlite:///file, postgresql://… or mariadb://…."
        )
    translate = part_of(url, "errors").translate
    try:
        yield
    except Exception as error:
        meant = translate(error)
        if meant is None:
            raise
        raise meant from error
