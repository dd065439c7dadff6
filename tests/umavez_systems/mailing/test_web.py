"""The routes around a mailing: report, progress, pages of entries, decisions, mailbox."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re

import httpx
import pytest

from tests.umavez_systems.mailing.far import Far, mailed
from umavez_systems.mailing import live
from umavez_systems.mailing.live import MOST, MOST_EACH, Watchers
from umavez_systems.mailing.ports import Answer, Fate
from umavez_systems.problems import Problem
from umavez_systems.web import Carrier


def test_the_report_is_a_ledger_that_no_spreadsheet_runs(client: httpx.Client, beside: Carrier) -> None:
    mailing = mailed(client, beside, "email\na@b.com\n=cmd|' /C calc'!A0\n+1@b.com\n")
    answer = client.get(f"/mailings/{mailing}/relatorio.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["email"], row["status"], row["tentativas"]) for row in rows] == [
        ("a@b.com", "SENT", "1"),
        ("'=cmd|' /c calc'!a0", "INVALID", "0"),
        ("'+1@b.com", "SENT", "1"),
    ]
    assert rows[0]["external_id"]


def test_progress_comes_as_events_and_ends(client: httpx.Client, beside: Carrier) -> None:
    mailing = mailed(client, beside, "email\na@b.com\nb@b.com\n")
    with client.stream("GET", f"/mailings/{mailing}/progresso") as answer:
        text = answer.read().decode()
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = json.loads(re.findall(r"event: progresso\ndata: (.*)", text)[-1])
    assert (told["status"], told["entradas"]["SENT"]) == ("SENT", 2)
    assert "event: fim" in text


def test_a_stream_of_what_never_ends_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)

    async def look() -> dict[str, str]:
        return {"status": "PAUSED"}

    async def gone() -> bool:
        return False

    async def followed() -> list[str]:
        return [event async for event in live.Watchers().follow("ana", look, gone)]

    assert asyncio.run(followed()) == ['event: progresso\ndata: {"status": "PAUSED"}\n\n']


def test_entries_are_paged_in_the_order_of_the_lines(client: httpx.Client, beside: Carrier) -> None:
    people = [f"u{number}@b.com" for number in (5, 3, 4, 1, 2)]
    mailing = mailed(client, beside, "email\n" + "\n".join(people) + "\nruim\n")
    first = client.get(f"/mailings/{mailing}/entries", params={"limite": 4}).json()
    rest = client.get(f"/mailings/{mailing}/entries", params={"limite": 4, "depois": first["proximo"]}).json()
    assert [one["email"] for one in first["itens"] + rest["itens"]] == [*people, "ruim"]
    every = client.get(f"/mailings/{mailing}/entries?status=&depois=&limite=6").json()["itens"]
    assert len(every) == 6
    bad = client.get(f"/mailings/{mailing}/entries", params={"status": "INVALID"}).json()["itens"]
    assert [(one["email"], one["linha"]) for one in bad] == [("ruim", 7)]
    assert client.get(f"/mailings/{mailing}/entries", params={"status": "NADA"}).status_code == 422
    assert client.get(f"/mailings/{mailing}/entries", params={"depois": "x"}).status_code == 422


def test_people_resolve_over_http(client: httpx.Client, beside: Carrier) -> None:
    mailing = mailed(client, beside, "email\na@b.com\n", Far(a=Answer(Fate.UNKNOWN, "?")))
    entry = client.get(f"/mailings/{mailing}/entries", params={"status": "UNKNOWN"}).json()["itens"][0]["id"]
    where = f"/mailings/{mailing}/entries/{entry}/resolver"
    assert client.post(where, json={"resultado": "enviado"}).status_code == 422
    # Who it was is kept behind the principal's name, which may have sixty characters, in a column of 255.
    long = {"resultado": "enviado", "por": "x" * 194, "motivo": "vi"}
    assert client.post(where, json=long).status_code == 422
    done = client.post(where, json={"resultado": "enviado", "por": "ana", "motivo": "vi"})
    assert (done.status_code, done.json()["status"]) == (200, "SENT")
    assert client.post(where, json={"resultado": "enviado", "por": "ana", "motivo": "vi"}).status_code == 409
    shown = client.get(f"/mailings/{mailing}").json()
    assert (shown["status"], shown["conservacao"]["confere"]) == ("SENT", True)
    assert [one["created_at"][-1] + one["created_at"][10] for one in shown["historico"]] == ["ZT"]
    assert client.post(f"/mailings/{mailing}/pausar").status_code == 409
    assert (
        client.post(
            f"/mailings/{mailing}/reenviar", content=b"{", headers={"Content-Type": "application/json"}
        ).status_code
        == 400
    )


def test_a_mail_in_the_mailbox_is_shut_in(client: httpx.Client, beside: Carrier) -> None:
    mailed(client, beside, "email\na@b.com\n", html="<script>alert(1)</script><p>oi", assunto="Olá")
    letter = client.get("/mailings/caixa").json()["itens"][0]
    assert (letter["assunto"], letter["destinatario"]) == ("Olá", "a@b.com")
    page = client.get(f"/mailings/caixa/{letter['id']}/html")
    assert "sandbox" in page.headers["content-security-policy"]
    assert client.get("/mailings/caixa/999999").status_code == 404


@pytest.mark.parametrize(
    ("path", "kind"), [("", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")]
)
def test_the_page_and_its_parts_are_served(client: httpx.Client, path: str, kind: str) -> None:
    answer = client.get(f"/mailing{path}")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.content


def test_nobody_who_follows_a_lot_shuts_the_others_out() -> None:
    async def shown() -> dict[str, str]:
        return {"status": "PROCESSING"}

    async def here() -> bool:
        return False

    async def crowd() -> tuple[int, int]:
        watchers = Watchers()
        streams = [watchers.follow("ana", shown, here) for _ in range(MOST_EACH)]
        for stream in streams:
            await anext(stream)
        watchers.refuse_crowd("bob")
        with pytest.raises(Problem) as mine:
            watchers.refuse_crowd("ana")
        others = [watchers.follow(f"p{number}", shown, here) for number in range(MOST - MOST_EACH)]
        for stream in others:
            await anext(stream)
        with pytest.raises(Problem) as all_together:
            watchers.refuse_crowd("bob")
        for stream in (*streams, *others):
            await stream.aclose()
        watchers.refuse_crowd("ana")
        return mine.value.status, all_together.value.status

    assert asyncio.run(crowd()) == (429, 503)
