"""Where an SQLite store is: the file and the journal that a URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from umavez.errors import ConfigurationError

JOURNALS = {"wal": "WAL", "delete": "DELETE"}


def parsed(url: str) -> tuple[Path, str]:
    """The file and the journal mode in `url`."""
    location, _, options = url.partition("?")
    prefix, _, path = location.partition(":///")
    if prefix != "sqlite" or not path or path == ":memory:":
        raise ConfigurationError(f"{url!r} names no file; use sqlite:///file.db, or memory: for a store without one.")
    choices = dict(parse_qsl(options))
    journal = choices.pop("journal", "wal")
    choices.pop("timeout", None)
    if choices or journal not in JOURNALS:
        raise ConfigurationError(f"{url!r}: the options are journal=wal or journal=delete, and timeout=seconds.")
    return Path(unquote(path)), journal
