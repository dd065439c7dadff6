"""Greeting: what is said on a new connection before any record, and what the server must answer.

In strict mode the server's settings are part of the greeting, so that every connection, the first as well as
one opened after a failover, is refused where an acknowledged record could vanish.
"""

from __future__ import annotations

from typing import Any

from hiredis import ReplyError

from umavez.errors import ConfigurationError, StoreError, StoreUnavailable
from umavez.stores.redis.command import packed
from umavez.stores.redis.url import Address

STRICT = (
    ("maxmemory-policy", "noeviction", "an evicted record lets its operation run again"),
    ("appendonly", "yes", "a restart loses every record that is not on disk"),
    ("appendfsync", "always", "a crash loses up to a second of records"),
)
"""Settings that strict mode demands, and what happens without them."""


def greeting(address: Address) -> list[bytes]:
    """The commands to send, all at once, on a new connection."""
    words: list[tuple[str, ...]] = []
    if address.password is not None:
        words.append(("AUTH", address.username or "default", address.password))
    words.append(("SELECT", str(address.database)))
    if address.sentinels:
        words.append(("ROLE",))
    if address.strict:
        words.extend(("CONFIG", "GET", name) for name, _, _ in STRICT)
        words.append(("INFO", "replication"))
    return [packed(*each) for each in words]


def admit(address: Address, replies: list[Any]) -> None:
    """Accept the server's answers to `greeting`, or raise what is wrong with them."""
    replies = list(replies)
    if address.password is not None:
        _refuse(address, replies.pop(0))
    _refuse(address, replies.pop(0))
    if address.sentinels:
        _admit_master(address, replies.pop(0))
    if address.strict:
        _admit_strict(address, replies)


def _refuse(address: Address, reply: Any) -> None:
    if isinstance(reply, ReplyError):
        raise _complaint(address, str(reply)) from reply


def _admit_master(address: Address, reply: Any) -> None:
    """Sentinels may name one that leads no more, and one that restarts says master until they tell it otherwise."""
    _refuse(address, reply)
    if not isinstance(reply, list) or reply[:1] != [b"master"]:
        raise StoreUnavailable(f"Redis at {address} is not the master; the sentinels are asked again, so try again.")


def _complaint(address: Address, text: str) -> ConfigurationError | StoreError:
    if text.startswith("NOAUTH"):
        return ConfigurationError(
            f"Redis at {address} asks for a password; put it into the URL as redis://:password@host."
        )
    if text.startswith("WRONGPASS") or "AUTH" in text:
        return ConfigurationError(
            f"Redis at {address} refused the user name or password; correct them in the store's URL."
        )
    if "DB index" in text or "SELECT" in text:
        return ConfigurationError(
            f"Redis at {address} has no database {address.database}; use a lower number in the store's URL."
        )
    return StoreUnavailable(f"Redis at {address} takes no commands now ({text.partition(' ')[0]}); try again.")


def _admit_strict(address: Address, replies: list[Any]) -> None:
    if any(isinstance(reply, ReplyError) for reply in replies):
        raise ConfigurationError(
            f"Redis at {address} does not let this user read CONFIG and INFO, which strict=1 needs; "
            "grant both or leave strict out."
        )
    faults = [
        f"{name} is {_setting(reply) or 'unknown'}: set it to {wanted}, since {reason}"
        for (name, wanted, reason), reply in zip(STRICT, replies, strict=False)
        if _setting(reply) != wanted
    ]
    faults += _failover_faults(replies[-1].decode())
    if faults:
        raise ConfigurationError(f"Redis at {address} is not safe enough for strict=1: {'; '.join(faults)}.")


def _setting(reply: list[bytes]) -> str:
    return reply[1].decode() if len(reply) > 1 else ""


def _failover_faults(info: str) -> list[str]:
    facts = dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line)
    faults = []
    if facts.get("role") != "master":
        faults.append(f"role is {facts.get('role')}: connect to a master without replicas")
    if facts.get("connected_slaves") != "0":
        faults.append(
            f"connected_slaves is {facts.get('connected_slaves')}: "
            "detach the replicas, since one that is promoted lacks the newest records"
        )
    return faults
