"""Suppression: links, lists and reports that keep an address from being written to."""

from __future__ import annotations

import base64
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.umavez_systems.mailing.conftest import query, send
from tests.umavez_systems.mailing.far import Far, mailed, work
from umavez_systems.mailing.ports import Answer, Fate
from umavez_systems.mailing.providers.bounces import bounce_of
from umavez_systems.mailing.providers.returns import entry_of, signed
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def test_unsubscribing_takes_one_click_and_a_get_asks_first(client: httpx.Client, beside: Carrier) -> None:
    mailed(client, beside, "email\na@b.com\n")
    letter = client.get("/mailings/caixa").json()["itens"][0]
    headers = dict(client.get(f"/mailings/caixa/{letter['id']}").json()["cabecalhos"])
    link = re.sub(r"^<https?://[^/]+|>$", "", headers["List-Unsubscribe"])
    assert "Descadastrar" in client.get(link).text
    assert query(beside.settings, "SELECT count(*) FROM mailing_suppressions") == [(0,)]
    for _ in range(2):
        assert client.post(link, data={"List-Unsubscribe": "One-Click"}).status_code == 200
    assert query(beside.settings, "SELECT email, motivo FROM mailing_suppressions") == [("a@b.com", "descadastro")]
    assert client.get(link[:-1] + ("0" if link[-1] != "0" else "1")).status_code == 404
    far = Far()
    other = send(client, "b.csv", "email\na@b.com\nc@b.com\n").json()["mailingId"]
    work(beside, other, far)
    assert far.times() == {"c@b.com": 1}
    assert client.get(f"/mailings/{other}").json()["entradas"]["SUPPRESSED"] == 1


def test_suppression_is_listed_added_and_removed(client: httpx.Client) -> None:
    assert client.post("/mailings/supressao", json={"emails": ["A@b.com", "c@d.com"]}).json() == {"novas": 2}
    assert client.post("/mailings/supressao", json={"emails": ["nada"]}).status_code == 422
    assert [one["email"] for one in client.get("/mailings/supressao").json()["itens"]] == ["a@b.com", "c@d.com"]
    assert client.delete("/mailings/supressao/A@B.com").status_code == 200
    gone = client.delete("/mailings/supressao/a@b.com")
    assert (gone.status_code, gone.json()["detail"]) == (404, "Não há endereço a@b.com.")


def test_an_address_with_a_slash_can_be_allowed_again(client: httpx.Client) -> None:
    assert client.post("/mailings/supressao", json={"emails": ["vendas/sul@b.com"]}).json() == {"novas": 1}
    assert client.delete("/mailings/supressao/vendas%2Fsul@b.com").json() == {"email": "vendas/sul@b.com"}
    assert client.get("/mailings/supressao").json()["itens"] == []


def test_an_address_is_suppressed_however_it_is_written(client: httpx.Client, beside: Carrier) -> None:
    assert client.post("/mailings/supressao", json={"emails": [" Ana@EXÄMPLE.com "]}).json() == {"novas": 1}
    assert client.post("/mailings/supressao", json={"emails": ["ana@xn--exmple-cua.com"]}).json() == {"novas": 0}
    far = Far()
    mailed(client, beside, "email\nana@exämple.com\nb@b.com\n", far)
    assert far.times() == {"b@b.com": 1}
    assert client.delete("/mailings/supressao/ana@exämple.com").status_code == 200


MAIL = {"Content-Type": "message/rfc822"}


DSN = """From: mailer@x.com\r\nSubject: failure\r\nMIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary=b

--b
Content-Type: text/plain

sorry
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; x.com

Final-Recipient: rfc822; a@b.com
Action: {action}
Status: {status}
Diagnostic-Code: smtp; 550 5.1.1 no such user

--b
Content-Type: text/rfc822-headers

Message-ID: {message_id}

--b--
"""


