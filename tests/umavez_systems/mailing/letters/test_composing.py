"""Composing: a mail is what its reader expects, and nothing that a stranger wrote breaks out of its place."""

from __future__ import annotations

import email
from email import policy

from tests.umavez_systems.mailing.conftest import query
from tests.umavez_systems.mailing.far import Far, states, upload, work
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
