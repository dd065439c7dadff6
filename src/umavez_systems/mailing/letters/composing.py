"""Composing: one person's mail as bytes, all of which follow from mailing and entry: every attempt is the same mail."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, formataddr, parseaddr
from functools import lru_cache
from typing import Any

from email_validator import EmailNotValidError, validate_email

from umavez_systems.mailing.domain import header_text, invalid
from umavez_systems.mailing.letters.headers import folded, is_plain, words
from umavez_systems.mailing.letters.templates import Letter, Unrenderable
from umavez_systems.mailing.ports import Mail

SENDER_LONGEST = 320
"""Characters, as it is kept and sent: letters beyond ASCII take several."""
_HERE = re.compile(r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@localhost")
"""A sender of a machine without a name of its own, as the setting's own default is."""


def sender_of(text: str) -> str:
    """A sender as it is written in the From header. Raises a 422 problem."""
    name, address = parseaddr(header_text(text, "O remetente", SENDER_LONGEST))
    if _HERE.fullmatch(address) is None:
        try:
            found = validate_email(address, check_deliverability=False, test_environment=True, allow_smtputf8=False)
        except EmailNotValidError as error:
            raise invalid(
                "O remetente não é um endereço válido; envie, por exemplo, Loja <loja@exemplo.com>."
            ) from error
        address = found.ascii_email or found.normalized
    sender = formataddr((name, address)) if is_plain(name) else f"{' '.join(words(name))} <{address}>"
    if len(sender) > SENDER_LONGEST:
        raise invalid("O nome do remetente é longo demais para um cabeçalho; encurte-o.")
    return sender


def message_id(entry: str, mailing: str, sender: str) -> str:
    """The Message-ID of an entry: a function of it and its mailing."""
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    return f"<{entry}.{mailing[:8]}@{domain}>"


@dataclass(frozen=True, slots=True)
class Composer:
    """Writes the mails of one mailing. `names` are the variables in the order in which entries keep their values."""

    mailing: str
    sender: str
    letter: Letter
    names: Sequence[str]
    link: str
    dkim: Any = None
    principal: str = "local"

    def compose(self, entry: Mapping[str, Any]) -> Mail:
        """The mail of an entry that has its message_id and data. Raises Unrenderable."""
        number = str(entry["id"])
        leave = f"{self.link}/descadastrar/{unsubscribe_token(number, entry['token'])}"
        values = values_of(self.names, entry["variaveis"]) | {"email": entry["email"], "descadastro": leave}
        subject, text, page = self.letter.rendered(values)
        headers = {"List-Unsubscribe": f"<{leave}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
        if any(mark in entry["email"] for mark in "\r\n\0"):
            raise Unrenderable("O endereço tem uma quebra de linha.")
        lines = [
            f"From: {self.sender}",
            f"To: {entry['email']}",
            _subject(subject),
            f"Date: {_date(entry['data'])}",
            f"Message-ID: {entry['message_id']}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "MIME-Version: 1.0",
        ]
        content = "\r\n".join(lines).encode() + b"\r\n" + _body(text, page, f"=_{number.replace('-', '')}")
        if self.dkim is not None:
            content = self.dkim(content, entry["data"] // 1000) + content
        return Mail(
            number,
            f"mailing-{number}",
            entry["message_id"],
            self.sender,
            entry["email"],
            subject,
            content,
            text,
            page,
            headers,
            self.principal,
        )


def values_of(names: Sequence[str], kept: str | None) -> dict[str, str]:
    """The values of an entry by name; a list that was kept without a value has it empty."""
    values = json.loads(kept) if kept else []
    return dict.fromkeys(names, "") | dict(zip(names, map(str, values), strict=False))


def unsubscribe_token(entry: str, token: str) -> str:
    """What stands in the link: the entry's id finds it, the token proves it."""
    return f"{entry.replace('-', '')}{token}"


@lru_cache(maxsize=64)
def _date(moment: int) -> str:
    return format_datetime(datetime.fromtimestamp(moment // 1000, UTC))


@lru_cache(maxsize=1024)
def _subject(text: str) -> str:
    return folded("Subject", text)


def _body(text: str | None, page: str | None, boundary: str) -> bytes:
    if page is None or text is None:
        return _part("plain" if page is None else "html", text if page is None else page) + b"\r\n"
    mark = f"--{boundary}".encode()
    head = f'Content-Type: multipart/alternative; boundary="{boundary}"\r\n'.encode()
    # The line break before a boundary is part of the boundary.
    parts = (head, mark + b"\r\n" + _part("plain", text), mark + b"\r\n" + _part("html", page), mark + b"--\r\n")
    return b"\r\n".join(parts)


def _part(kind: str, text: str | None) -> bytes:
    raw = (text or "").replace("\r\n", "\n").replace("\r", "\n").encode()
    # Line breaks stay line breaks, and everything else is ASCII in short lines: no relay has to touch it.
    coded = binascii.b2a_qp(raw, istext=True).replace(b"\n", b"\r\n")
    head = f"Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    return head.encode() + coded
