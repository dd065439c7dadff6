"""Composing: a mail is what its reader expects, and nothing that a stranger wrote breaks out of its place."""

from __future__ import annotations

import email
import email.header
from email import policy

import httpx
import pytest

from tests.umavez_systems.mailing.conftest import query, send
from tests.umavez_systems.mailing.far import Far, states, upload, work
from umavez_systems.mailing.letters.composing import sender_of
from umavez_systems.mailing.providers.sink import SinkProvider
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def test_a_value_that_would_break_a_header_fails_that_entry_alone(carrier: Carrier, settings: Settings) -> None:
    mailing = upload(carrier, b'email,nome\na@b.com,"x\nBcc: todos@b.com"\nb@b.com,Bia\n', assunto="Oi {{ nome }}")
    far = Far()
    work(carrier, mailing, far)
    assert far.times() == {"b@b.com": 1}
    assert states(settings) == {"SENT": 1, "FAILED": 1}


def test_a_mail_is_what_its_reader_expects(carrier: Carrier, settings: Settings) -> None:
    long = "Olá, ção " * 30
    mailing = upload(
        carrier,
        b"email,nome\nana@b.com,<Ana>\n",
        assunto=long + "{{ nome }}",
        texto="Oi {{ nome }}\n.\n",
        html="<p>{{ nome }}",
    )
    work(carrier, mailing, SinkProvider(carrier.database))
    (content,) = query(settings, "SELECT conteudo FROM mailing_sink")[0]
    message = email.message_from_bytes(bytes(content), policy=policy.default)
    assert message["subject"] == long + "<Ana>"
    assert message["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    text, html = (message.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    assert text.get_content().replace("\r\n", "\n") == "Oi <Ana>\n.\n"
    assert "<p>&lt;Ana&gt;" in html.get_content()
    assert max(len(line) for line in bytes(content).split(b"\r\n")) < 300


@pytest.mark.parametrize("sender", ["joão@localhost", "@localhost", "a b@localhost", f"Lo{'jã' * 150} <a@b.com>"])
def test_a_sender_that_no_header_can_hold_is_refused(client: httpx.Client, sender: str) -> None:
    refused = send(client, "a.csv", "email\na@b.com\n", remetente=sender)
    assert refused.status_code == 422
    assert "remetente" in refused.json()["detail"]


def test_the_name_of_a_sender_is_written_in_words_that_are_short_enough() -> None:
    """RFC 2047: an encoded word has 75 characters at most."""
    name = "Loja São João da Boa Vista: Calçados, Confecções e Utilidades do Lar Ltda"
    written = sender_of(f'"{name}" <loja@exemplo.com>')
    assert max(map(len, written.split(" "))) <= 75
    message = email.message_from_string(f"From: {written}\n\n")
    assert str(email.header.make_header(email.header.decode_header(message["from"]))) == f"{name} <loja@exemplo.com>"
    assert sender_of("Loja <loja@localhost>") == "Loja <loja@localhost>"
