"""Sweeping: files that no mailing names are removed after a day, and only those that this database put there.

A folder may be shared with other people's files and other databases' lists, and may have moved since it was written
down: a file is ours by the mark in its name, and kept by its name, wherever the row says that it stands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from umavez_systems.database import Database
from umavez_systems.mailing.ports import Storage

DAY = 86_400.0
PAGE = 1000
NAMED = "SELECT id, storage_url FROM mailings WHERE id > ? ORDER BY id LIMIT ?"
FIRST = "00000000-0000-0000-0000-000000000000"
SPOOL = ("umavez-", ".part")
"""What the names of spools begin and end with."""


def stored_name(mailing: str, database: Database) -> str:
    """The name under which a list is kept: whose it is stands in it."""
    return f"{mailing}.{_mark(database.url)}.csv"


def sweep_storage(storage: Storage, database: Database, older: float = DAY) -> int:
    """Remove this database's files that no mailing names: of an upload that died early, or of a list read again."""
    ours = re.compile(rf"[0-9a-f-]{{36}}\.{_mark(database.url)}\.(csv|part)")
    old = {_name(url): url for url, age in storage.names() if age >= older and ours.fullmatch(_name(url))}
    for name in _named(database) if old else ():
        old.pop(name, None)
    for url in old.values():
        storage.remove(url)
    return len(old)


def sweep_spools(folder: Path, older: float = DAY) -> int:
    """Remove spools in which nobody has written for a day: of processes that were killed during an upload."""
    gone = 0
    for path in folder.glob("*".join(SPOOL)):
        # One that is another user's, or that another process takes just now, keeps none of the others here.
        with suppress(OSError):
            if path.is_file() and time.time() - path.stat().st_mtime >= older:
                path.unlink()
                gone += 1
    return gone


def _named(database: Database) -> Iterator[str]:
    """The names of the files that mailings have now."""
    after = FIRST
    while True:
        with database.statements() as connection:
            rows = connection.rows(NAMED, (after, PAGE))
        yield from (_name(row["storage_url"] or "") for row in rows)
        if len(rows) < PAGE:
            return
        after = str(rows[-1]["id"])


def _mark(url: str) -> str:
    """What tells one database from another: where it is, without who asks and how."""
    place = url.partition("?")[0]
    if place.startswith("sqlite"):
        place = str(Path(unquote(place.partition(":///")[2])).absolute())
    else:
        place = place.rpartition("@")[2].partition("://")[2] or place.rpartition("@")[2]
    return sha256(place.encode()).hexdigest()[:8]


def _name(url: str) -> str:
    return unquote(url).rpartition("/")[2]
