"""The page /mailing in a real browser: upload, preview, progress, mailbox, and a decision about a doubt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.corridas.chromium import page
from tests.umavez_systems.mailing.conftest import query, send
from umavez_systems.settings import Settings

CHOOSE = """(() => {
  const data = new DataTransfer();
  data.items.add(new File(["email,nome\\nana@b.com,Ana\\nbia@b.com,Bia\\nana@b.com,Ana\\nruim,x\\n"], "lista.csv"));
  document.getElementById("file").files = data.files;
  document.getElementById("assunto").value = "Oi {{ nome }}";
  document.getElementById("texto").value = "Tudo bem, {{ nome }}?";
  document.getElementById("html").value = "<b>Tudo bem?</b>";
})()"""
TEXT = "document.getElementById({!r}).innerText"


@pytest.mark.slow
def test_a_list_is_dropped_previewed_sent_watched_and_read(tmp_path: Path, prepared: Path, serving: Any) -> None:
    shutil.copy(prepared, tmp_path / "page.db")
    settings = Settings(database=f"sqlite:///{tmp_path}/page.db")
    with serving(settings) as client, page(tmp_path / "profile") as tab:
        tab.open(f"{client.base_url}/mailing", 360, 740)
        assert tab.look("document.documentElement.scrollWidth <= 360"), "it must fit a phone"
        assert "Nenhuma ainda" in tab.look("getComputedStyle(document.getElementById('mailings'), '::after').content")
        tab.look(CHOOSE)
        tab.look("document.getElementById('look').click()")
        tab.until(f"{TEXT.format('preview')}.includes('Oi Ana')")
        tab.look("document.getElementById('send').click()")
        tab.until(f"{TEXT.format('name')}.includes('SENT')")
        assert tab.look("[...document.querySelectorAll('[data-act]')].every((one) => one.disabled)")
        assert "4 linhas = 2 aceitas + 1 repetidas + 1 inválidas" in tab.look(TEXT.format("lines"))
        tab.until("document.querySelectorAll('#mailbox li').length === 2")
        tab.until("document.querySelectorAll('#entries li').length === 3")
        tab.look("document.querySelector('#mailbox button').click()")
        tab.until(f"{TEXT.format('plain')}.includes('Tudo bem')")
        tab.look("document.getElementById('send').click()")
        tab.until(f"{TEXT.format('state')}.includes('já estava aqui')")
        assert query(settings, "SELECT count(*) FROM mailing_sink") == [(2,)]

        other = send(client, "duvida.csv", "email\nx@b.com\n").json()["mailingId"]
        tab.until(f"fetch('/mailings/{other}').then(a => a.json()).then(b => b.status === 'SENT')")
        query(settings, "UPDATE mailing_entries SET status = 'UNKNOWN' WHERE email = 'x@b.com'")
        query(settings, f"UPDATE mailings SET status = 'PAUSED', enviados = 0, desconhecidos = 1 WHERE id = '{other}'")
        tab.look("window.prompt = (asked) => asked.startsWith('Quem') ? 'ana' : 'vi na caixa'; list()")
        tab.look(f"open({json.dumps(other)}); undefined")
        tab.until("document.querySelector('#entries .row button') !== null")
        tab.look("document.querySelector('#entries .row button').click()")
        tab.until(f"{TEXT.format('name')}.includes('SENT')")
        assert query(settings, "SELECT por, motivo FROM mailing_history WHERE evento = 'resolver:enviado'") == [
            ("local: ana", "vi na caixa")
        ]
        tab.shoot(tmp_path / "page.png")
        assert not tab.complaints
        assert all(url.startswith((str(client.base_url), "data:", "about:")) for url in tab.requests)
