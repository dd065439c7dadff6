"""SMTP: how far an exchange came decides what its end means."""

from __future__ import annotations

import asyncio
from typing import Any

from umavez_systems.mailing.ports import Answer, Mail
from umavez_systems.mailing.providers.smtp import SmtpProvider
from umavez_systems.mailing.providers.smtpd import Sink


def test_smtp_phases_decide(tmp_path: Any) -> None:
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
