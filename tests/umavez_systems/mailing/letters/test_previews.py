"""Previews: templates are kept, checked and shown before anything is sent."""

from __future__ import annotations

import httpx
import pytest

from tests.umavez_systems.mailing.conftest import send
from umavez_systems.mailing.letters import previews


def test_templates_are_kept_checked_and_previewed(client: httpx.Client) -> None:
    body = {"assunto": "Oi {{ nome }}", "texto": "{{ nome }}, {{ cidade }}", "html": "<b>{{ nome }}</b>"}
    assert client.put("/mailings/modelos/carta", json=body).status_code == 200
    assert client.put("/mailings/modelos/ruim", json={**body, "texto": "{% for a in b %}"}).status_code == 422
    assert [one["nome"] for one in client.get("/mailings/modelos").json()["itens"]] == ["carta"]
    refused = send(client, "a.csv", "email,nome\na@b.com,Ana\n", template="carta")
    assert (refused.status_code, refused.json()["faltam"]) == (422, ["cidade"])
    made = send(client, "a.csv", "email,nome,cidade\na@b.com,<Ana>,Natal\n", template="carta").json()["mailingId"]
    shown = client.get(f"/mailings/{made}/previa").json()["itens"]
    assert shown == [{"email": "a@b.com", "assunto": "Oi <Ana>", "texto": "<Ana>, Natal", "html": "<b>&lt;Ana&gt;</b>"}]


def test_templates_are_bounded_and_can_be_removed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "MOST_KEPT", 2)
    body = {"assunto": "Olá", "texto": "oi"}
    assert [client.put(f"/mailings/modelos/{name}", json=body).status_code for name in "aba"] == [200] * 3
    refused = client.put("/mailings/modelos/c", json=body)
    assert refused.status_code == 422
    assert "DELETE /mailings/modelos/{nome}" in refused.json()["detail"]
    assert client.delete("/mailings/modelos/a").json() == {"nome": "a"}
    assert client.delete("/mailings/modelos/a").status_code == 404
    assert client.put("/mailings/modelos/c", json=body).status_code == 200
    assert [one["nome"] for one in client.get("/mailings/modelos").json()["itens"]] == ["b", "c"]


def test_a_preview_reads_a_beginning_that_ends_within_a_character(client: httpx.Client) -> None:
    """As the page sends it: the first bytes of a file, wherever they end."""
    content = "email,nome\na@b.com,José\nc@d.com,Conceição\n".encode()
    for end in range(content.index(b"c@d"), len(content) + 1):
        shown = client.post("/mailings/previa", files={"file": ("a.csv", content[:end])}, data={"texto": "{{ nome }}"})
        assert shown.json()["itens"][0]["texto"] == "José", end
    latin = "email,nome\na@b.com,Jos\xe9".encode("latin-1")
    shown = client.post("/mailings/previa", files={"file": ("a.csv", latin)}, data={"texto": "{{ nome }}"})
    assert shown.json()["itens"][0]["texto"] == "José"
