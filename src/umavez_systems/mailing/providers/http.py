"""An HTTP provider with idempotency keys, by Resend's public contract: POST /emails, GET /emails/{id}.

It remembers a key for 24 hours: within them the same request again is answered with the first one's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from umavez import BoundedJson
from umavez.failures import Phase, Trouble, of_status, trouble_of
from umavez_systems.mailing.domain import Capability
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof
from umavez_systems.mailing.providers.returns import TAG

WINDOW = 24 * 3600.0
TIMEOUT = 30.0
LARGEST = 100_000
_BOUNDED = BoundedJson(size=LARGEST)


class HttpProvider:
    """Hands mails over one by one, as many at once as there are connections."""

    def __init__(self, url: str, token: str, connections: int = 10) -> None:
        # By host: a key that one service remembers says nothing to another.
        name = f"http:{urlsplit(url).netloc.rpartition('@')[2]}"[:40]
        self.capability = Capability(name, keyed=True, window=WINDOW, batch=1, tells=True)
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            # Nothing packed: an answer is bounded by what it is when read.
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            timeout=TIMEOUT,
            limits=httpx.Limits(max_connections=connections),
        )
        self._hands = asyncio.Semaphore(connections)

    async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
        """See Provider.send."""
        tasks = [asyncio.create_task(self._one(mail, proof)) for mail in mails]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _one(self, mail: Mail, proof: Proof) -> Answer:
        body: dict[str, Any] = {"from": mail.sender, "to": [mail.recipient], "subject": mail.subject}
        body |= {name: text for name, text in (("text", mail.text), ("html", mail.html)) if text is not None}
        # Comes back with every report about this mail.
        body["tags"] = [{"name": TAG, "value": mail.entry}]
        body["headers"] = {**mail.headers, "Message-ID": mail.message_id}
        async with self._hands:
            await proof()
            try:
                reply = await self._asked("POST", "/emails", json=body, headers={"Idempotency-Key": mail.key})
            except (httpx.HTTPError, TimeoutError) as error:
                return _untold(trouble_of(error), f"{type(error).__name__}: {error}")
        return _answer(reply)

    async def _asked(self, method: str, path: str, **content: Any) -> Reply:
        """The reply, as much of it as is ever looked at, in TIMEOUT seconds: httpx gives each read as long."""
        parts: list[bytes] = []
        async with asyncio.timeout(TIMEOUT), self._client.stream(method, path, **content) as response:
            size = 0
            async for part in response.aiter_raw():
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    break
        return Reply(response.status_code, response.headers, b"".join(parts))

    async def ask(self, message_id: str, external_id: str | None) -> bool | None:
        """Whether the provider knows the mail; without its own id it cannot tell."""
        if external_id is None:
            return None
        try:
            reply = await self._asked("GET", f"/emails/{external_id}")
        except (httpx.HTTPError, TimeoutError):
            return None
        return True if reply.status == 200 else None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class Reply(NamedTuple):
    """What the service answered; a body above LARGEST is not read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def _answer(reply: Reply) -> Answer:
    text = f"{reply.status} {reply.body[:1600].decode(errors='replace')[:400]}"
    if 200 <= reply.status < 300:
        number = _field(reply, "id")
        return Answer(Fate.ACCEPTED, text, number) if number else Answer(Fate.UNKNOWN, f"Sem id na resposta: {text}")
    if reply.status == 409:
        # The same key is being handled at this moment, or was used with another body: it may have been sent.
        return Answer(Fate.UNKNOWN, text)
    if reply.status in (401, 403):
        return Answer(Fate.UNREACHED, f"O provedor não aceita a chave de acesso: {reply.status}")
    return _untold(of_status(reply.status, reply.headers), text)


def _untold(trouble: Trouble, text: str) -> Answer:
    if trouble.phase is Phase.MAYBE_SENT:
        return Answer(Fate.UNKNOWN, text)
    if trouble.phase is Phase.REFUSED:
        return Answer(Fate.REFUSED, text)
    if trouble.status is None:
        return Answer(Fate.UNREACHED, text)
    return Answer(Fate.LATER, text, slow=True, rest=trouble.retry_after or 0.0)


def _field(reply: Reply, name: str) -> str | None:
    try:
        found = _BOUNDED.parse(reply.body)
    except ValueError:
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value[:255] if isinstance(value, str) else None
