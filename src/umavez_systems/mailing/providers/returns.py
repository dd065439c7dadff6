"""Returns: what providers and mail servers say about mails afterwards, parsed within bounds. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVENTS = ("delivered", "bounced", "complained")
TAG = "entrada"
"""What names an entry in the tags that a mail carries to an HTTP provider, and that come back with its reports."""
FRESH_SECONDS = 300.0
_OUR_ID = re.compile(r"<([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\.[0-9a-f]{8}@")


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the mail of an entry. `hard`: whether a bounce says that the address is gone."""

    entry: str
    event: str
    detail: str
    hard: bool = True


def entry_of(message_id: str) -> str | None:
    """The entry that one of our Message-IDs names."""
    found = _OUR_ID.search(message_id)
    return found[1] if found else None


def signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a report was signed with `secret` minutes before `now` at most (Standard Webhooks, as svix-…)."""
    number, moment, given = (headers.get(f"svix-{name}", "") for name in ("id", "timestamp", "signature"))
    if not secret or not (moment.isascii() and moment.isdigit()) or len(moment) > 12:
        return False
    if abs(now - int(moment)) > FRESH_SECONDS:
        return False
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    content = f"{number}.{moment}.".encode() + body
    wanted = b"v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256))
    return any(hmac.compare_digest(wanted, one.encode()) for one in given.split(" ")[:10])


def report_of(event: Any) -> Told | None:
    """What a provider's event says about one of our mails; None for what is of no interest here."""
    if not isinstance(event, dict) or not isinstance(event.get("data"), dict):
        return None
    kind, data = str(event.get("type", "")).removeprefix("email."), event["data"]
    entry = _tagged(data.get("tags"))
    if kind not in EVENTS or entry is None:
        return None
    bounce = data["bounce"] if isinstance(data.get("bounce"), dict) else {}
    detail = " ".join(str(bounce[name]) for name in ("type", "subType", "message") if bounce.get(name))
    return Told(entry, kind, (detail or kind)[:2000], str(bounce.get("type", "Permanent")) == "Permanent")


def _tagged(tags: Any) -> str | None:
    """The entry among the tags, which come as an object or as a list of names and values."""
    if isinstance(tags, list):
        tags = {str(one.get("name")): one.get("value") for one in tags[:100] if isinstance(one, dict)}
    found = tags.get(TAG) if isinstance(tags, dict) else None
    return found if isinstance(found, str) else None
