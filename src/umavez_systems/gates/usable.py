"""Usable: whether every part of the server can begin with these settings, asked before anything is served.

A part that begins later would fail later: mails that nobody sends, behind a server that answers and says it is ready.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from umavez import ConfigurationError
from umavez_systems.mailing.ingest.storage import open_storage
from umavez_systems.mailing.letters.composing import sender_of
from umavez_systems.mailing.letters.signing import signer_of
from umavez_systems.mailing.providers.smtp import SmtpProvider
from umavez_systems.mailing.service import known_broker
from umavez_systems.problems import Problem
from umavez_systems.settings import MULTIPROCESS, Settings

SAMPLE = b"From: a@b.example\r\nTo: c@d.example\r\nSubject: x\r\n\r\nx\r\n"


def refuse_unusable(settings: Settings, *, mailing: bool = False) -> None:
    """Raise ConfigurationError for the first setting that a part of the server, or mailing, could not begin with."""
    for variable, look in (MAILING if mailing else EVERY).items():
        try:
            look(settings)
        except Problem as problem:
            raise ConfigurationError(f"{variable}: {problem.detail}") from problem
        except ValueError as error:
            said = str(error)
            raise ConfigurationError(said if variable in said else f"{variable}: {said}") from error
        except OSError as error:
            where = f"{error.filename} " if error.filename else "it "
            raise ConfigurationError(f"{variable}: {where}cannot be used ({error.strerror}); name another.") from error


def _smtp(settings: Settings) -> None:
    if settings.smtp_url:
        SmtpProvider(settings.smtp_url)


def _folder(path: Path) -> None:
    """Whether files can be kept in a folder. It is not made: one that nobody uses is none to leave behind."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is a file, and no folder can be there")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"nothing can be written in {there}; give the server the right to, or name another")


def _storage(settings: Settings) -> None:
    open_storage(settings.storage_folder)
    if settings.spool is not None:
        _folder(Path(unquote(str(settings.spool))))


def _counters(_: Settings) -> None:
    folder = os.environ.get(MULTIPROCESS)
    if folder is None:
        return
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}; make it, or leave the variable out")
    _folder(Path(folder))


def _provider(settings: Settings) -> None:
    if settings.mailing_http_url:
        _address(settings.mailing_http_url)


def _address(url: str) -> None:
    """Whether HTTP can be spoken with `url`, which is not repeated: it may hold a password."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("must be http://host:port or https://host")


def _dkim(settings: Settings) -> None:
    sign = signer_of(settings.mailing_dkim)
    if sign is None:
        return
    try:
        sign(SAMPLE, 0)
    except Exception as error:  # the library has several errors of its own, and passes others on
        raise ValueError("the key in the file cannot sign; it must be an RSA key in PEM") from error


def _sealing(_: Settings) -> None:
    if os.environ.get("UMAVEZ_SEAL_KEYS"):
        from umavez.encryption import SealedCodec  # noqa: PLC0415  # a worker of mailing lives without

        SealedCodec.from_environment()


def _people(_: Settings) -> None:
    from umavez.console import users  # noqa: PLC0415  # the same

    users()


MAILING: dict[str, Callable[[Settings], object]] = {
    "UMAVEZ_STORAGE": _storage,
    MULTIPROCESS: _counters,
    "UMAVEZ_BROKER": lambda settings: known_broker(settings.broker),
    "UMAVEZ_SMTP_URL": _smtp,
    "UMAVEZ_MAILING_HTTP_URL": _provider,
    "UMAVEZ_MAILING_DKIM": _dkim,
    "UMAVEZ_MAILING_FROM": lambda settings: sender_of(settings.mailing_from),
}
EVERY: dict[str, Callable[[Settings], object]] = {
    **MAILING,
    "UMAVEZ_FISCAL_DIR": lambda settings: _folder(Path(settings.fiscal_dir)),
    "UMAVEZ_SEAL_KEYS": _sealing,
    "UMAVEZ_CONSOLE_USERS": _people,
    "UMAVEZ_PORTAL_URL": lambda settings: _address(settings.portal_url),
}
