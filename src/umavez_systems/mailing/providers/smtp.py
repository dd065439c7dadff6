"""SMTP: a pool of connections that are used again. How far an exchange came decides what its end means.

Before the data are sent nothing has happened; after them only an answer tells. SMTP has no key and cannot be asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from email.utils import parseaddr
from functools import lru_cache
from urllib.parse import parse_qs, unquote, urlsplit

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from umavez_systems.mailing.domain import Capability, is_hard
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof

SLOW = frozenset((421, 454))
"""The server itself cannot go on. 450 to 452 speak of one recipient, as greylists do: nobody else has to rest."""
TIMEOUT = 60.0
_QUEUED = re.compile(r"queued as ([\w.-]{4,80})", re.IGNORECASE)
_TROUBLE = (SMTPException, OSError, TimeoutError)


class SmtpProvider:
    """Hands mails to a relay: smtp://user:password@host:587?starttls=required|auto|never, or smtps://host:465."""

    capability = Capability("smtp")

    def __init__(self, url: str, connections: int = 10, timeout: float = TIMEOUT) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # its text repeats what stands there, which may be a part of the password
            parts, port = urlsplit(""), None
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise ValueError("UMAVEZ_SMTP_URL must be smtp://host:port or smtps://host:port")
        wish = parse_qs(parts.query).get("starttls", ["auto"])[0]
        if wish not in ("auto", "required", "never"):
            raise ValueError("starttls in UMAVEZ_SMTP_URL must be auto, required or never")
        secure = parts.scheme == "smtps"
        self._options = {
            "hostname": parts.hostname,
            "port": port or (465 if secure else 25),
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "use_tls": secure,
            "start_tls": False if secure or wish == "never" else (True if wish == "required" else None),
            "timeout": timeout,
        }
        self._connections = connections
        self._hands = asyncio.Semaphore(connections)
        self._idle: list[SMTP] = []

    async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
        """See Provider.send. As many at once as there are connections."""
        answers: dict[int, Answer] = {}
        left = iter(enumerate(mails))

        async def hand() -> None:
            for place, mail in left:
                answers[place] = await self._one(mail, proof)

        hands = [asyncio.create_task(hand()) for _ in range(min(self._connections, len(mails)))]
        try:
            await asyncio.gather(*hands)
        except BaseException:
            for one in hands:
                one.cancel()
            await asyncio.gather(*hands, return_exceptions=True)
            raise
        return [answers[place] for place in range(len(mails))]

    async def _one(self, mail: Mail, proof: Proof) -> Answer:
        async with self._hands:
            while self._idle:
                answer = await self._exchanged(self._idle.pop(), mail, proof, idle=True)
                if answer.fate is not Fate.UNREACHED:
                    return answer
                # The relay had closed an idle connection: nothing was sent, the next one is tried.
            try:
                client = await self._connected()
            except _TROUBLE as error:
                return Answer(Fate.UNREACHED, f"O servidor SMTP não atende: {_said(error)}", slow=_code(error) in SLOW)
            return await self._exchanged(client, mail, proof, idle=False)

    async def _connected(self) -> SMTP:
        client = SMTP(**self._options)  # type: ignore[arg-type]  # made of checked parts of a URL
        await client.connect()
        return client

    async def _exchanged(self, client: SMTP, mail: Mail, proof: Proof, *, idle: bool) -> Answer:
        """One mail over one connection, which goes back to the pool if it may be used again."""
        try:
            refused = await self._announced(client, mail, idle=idle)
            if refused is not None:
                return await self._kept(client, refused)
        except _TROUBLE as error:
            client.close()
            # On a new connection it may be this very mail at which the relay hangs up: that is an attempt.
            fate = Fate.UNREACHED if idle else Fate.LATER
            return Answer(fate, f"A conexão SMTP caiu antes do envio: {_said(error)}")
        try:
            await proof()
        except BaseException:
            client.close()
            raise
        return await self._handed_over(client, mail)

    async def _announced(self, client: SMTP, mail: Mail, *, idle: bool) -> Answer | None:
        """Sender and recipient; an answer where one is refused."""
        utf8 = not mail.recipient.isascii()
        if utf8 and not client.supports_extension("smtputf8"):
            return Answer(Fate.REFUSED, "O servidor SMTP não aceita este endereço (SMTPUTF8).")
        coding = {"options": ["SMTPUTF8"], "encoding": "utf-8"} if utf8 else {}
        try:
            await client.mail(_envelope(mail.sender), **coding)  # type: ignore[arg-type]  # its own options
            await client.rcpt(mail.recipient, encoding="utf-8" if utf8 else "ascii")
        except SMTPSenderRefused as error:
            if idle and error.code == 421:
                return Answer(Fate.UNREACHED, _said(error))  # how a relay says that it closed an idle connection
            later = Answer(Fate.LATER, _said(error), slow=error.code in SLOW)
            # A sender that is not taken is nobody's but ours: every other mail would meet the same.
            return later if error.code < 500 else Answer(Fate.UNREACHED, f"Remetente recusado: {_said(error)}")
        except SMTPRecipientRefused as error:
            return answer_of(error, recipient=True)
        return None

    async def _handed_over(self, client: SMTP, mail: Mail) -> Answer:
        try:
            response = await client.data(mail.content)
        except SMTPDataError as error:
            return await self._kept(client, answer_of(error))
        except _TROUBLE as error:
            client.close()
            return Answer(Fate.UNKNOWN, f"Os dados foram enviados e não houve resposta: {_said(error)}")
        except BaseException:
            client.close()
            raise
        self._idle.append(client)
        found = _QUEUED.search(response.message)
        text = f"{response.code} {response.message}"[:500]
        return Answer(Fate.ACCEPTED, text, found[1] if found else mail.message_id)

    async def _kept(self, client: SMTP, answer: Answer) -> Answer:
        """Begin anew on the same connection after a refusal; one that does not is dropped."""
        if answer.fate is Fate.UNREACHED:
            client.close()
            return answer
        try:
            await client.rset()
            self._idle.append(client)
        except _TROUBLE:
            client.close()
        return answer

    async def ask(self, message_id: str, external_id: str | None) -> bool | None:
        """SMTP cannot be asked."""
        return None

    async def close(self) -> None:
        """Say goodbye on idle connections."""
        idle, self._idle = self._idle, []
        for client in idle:
            try:
                async with asyncio.timeout(2):
                    await client.quit()
            except _TROUBLE:
                client.close()


def answer_of(error: SMTPResponseException, *, recipient: bool = False) -> Answer:
    """What a refusal means: 4xx is "later", 5xx is final, and some say that the address does not exist."""
    if error.code < 500:
        return Answer(Fate.LATER, _said(error), slow=error.code in SLOW)
    return Answer(Fate.REFUSED, _said(error), hard=is_hard(error.message, spoken_of=recipient))


@lru_cache(maxsize=64)
def _envelope(sender: str) -> str:
    return parseaddr(sender)[1]


def _code(error: BaseException) -> int | None:
    return error.code if isinstance(error, SMTPResponseException) else None


def _said(error: BaseException) -> str:
    if isinstance(error, SMTPAuthenticationError):
        return f"{error.code}: o servidor não aceitou usuário e senha"
    if isinstance(error, SMTPResponseException):
        return f"{error.code} {error.message}"[:500]
    return f"{type(error).__name__}: {error}"[:500]
