"""Ledger: the table that effects are written to. It has no unique constraint, which would hide what is looked for."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing, suppress
from typing import Any

import psycopg
import pymysql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from umavez.postgres import patience
from umavez.stores.mariadb.url import address_of
from umavez.stores.sqlite.store import parsed

CREATE = "CREATE TABLE IF NOT EXISTS chaos_ledger (item varchar(64) NOT NULL, token varchar(64) NOT NULL)"
DRIVER_ERRORS = (sqlite3.Error, psycopg.Error, pymysql.MySQLError, OSError)


def connected(backend: str, url: str) -> Any:
    """A connection of the caller's own, in which a transaction can be joined."""
    if backend == "sqlite":
        return sqlite3.connect(parsed(url)[0], timeout=20)
    if backend == "postgres":
        told = conninfo_to_dict(url)
        return psycopg.connect(make_conninfo("", **{**patience(told, 10), **told}))
    address = address_of(url)
    return pymysql.connect(**address.arguments())


def insert(backend: str, connection: Any, item: str, token: str) -> None:
    """The effect."""
    mark = "?" if backend == "sqlite" else "%s"
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"INSERT INTO chaos_ledger VALUES ({mark}, {mark})", (item, token))


def create(backend: str, url: str) -> None:
    """Make the table, empty."""
    with closing(connected(backend, url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(CREATE)
        cursor.execute("DELETE FROM chaos_ledger")
        connection.commit()


def effects(backend: str, url: str) -> dict[str, list[str]]:
    """The tokens that were written for each item."""
    found: dict[str, list[str]] = defaultdict(list)
    with closing(connected(backend, url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT item, token FROM chaos_ledger")
        for item, token in cursor.fetchall():
            found[item].append(token)
    return found


def drop(connection: Any) -> None:
    """Close a connection, if there is one, in whatever state it is; the server rolls back what was open."""
    if connection is None:
        return
    with suppress(*DRIVER_ERRORS):
        connection.close()
