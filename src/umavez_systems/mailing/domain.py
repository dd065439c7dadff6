"""Mailings and their entries: states, what may follow what, and what is done about a doubt. Pure."""

from __future__ import annotations

import re
import secrets
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from umavez_systems.problems import Problem

TOPIC = "mailing.processar"
SUBSCRIBER = "mailing"
FILENAME_LONGEST = 255
ATTEMPTS = 10
"""Tries of one entry that the far side answers with "later", over about three hours; then it is FAILED."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
BUSY_SECONDS = 24 * 3600.0
"""For how long "slow down" costs no attempt: it is not the mail's fault."""


class Status(StrEnum):
    """The state of a mailing."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    PROCESSING = "PROCESSING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    SENT = "SENT"
    CANCELLED = "CANCELLED"


class Entry(StrEnum):
    """The state of one person's mail."""

    PENDING = "PENDING"
    SENDING = "SENDING"
    SENT = "SENT"
    FAILED = "FAILED"
    INVALID = "INVALID"
    SUPPRESSED = "SUPPRESSED"
    UNKNOWN = "UNKNOWN"


COUNTER = {
    Entry.PENDING: "pendentes",
    Entry.SENDING: "enviando",
    Entry.SENT: "enviados",
    Entry.FAILED: "falhas",
    Entry.INVALID: "invalidos",
    Entry.SUPPRESSED: "suprimidos",
    Entry.UNKNOWN: "desconhecidos",
}
"""The column of `mailings` that counts the entries of a state."""
LINE_COUNTERS = ("linhas", "aceitas", "duplicadas", "invalidas", "em_branco")
ENDED = frozenset((Status.SENT, Status.CANCELLED))
PAUSABLE = (Status.PENDING, Status.QUEUED, Status.FAILED)
RESUMABLE = (Status.PAUSED, Status.FAILED)


class Identity(StrEnum):
    """What makes two uploads the same mailing."""

    NOME = "nome"
    CONTEUDO = "conteudo"


class Reingest(StrEnum):
    """What an address that is there already means when a file is read again."""

    MANTER = "manter"
    REPOR = "repor"


class Doubt(StrEnum):
    """What is done about a mail of which nobody knows whether it was sent."""

    SEGURAR = "segurar"
    REENVIAR = "reenviar"
    PERGUNTAR = "perguntar"


class Plan(StrEnum):
    """What follows from a doubt."""

    HOLD = "hold"
    SEND = "send"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Capability:
    """What a provider can do, as data. `window`: seconds for which it remembers a key; `batch`: mails per call."""

    name: str
    keyed: bool = False
    window: float = 0.0
    batch: int = 1
    tells: bool = False


def plan_for(doubt: Doubt, provider: Capability, age: float, *, tried_by: str | None = None) -> Plan:
    """What to do with an unknown mail whose intent is `age` seconds old, and was handed to `tried_by`.

    A far side that remembers the key sends it once, whatever the policy; once it has forgotten, nothing is sent by
    itself again. Without keys the mailing's policy decides, and asking needs somebody who can answer. A provider knows
    nothing of what another was handed: neither its keys nor its answers help there.
    """
    if tried_by is not None and tried_by != provider.name:
        return Plan.SEND if doubt is Doubt.REENVIAR else Plan.HOLD
    if provider.keyed:
        return Plan.SEND if age < provider.window * 0.9 else Plan.HOLD
    if doubt is Doubt.REENVIAR:
        return Plan.SEND
    if doubt is Doubt.PERGUNTAR and provider.tells:
        return Plan.ASK
    return Plan.HOLD


def pause_after(attempts: int) -> float:
    """Seconds to wait after the `attempts`-th "later"."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(max(attempts - 1, 0), 20))


_ENHANCED = re.compile(r"\b([245]\.\d{1,3}\.\d{1,3})\b")
_GONE = frozenset(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1"))
_GONE_WORDS = re.compile(
    r"(user|mailbox|recipient|account|address)\b.{0,40}"
    r"\b(unknown|not found|does not exist|doesn't exist|disabled|unavailable)"
    r"|(no such|unknown|invalid) (user|mailbox|recipient|account|address)",
    re.IGNORECASE,
)


def is_hard(text: str, *, spoken_of: bool = True) -> bool:
    """Whether a final refusal says that the address is gone, so that it is never to be written to again.

    By the enhanced code (RFC 3463) where there is one; else by its words, if the recipient is `spoken_of` at all. What
    a relay says of the sender, of spam or of its own rules is no reason to give up an address.
    """
    found = _ENHANCED.search(text)
    return found[1] in _GONE if found else spoken_of and _GONE_WORDS.search(text) is not None


def leaks(row: Mapping[str, Any]) -> list[str]:
    """What does not add up in a mailing's counters; empty when everything is accounted for."""
    found = []
    parts = sum(row[name] for name in ("aceitas", "duplicadas", "invalidas", "em_branco"))
    if row["linhas"] != parts:
        found.append(f"{row['linhas']} linhas lidas, {parts} contadas")
    states = sum(row[name] for name in COUNTER.values())
    if row["entradas"] != states:
        found.append(f"{row['entradas']} entradas gravadas, {states} contadas por estado")
    return found


