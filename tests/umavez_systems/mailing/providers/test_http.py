"""The HTTP provider: keys, and what every end of a call means."""

from __future__ import annotations

import asyncio
import json

import httpx

from umavez_systems.mailing.ports import Mail
from umavez_systems.mailing.providers.http import HttpProvider


def _mail(name: str) -> Mail:
    return Mail(name, f"k-{name}", f"<{name}@x>", "a@x.com", f"{name}@b.com", "s", b"", "texto", None, {"X": "y"})


def _said(status: int, number: str) -> httpx.Response:
    """An answer that is still to be read."""
    return httpx.Response(status, stream=httpx.ByteStream(json.dumps({"id": number}).encode()))


async def _proved() -> None:
    """Nothing to prove."""


def test_an_http_provider_gets_its_key_and_every_end_has_a_meaning() -> None:
    """Against a stand-in with Resend's public contract: the real one is not at hand."""
    made: dict[str, str] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return _said(200 if request.url.path.endswith("id-ok") else 404, "id-ok")
        body = json.loads(request.content)
        name = body["to"][0].partition("@")[0]
        assert body["tags"] == [{"name": "entrada", "value": name}]
        made.setdefault(request.headers["idempotency-key"], f"id-{name}")
        fates = {"slow": 429, "bad": 422, "busy": 409, "key": 403, "down": 503}
        if name == "cut":
            raise httpx.ReadTimeout("cut")
        if name == "away":
            raise httpx.ConnectError("away")
        return _said(fates.get(name, 200), made[request.headers["idempotency-key"]])

    async def exchanged() -> dict[str, str]:
        provider = HttpProvider("http://stand.in", "re_123", 4)
        provider._client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://stand.in")
        names = ["ok", "slow", "bad", "busy", "key", "down", "cut", "away"]
        answers = await provider.send([_mail(name) for name in names], _proved)
        assert answers[0].external_id == "id-ok"
        assert (await provider.send([_mail("ok")], _proved))[0].external_id == "id-ok"
        assert [await provider.ask("<x>", name) for name in ("id-ok", "id-no", None)] == [True, None, None]
        await provider.close()
        return {name: one.fate.value for name, one in zip(names, answers, strict=True)}

    assert asyncio.run(exchanged()) == {
        "ok": "accepted",
        "slow": "later",
        "bad": "refused",
        "busy": "unknown",
        "key": "unreached",
        "down": "unknown",
        "cut": "unknown",
        "away": "unreached",
    }