def test_bounces_and_complaints_come_back(client: httpx.Client, beside: Carrier) -> None:
    mailing = mailed(client, beside, "email\na@b.com\nb@b.com\nc@b.com\n", Far(c=Answer(Fate.UNKNOWN, "?")))
    rows = client.get(f"/mailings/{mailing}/entries").json()["itens"]
    names = {row["email"]: row["messageId"] for row in rows}
    dsn = DSN.replace("\r\n", "\n").replace("\n", "\r\n")
    bounce = dsn.format(action="failed", status="5.1.1", message_id=names["a@b.com"])
    assert client.post("/mailings/retornos/dsn", content=bounce, headers=MAIL).status_code == 200
    late = dsn.format(action="delayed", status="4.4.1", message_id=names["b@b.com"])
    assert client.post("/mailings/retornos/dsn", content=late, headers=MAIL).status_code == 422
    assert client.get(f"/mailings/{mailing}").json()["status"] == "PAUSED"
    for body in (
        {"tipo": "email.delivered", "messageId": names["c@b.com"]},
        {"tipo": "complained", "messageId": names["b@b.com"]},
    ):
        assert client.post("/mailings/retornos", json=body).status_code == 200
    for unknown in ({"messageId": "<x@y>"}, {"entrada": "nada"}, {"entrada": mailing}):
        assert client.post("/mailings/retornos", json={"tipo": "bounced", **unknown}).status_code == 404
    shown = client.get(f"/mailings/{mailing}").json()
    assert (shown["status"], shown["motivo"]) == ("SENT", None)  # the last doubt was answered
    assert (shown["entradas"]["FAILED"], shown["entradas"]["SENT"], shown["conservacao"]["confere"]) == (1, 2, True)
    assert query(beside.settings, "SELECT email, motivo FROM mailing_suppressions ORDER BY 1") == [
        ("a@b.com", "bounce"),
        ("b@b.com", "reclamacao"),
    ]
    assert bounce_of(b"Subject: oi\r\n\r\nnada") is None
    full = dsn.format(action="failed", status="5.2.2", message_id=names["b@b.com"])
    soft = bounce_of(full.replace("550 5.1.1 no such user", "552 5.2.2 mailbox full").encode())
    assert soft is not None
    assert not soft.hard
    assert entry_of("<nada>") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\xff" * 1000,
        b"Content-Type: multipart/report; boundary=\xff\r\n\r\n--\xff",
        b"".join(b"Content-Type: multipart/report; boundary=b%d\n\n--b%d\n" % (one, one) for one in range(3000)),
        b"Content-Type: multipart/report; boundary=b\n\n" + b"--b\n" * 100_000,
        b"Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\n: x\n\n--b--",
    ],
    ids=["empty", "bytes", "boundary", "deep", "many", "broken"],
)
def test_a_bounce_that_is_none_is_refused_clearly(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/mailings/retornos/dsn", content=body, headers=MAIL)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_the_list_is_exported_as_a_csv_that_no_spreadsheet_runs(client: httpx.Client) -> None:
    client.post("/mailings/supressao", json={"emails": ["=a@b.com", "c@b.com"], "motivo": "reclamacao"})
    answer = client.get("/mailings/supressao.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="supressao.csv"'
    rows = [line.split(",")[:2] for line in answer.text.splitlines()]
    assert rows == [["email", "motivo"], ["'=a@b.com", "reclamacao"], ["c@b.com", "reclamacao"]]


@pytest.mark.parametrize("token", ["x", "0" * 64, "0" * 8_000, "..%2f..%2fetc", "%00", "a" * 32 + "%0d%0a" + "b" * 32])
def test_a_link_that_nobody_sent_is_not_known(client: httpx.Client, token: str) -> None:
    for method in ("GET", "POST"):
        assert client.request(method, f"/descadastrar/{token}").status_code in (400, 404)


SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


def signature(body: bytes, moment: int, secret: str = SECRET) -> dict[str, str]:
    """The headers with which a provider signs a report."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"msg_1.{moment}.".encode() + body, "sha256")
    given = f"v1,{base64.b64encode(b'another').decode()} v1,{base64.b64encode(digest).decode()}"
    return {"svix-id": "msg_1", "svix-timestamp": str(moment), "svix-signature": given}


def test_only_what_the_provider_signed_a_moment_ago_is_its_report() -> None:
    body, now = b'{"type": "email.bounced"}', 1_800_000_000
    assert signed(SECRET, signature(body, now), body, now + 200)
    assert not signed(SECRET, signature(body, now), body + b" ", now)
    assert not signed(SECRET, signature(body, now), body, now + 301)
    assert not signed(SECRET, signature(body, now, "whsec_" + base64.b64encode(b"x").decode()), body, now)
    assert not signed("", signature(body, now), body, now)
    assert not signed("whsec_nada!", signature(body, now), body, now)
    assert not signed(SECRET, {}, body, now)
    assert not signed(SECRET, {**signature(body, now), "svix-timestamp": "9" * 400}, body, now)


def test_a_provider_reports_by_itself_and_a_soft_bounce_suppresses_nobody(
    database: str, tmp_path: Path, serving: Any
) -> None:
    keys = "ana:0123456789abcdef"
    settings = Settings(database=database, storage=f"{tmp_path}/l", api_keys=keys, mailing_http_secret=SECRET)
    settings.mailing_embedded = "off"
    carrier = Carrier(settings)
    with serving(settings) as client:
        client.headers["Authorization"] = "Bearer 0123456789abcdef"
        mailing = send(client, "a.csv", "email\na@b.com\nb@b.com\nc@b.com\n").json()["mailingId"]
        work(carrier, mailing, Far())
        ids = {row["email"]: row["id"] for row in client.get(f"/mailings/{mailing}/entries").json()["itens"]}
        del client.headers["Authorization"]

        def told(event: str, tags: Any, **more: Any) -> httpx.Response:
            body = json.dumps({"type": event, "data": {"email_id": "x", "tags": tags, **more}}).encode()
            headers = {"Content-Type": "application/json", **signature(body, int(time.time()))}
            return client.post("/mailings/retornos/provedor", content=body, headers=headers)

        bounce = {"type": "Permanent", "subType": "General", "message": "no such user"}
        for _ in range(2):  # providers repeat themselves
            assert told("email.bounced", {"entrada": ids["a@b.com"]}, bounce=bounce).json() == {"conhecido": True}
        soft = told("email.bounced", [{"name": "entrada", "value": ids["b@b.com"]}], bounce={"type": "Transient"})
        assert soft.json() == {"conhecido": True}
        assert told("email.complained", {"entrada": ids["c@b.com"]}).json() == {"conhecido": True}
        for tags in (None, [], [1], {"entrada": 1}, {"entrada": "x"}, {"entrada": mailing}):
            assert told("email.bounced", tags).json() == {"conhecido": False}
        assert told("email.opened", {"entrada": ids["a@b.com"]}).json() == {"conhecido": False}
        assert client.post("/mailings/retornos/provedor", json={"type": "x"}).status_code == 401
    carrier.close()
    assert query(settings, "SELECT email, motivo FROM mailing_suppressions ORDER BY 1") == [
        ("a@b.com", "bounce"),
        ("c@b.com", "reclamacao"),
    ]
    found = dict(query(settings, "SELECT email, status FROM mailing_entries"))
    assert found == {"a@b.com": "FAILED", "b@b.com": "FAILED", "c@b.com": "SENT"}