def finished(row: Mapping[str, Any]) -> bool:
    """Whether a mailing may be SENT: all of it was read, and no entry waits, is on its way, or is in doubt."""
    return bool(row["ingerido"]) and not any(row[name] for name in ("pendentes", "enviando", "desconhecidos"))


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def filename_of(text: str) -> str:
    """The name of an uploaded file, without folders. Raises a 422 problem for one that cannot be kept.

    Composed (NFC): some systems hand out `é` as two characters, others as one, and both are the same file.
    """
    name = unicodedata.normalize("NFC", re.split(r"[\\/]", text)[-1].strip())
    if not name or _CONTROL.search(name) or len(name) > FILENAME_LONGEST or not is_unicode(name):
        raise invalid(f"O nome do arquivo deve ter de 1 a {FILENAME_LONGEST} caracteres, sem caracteres de controle.")
    return name


def spellings(name: str) -> tuple[str, ...]:
    """A file's name as it is kept, and as it may have been kept when names were taken as they came."""
    return tuple(dict.fromkeys((name, unicodedata.normalize("NFD", name))))


def header_text(text: str, what: str, longest: int = 998) -> str:
    """Text that goes into a header. Raises a 422 problem: a line break there would be a header of somebody else's."""
    if _CONTROL.search(text):
        raise invalid(f"{what} não pode conter quebras de linha nem caracteres de controle.")
    if len(text) > longest or not is_unicode(text):
        raise invalid(f"{what} deve ter no máximo {longest} caracteres de Unicode válido.")
    return text


def is_unicode(text: str) -> bool:
    """Whether a text can be written down: halves of a pair, which JSON may hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def invalid(detail: str, **extra: Any) -> Problem:
    """The 422 of data that cannot be taken."""
    return Problem(422, "dados-invalidos", "Dados inválidos", detail, **extra)


def unknown(what: str, number: str) -> Problem:
    """The 404 of an unknown id, which is also what somebody else's is."""
    name = _NAMES.get(what, what)
    return Problem(404, f"{what}-inexistente", f"{name.capitalize()} inexistente", f"Não há {name} {number[:64]}.")


_NAMES = {"endereco": "endereço"}
"""What people are told, where the type of a problem, in ASCII, is written otherwise."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_id(text: str) -> bool:
    """Whether `text` may be the id of a mailing or an entry."""
    return _UUID.fullmatch(text) is not None


def id_head(after: str) -> str:
    """The beginning of ids that end in eight more hexadecimal digits: above `after`, whatever this clock says."""
    moment = max(time.time_ns() // 1_000_000, int(after[:8] + after[9:13], 16) + 1)
    head, random = f"{min(moment, 2**48 - 1):012x}", secrets.token_hex(5)
    return f"{head[:8]}-{head[8:]}-7{random[:3]}-8{random[3:6]}-{random[6:10]}"


def new_id() -> str:
    """One new id."""
    head, random = f"{time.time_ns() // 1_000_000:012x}", secrets.token_hex(10)
    return f"{head[:8]}-{head[8:]}-7{random[:3]}-8{random[3:6]}-{random[6:18]}"


def shown_moment(value: object) -> str | None:
    """An instant as answers show it, whichever database it came from."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = str(value).replace(" ", "T")
    return f"{text[:23]}Z" if "." in text else f"{text[:19]}.000Z"


_RUN = ("=", "+", "-", "@", "\t", "\r", "\n")


def shown_cell(value: object) -> str:
    """A cell of a CSV that spreadsheets show: a leading sign would make them compute what a stranger wrote."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in _RUN else text


def plain_cell(text: str) -> str:
    """The cell before `shown_cell`."""
    return text[1:] if text[:1] == "'" and text[1:2] in _RUN else text
