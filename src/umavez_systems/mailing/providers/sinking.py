"""Sinking: SMTP servers for development that keep mails in the mailbox, or count them in a file."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from email import message_from_bytes, policy
from pathlib import Path

from umavez.messaging import stop_on_signals
from umavez_systems.database import Database
from umavez_systems.mailing.providers.sink import INSERT
from umavez_systems.mailing.providers.smtpd import Sink

_MESSAGE_ID = re.compile(rb"^message-id:\s*(\S{1,255})", re.IGNORECASE | re.MULTILINE)
Say = Callable[[str], None]


async def serve_ledger(port: int, ledger: Path, say: Say) -> None:
    """Count mails: one line with Message-ID and recipient for each, written before it is confirmed."""
    handle = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def take(_: str, recipient: str, content: bytes) -> str | None:
        found = _MESSAGE_ID.search(content)
        os.write(handle, b"%s %s\n" % (found[1] if found else b"-", recipient.encode()))
        return "250 2.0.0 OK"

    await _served(Sink(take), port, say)
    os.close(handle)


async def serve_mailbox(port: int, database: Database, say: Say) -> None:
    """Keep mails in the mailbox of /mailing."""

    def take(sender: str, recipient: str, content: bytes) -> str | None:
        message = message_from_bytes(content, policy=policy.default)
        name = str(message.get("message-id", ""))[:255]
        with database.transaction() as connection:
            connection.rows(INSERT, ("local", name, sender, recipient, str(message.get("subject", "")), content))
        return "250 2.0.0 OK"

    await _served(Sink(take), port, say)


async def _served(sink: Sink, port: int, say: Say) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    found = await sink.listen("127.0.0.1", port)
    say(f"smtp://127.0.0.1:{found} takes every mail; stop with Ctrl-C")
    await stop.wait()
    await sink.close()
