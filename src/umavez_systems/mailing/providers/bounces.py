"""Bounces: what a mail that came back says about one of ours (RFC 3464), read within bounds.

A stranger wrote it. Python's parser takes quadratic time for a header's parameters and recurses into nested parts, so
that 140 kB can stand still for minutes: what is larger, longer or deeper than any notification is cut, or is none.
"""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.message import Message

from umavez_systems.mailing.domain import is_hard
from umavez_systems.mailing.providers.returns import Told, entry_of

LONGEST = 256 * 1024
"""Bytes that are read: what failed and whose mail it was stands before the mail itself."""
MOST_PARTS = 100
"""A notification has three, and the mail that it returns has some of its own."""
MOST_NESTED = 20
"""Boundaries that are named: each may hold the next."""
LONGEST_HEADER = 4096
LONGEST_DETAIL = 2000
_TYPE = re.compile(rb"content-type:", re.IGNORECASE)
_BOUNDARY = re.compile(rb"boundary", re.IGNORECASE)


class _ShortHeaders(policy.Compat32):
    """Reads mails as they are, but for headers of absurd length."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER]


def bounce_of(content: bytes) -> Told | None:
    """What a delivery status notification says about a permanent failure, if it is one."""
    content = content[:LONGEST]
    parts = max(content.count(b"\n--"), len(_TYPE.findall(content)))
    if parts > MOST_PARTS or len(_BOUNDARY.findall(content)) > MOST_NESTED:
        return None
    try:
        message = message_from_bytes(content, policy=_ShortHeaders())
        if message.get_content_type() != "multipart/report":
            return None
        return _told(message)
    except Exception:  # noqa: BLE001  # the library has no error of its own for what is not a mail
        return None


def _told(message: Message) -> Told | None:
    fields: dict[str, str] = {}
    entry = None
    for part in message.walk():
        kind = part.get_content_type()
        if kind == "message/delivery-status":
            for name, value in _headers(part):
                fields.setdefault(name.lower(), legible(str(value).strip()))
        elif kind in ("message/rfc822", "text/rfc822-headers"):
            entry = entry or entry_of(_text(part))
    status, diagnosis = fields.get("status", ""), fields.get("diagnostic-code", "")
    if entry is None or fields.get("action", "").lower() != "failed" or status.startswith("4."):
        return None
    detail = (diagnosis or status or "bounce")[:LONGEST_DETAIL]
    return Told(entry, "bounced", detail, is_hard(f"{status} {diagnosis}"))


def _headers(part: Message) -> list[tuple[str, str]]:
    return [header for block in part.walk() for header in block.items()]


def _text(part: Message) -> str:
    """The headers of the mail that a notification is about, as one text."""
    if part.is_multipart():
        return "\n".join(f"{name}: {value}" for name, value in _headers(part))
    content = part.get_payload(decode=True)
    return content.decode("latin-1") if isinstance(content, bytes) else ""


def legible(text: str) -> str:
    """A text of a stranger's as every database can keep it."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
