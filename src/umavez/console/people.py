"""People: who may come in, and what each may do. Roles, sessions and passwords, by the standard library alone."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from umavez.errors import ConfigurationError

ROLES = ("look", "reveal", "decide", "govern")
"""look: every page. reveal: private texts. decide: about one record. govern: override what is settled."""
EVERYTHING = frozenset(ROLES)
VARIABLE = "UMAVEZ_CONSOLE_USERS"
SESSION_SECONDS = 12 * 3600
MOST_FAILURES = 20
"""Wrong passwords in a minute before nobody can sign in for the rest of it: each costs a tenth of a second of CPU."""

_COST = (2**14, 8, 1)
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,60}")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_HERE = ("127.0.0.1", "localhost", "::1")


class Who(NamedTuple):
    """Somebody who may come in. `name` is what the audit says; `may` holds some of ROLES."""

    name: str
    may: frozenset[str] = frozenset(("look",))


Authorize = Callable[[Any], "Who | Awaitable[Who | None] | None"]
"""Says who sends a Starlette request."""


def loopback(request: Any) -> Who | None:
    """`local`, who may do everything, for a request of this machine that no proxy brought and no other name led to."""
    headers = request.headers
    client = request.client
    if client is None or not _is_loopback(client.host) or any(name in headers for name in _FORWARDED):
        return None
    hosts = headers.getlist("host")
    if len(hosts) != 1 or _host(hosts[0]) not in _HERE:
        # A page of another site, opened here, whose name points to this machine.
        return None
    return Who("local", EVERYTHING)


def _is_loopback(text: str) -> bool:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _host(text: str) -> str:
    try:
        return urlsplit(f"//{text.strip().lower()}").hostname or "" if "@" not in text else ""
    except ValueError:
        return ""


class User(NamedTuple):
    """Somebody who signs in with a password."""

    name: str
    may: frozenset[str]
    salt: bytes
    hash: bytes


class Users:
    """The people of UMAVEZ_CONSOLE_USERS: `name:look+decide:salt:hash`, separated by blanks."""

    def __init__(self, text: str) -> None:
        self._users = {user.name: user for user in map(_user, text.split())}
        # Whoever knows the hashes could sign in by guessing; whoever changes one ends every session.
        self._secret = hashlib.sha256(b"umavez console session:" + text.encode()).digest()
        self._failures: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._users)

    def signed_in(self, name: str, password: str) -> Who | None:
        """Who that is, if the password is right. Takes about as long for a name that is not there."""
        user = self._users.get(name)
        salt, wanted = (user.salt, user.hash) if user else (b"nobody has this", b"")
        if not hmac.compare_digest(_hashed(password, salt), wanted) or user is None:
            self._failures.append(time.monotonic())
            return None
        return Who(user.name, user.may)

    @property
    def tired(self) -> bool:
        """Whether so many passwords were wrong lately that no further one is looked at."""
        since = time.monotonic() - 60
        self._failures = [at for at in self._failures if at > since]
        return len(self._failures) >= MOST_FAILURES

    def session(self, name: str, now: float) -> str:
        """The cookie of somebody who signed in."""
        text = f"{int(now) + SESSION_SECONDS}:{name}".encode()
        return f"{_encoded(text)}.{_encoded(self._mark(text))}"

    def holder(self, cookie: str, now: float) -> Who | None:
        """Whose cookie it is, if we gave it and its time has not passed."""
        try:
            text, mark = (b64decode(part, b"-_", validate=True) for part in cookie[:500].split(".", 1))
        except (ValueError, NotBase64):
            return None
        if not hmac.compare_digest(mark, self._mark(text)):
            return None
        until, _, name = text.decode().partition(":")
        user = self._users.get(name)
        return Who(user.name, user.may) if user is not None and int(until) > now else None

    def _mark(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, "sha256")


def users(environment: Mapping[str, str] = os.environ) -> Users:
    """The people that the environment names. Raises ConfigurationError."""
    return Users(environment.get(VARIABLE, ""))


def entry(name: str, password: str, may: str) -> str:
    """A line for UMAVEZ_CONSOLE_USERS. Raises ConfigurationError."""
    refuse_unfit(name, frozenset(may.split("+")))
    if len(password) < 12:
        raise ConfigurationError("A password has at least 12 characters; choose a longer one.")
    salt = secrets.token_bytes(16)
    return f"{name}:{may}:{_encoded(salt)}:{_encoded(_hashed(password, salt))}"


def refuse_unfit(name: str, may: frozenset[str]) -> None:
    """Raise ConfigurationError where nobody can be called so, or there is no such role."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError("A name has up to 60 letters of ASCII, digits and any of _.@-; choose another.")
    if not may <= EVERYTHING:
        raise ConfigurationError(f"The roles are {', '.join(ROLES)}, joined by +; correct them.")


def _user(line: str) -> User:
    try:
        name, may, salt, hashed = line.split(":")
        user = User(name, frozenset(may.split("+")), urlsafe_b64decode(salt), urlsafe_b64decode(hashed))
    except (ValueError, NotBase64) as error:
        raise ConfigurationError(f"{VARIABLE}: an entry is no name:roles:salt:hash; make it with: {_MAKE}") from error
    if len(user.hash) != 32:
        raise ConfigurationError(f"{VARIABLE}: the hash of an entry is cut off; make the entry anew with: {_MAKE}")
    try:
        refuse_unfit(user.name, user.may)
    except ConfigurationError as unfit:
        raise ConfigurationError(f"{VARIABLE}: {unfit}") from None
    return user


_MAKE = "umavez console-user NAME"


def _hashed(password: str, salt: bytes) -> bytes:
    cost, block, lanes = _COST
    return hashlib.scrypt(password.encode("utf-8", "replace"), salt=salt, n=cost, r=block, p=lanes, dklen=32)


def _encoded(text: bytes) -> str:
    return urlsafe_b64encode(text).decode()
