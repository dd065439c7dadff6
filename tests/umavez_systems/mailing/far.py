"""What tests of mailings do again and again: upload, ingest, hold, send to a far side that answers as told."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx

from tests.umavez_systems.mailing.conftest import query, send
from umavez.messaging import Message
from umavez_systems.mailing.domain import TOPIC, Capability
from umavez_systems.mailing.ingest.ingesting import ingest
from umavez_systems.mailing.ingest.uploads import spooled
from umavez_systems.mailing.operations import Upload
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof
from umavez_systems.mailing.providers.sink import SinkProvider
from umavez_systems.mailing.sending.holding import Holding
from umavez_systems.mailing.sending.worker import Worker
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def upload(carrier: Carrier, content: bytes, name: str = "a.csv", **fields: str) -> str:
    """A mailing of this list."""
    with spooled(carrier.settings.spool) as spool:
        spool.write(content)
        spool.close()
        row, _ = carrier.mailing.cases.upload("local", Upload(name, fields), spool)
    return str(row["id"])


def held(carrier: Carrier, mailing: str) -> Holding:
    """The mailing, held by this test."""
    holding = carrier.mailing.holdings.acquire(mailing)
    assert holding is not None
    return holding


def ingested(carrier: Carrier, content: bytes, size: int = 12 << 20, **fields: str) -> tuple[str, Holding]:
    """A mailing whose list was read."""
    mailing = upload(carrier, content, **fields)
    holding = held(carrier, mailing)
    assert ingest(holding, carrier.mailing.cases.storage, time.monotonic() + 60, lambda _: None, size=size)
    return mailing, holding


OLD = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-60 seconds')",
    "postgresql": "now() - interval '60 seconds'",
}


def age(settings: Settings) -> None:
    """Let every lock be a minute old."""
    query(settings, f"UPDATE mailings SET last_attempt = {OLD[settings.database.partition(':')[0]]}")


def work(carrier: Carrier, mailing: str, provider: Any) -> None:
    """Handle one message about a mailing."""

    async def handled() -> None:
        worker = Worker(carrier.mailing, provider, asyncio.to_thread, asyncio.Event())
        await worker.handle(Message(TOPIC, json.dumps({"mailingId": mailing})))

    asyncio.run(handled())


def states(settings: Settings) -> dict[str, int]:
    """How many entries are in which state."""
    return {
        name: int(many) for name, many in query(settings, "SELECT status, count(*) FROM mailing_entries GROUP BY 1")
    }


def status_of(carrier: Carrier, mailing: str) -> str:
    return str(carrier.mailing.cases.mailing("local", mailing)["status"])


class Far:
    """A far side that counts, answers as told, and may crash its caller."""

    def __init__(self, capability: Capability | None = None, **fates: Answer | BaseException) -> None:
        self.capability = capability or Capability("smtp")
        self.fates = fates
        self.mails: list[Mail] = []

    async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
        await proof()
        answers = []
        for mail in mails:
            self.mails.append(mail)
            fate = self.fates.get(mail.recipient.partition("@")[0], Answer(Fate.ACCEPTED, "250 ok", "id"))
            if isinstance(fate, BaseException):
                raise fate
            answers.append(fate)
        return answers

    async def ask(self, message_id: str, external_id: str | None) -> bool | None:
        return [mail.message_id for mail in self.mails].count(message_id) > 0

    async def close(self) -> None:
        """Nothing is open."""

    def times(self) -> Counter[str]:
        """How often each address was written to."""
        return Counter(mail.recipient for mail in self.mails)


def mailed(client: httpx.Client, beside: Carrier, content: str, provider: Any = None, **fields: str) -> str:
    """A mailing that was sent."""
    mailing: str = send(client, "a.csv", content, **fields).json()["mailingId"]
    work(beside, mailing, provider or SinkProvider(beside.database))
    return mailing
