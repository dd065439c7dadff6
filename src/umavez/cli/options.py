"""Options that several commands share, and the store behind `--store`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated
from urllib.parse import unquote

import typer

from umavez.cli.durations import seconds
from umavez.errors import ConfigurationError
from umavez.stores import SECRET_PARAMETER, Store, existing, open_reader, open_store, without_password

VARIABLE = "UMAVEZ_STORE"

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=VARIABLE,
        show_default=False,
        help="Where the records are. Prefer the variable: other users can see a command's arguments.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text for people.")]
OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than", metavar="DURATION", parser=seconds, help="A number and s, m, h or d: 90s, 15m, 2h, 3d."
    ),
]


@contextmanager
def open_to_look(url: str | None) -> Iterator[Store]:
    """The store of `--store` for a command that only looks, closed afterwards. Raises ConfigurationError.

    Where it is a file, nothing is made: a name that was mistyped must not become an empty store.
    """
    with closing(open_reader(named(url))) as store:
        yield store


@contextmanager
def open_to_change(url: str | None) -> Iterator[Store]:
    """The store of `--store` for a command that decides something; it must be there as well."""
    with closing(open_store(existing_url(url))) as store:
        yield store


def existing_url(url: str | None) -> str:
    """The URL that was given, of a store that is there. Raises ConfigurationError when it is not, or was not named."""
    return existing(named(url))


def named(url: str | None) -> str:
    """The URL that was given. Raises ConfigurationError when there is none."""
    if not url:
        raise ConfigurationError(f"No store is named; pass --store URL or set {VARIABLE}.")
    return url


def named_in_environment() -> str | None:
    """The store that the environment names."""
    return os.environ.get(VARIABLE) or None


def shown(url: str) -> str:
    """`url` as it may be printed: no password, neither before the host nor among the parameters."""
    return without_password(url)


def scrubbed(text: str, url: str) -> str:
    """`text`, which a driver made, without the passwords that `url` holds and on one line."""
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    return " ".join(text.split())


def _secrets(url: str) -> list[str]:
    written = [found.group(2) for found in SECRET_PARAMETER.finditer(url)]
    user, at, _ = url.partition("://")[2].rpartition("@")
    if at and ":" in user:
        written.append(user.partition(":")[2])
    return [secret for text in written for secret in (text, unquote(text)) if secret]
