"""SMTP: how far an exchange came decides what its end means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiosmtplib import SMTPRecipientRefused

from umavez_systems.mailing.ports import Answer, Mail
from umavez_systems.mailing.providers.smtp import SmtpProvider, answer_of
from umavez_systems.mailing.providers.smtpd import Sink


def test_smtp_phases_decide(tmp_path: Any) -> None:
    """S2.12."""
    taken: list[str] = []

    def take(_: str, recipient: str, content: bytes) -> str | None:
        taken.append(recipient)
        return {"drop": None, "full": "452 4.2.2 full", "spam": "554 5.7.1 spam"}.get(
            recipient.partition("@")[0], "250 2.0.0 Ok: queued as ABC123"
        )

    def judge(recipient: str) -> str:
        return {"gone": "550 5.1.1 no such user", "grey": "450 4.7.1 later", "busy": "421 4.7.0 slow down"}.get(
            recipient.partition("@")[0], "250 ok"
        )

    async def nothing() -> None:
        """Nothing to prove."""

    async def exchanged() -> dict[str, Answer]:
        sink = Sink(take, judge)
        port = await sink.listen("127.0.0.1", 0)
        provider = SmtpProvider(f"smtp://127.0.0.1:{port}?starttls=never", 2)
        names = ["ok", "drop", "full", "spam", "gone", "grey", "busy", "ok2", "ok3"]
        mails = [Mail(n, n, f"<{n}@x>", "a@x.com", f"{n}@b.com", "s", b"Subject: s\r\n\r\n.oi\r\n") for n in names]
        answers = dict(zip(names, await provider.send(mails, nothing), strict=True))
        await provider.close()
        await sink.close()
        closed = await provider.send([mails[0]], nothing)
        return {**answers, "closed": closed[0]}

    found = asyncio.run(exchanged())
    fates = {name: answer.fate.value for name, answer in found.items()}
    assert fates == {
        **dict.fromkeys(("ok", "ok2", "ok3"), "accepted"),
        "drop": "unknown",
        "full": "later",
        "spam": "refused",
        "gone": "refused",
        "grey": "later",
        "busy": "later",
        "closed": "unreached",
    }
    assert (found["ok"].external_id, found["gone"].hard, found["spam"].hard, found["busy"].slow) == (
        "ABC123",
        True,
        False,
        True,
    )
    assert "gone@b.com" not in taken


async def nothing() -> None:
    """Nothing to prove."""


def _mail(name: str) -> Mail:
    return Mail(name, name, f"<{name}@x>", "a@x.com", f"{name}@b.com", "s", b"Subject: s\r\n\r\noi\r\n")


class _Relay(asyncio.Protocol):
    """Says what it was told to say at each verb, and hangs up where it was told nothing."""

    def __init__(self, greeting: str, said: dict[str, list[str]]) -> None:
        self._greeting, self._said, self._reading = greeting, said, False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._greeting.encode() + b"\r\n")

    def data_received(self, data: bytes) -> None:
        for line in data.decode().splitlines():
            if self._reading and line != ".":
                continue
            verb = "END" if self._reading else line[:4].upper()
            self._reading = verb == "DATA"
            told = self._said.get(verb, [])
            if not told:
                self._transport.abort()
                return
            self._transport.write((told.pop(0) if len(told) > 1 else told[0]).encode() + b"\r\n")


def _answers(greeting: str, said: dict[str, list[str]], *names: str) -> list[Answer]:
    """The answers to mails that are sent one after the other."""

    async def exchanged() -> list[Answer]:
        server = await asyncio.get_running_loop().create_server(lambda: _Relay(greeting, said), "127.0.0.1", 0)
        provider = SmtpProvider(f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}?starttls=never", 1)
        answers = [(await provider.send([_mail(name)], nothing))[0] for name in names]
        await provider.close()
        server.close()
        return answers

    return asyncio.run(exchanged())


def test_a_relay_that_is_too_busy_to_greet_slows_everybody_down() -> None:
    (busy,) = _answers("421 4.3.2 too many connections", {}, "a")
    assert (busy.fate, busy.slow) == ("unreached", True)


def test_a_connection_that_fell_idle_costs_nothing_and_a_mail_that_hangs_the_relay_up_costs_an_attempt() -> None:
    said = {verb: ["250 ok"] for verb in ("EHLO", "RCPT", "END", "QUIT")} | {"DATA": ["354 go on"]}
    said["MAIL"] = ["250 ok", "421 4.4.2 idle too long", "250 ok"]
    first, second = _answers("220 hi", said, "a", "b")
    assert (first.fate, second.fate, second.slow) == ("accepted", "accepted", False)
    (hung,) = _answers("220 hi", {"EHLO": ["250 ok"], "MAIL": ["250 ok"]}, "a")
    assert hung.fate == "later"


@pytest.mark.parametrize(
    ("text", "hard"),
    [
        ("5.1.1 no such user", True),
        ("5.1.8 bad sender's domain", False),
        ("5.7.1 relaying denied", False),
        ("5.2.2 mailbox full", False),
        ("Mailbox unavailable", True),
        ("<a@b.com>: User unknown in virtual mailbox table", True),
        ("relay not permitted", False),
        ("blocked: spam", False),
    ],
)
def test_only_an_address_that_is_gone_is_given_up(text: str, hard: bool) -> None:
    assert answer_of(SMTPRecipientRefused(550, text, "a@b.com"), recipient=True).hard is hard
