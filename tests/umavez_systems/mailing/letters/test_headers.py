"""Headers: whatever a subject or a name is made of, its lines are short, and readers see what was written."""

from __future__ import annotations

import email
import email.header
import random
from email.utils import parseaddr

import pytest

from tests.umavez_systems.mailing.conftest import query
from tests.umavez_systems.mailing.far import states, upload, work
from umavez_systems.mailing.letters.composing import sender_of
from umavez_systems.mailing.letters.headers import LINE, WORD, folded
from umavez_systems.mailing.providers.sink import SinkProvider
from umavez_systems.settings import Settings, settings_of
from umavez_systems.web import Carrier

TEXTS = {
    "one word": "a" * 998,
    "a long word after a short one": "Oi " + "x" * 900,
    "a long word at the end": "palavra " * 20 + "y" * 200,
    "short words": "ab " * 300 + "c",
    "beyond ASCII": "ção" * 300,
    "one letter beyond ASCII": "á" + "x" * 900,
    "four bytes each": "\U0001f600" * 300,
    "marks of their own": "e\u0301" * 400,
    "spaces": "a" + " " * 300 + "b",
    "nothing but a space": " ",
    "nothing": "",
    "what looks encoded": "=?utf-8?q?Seu_banco?=",
    "half of that": "2 =? 3",
    "other line ends": "Oi\u2028Bcc: a@b.com\u2029x\x85Bcc: c@d.com",
    "a colon": "Re: " * 100,
}


def read(field: str) -> str:
    """As a reader shows it."""
    message = email.message_from_string(f"{field}\r\nX-After: 1\r\n\r\nbody")
    assert list(message.keys()) == ["Subject", "X-After"], field
    unfolded = "".join(message["Subject"].splitlines())
    return str(email.header.make_header(email.header.decode_header(unfolded)))


def held(field: str) -> None:
    assert field.isascii()
    for line in field.split("\r\n"):
        assert len(line) <= LINE, line
        assert line.strip(), "a line of nothing but spaces"
        assert not any(len(word) > WORD for word in line.split(" ") if word.startswith("=?")), line
    assert "\r" not in field.replace("\r\n", "")
    assert "\n" not in field.replace("\r\n", "")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_subject_is_written_in_short_lines_and_read_as_it_was_meant(text: str) -> None:
    field = folded("Subject", text)
    held(field)
    assert read(field) == text


def test_no_encoded_word_is_empty() -> None:
    """A subject may be nothing but a variable, and the variable nothing."""
    assert not any("b??=" in folded("Subject", text) for text in TEXTS.values())


def test_any_text_is_written_in_short_lines() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(500):
        text = "".join(chance.choices("aé =?\u3042_-.\U0001f600", k=chance.randrange(1, 400)))
        held(folded("Subject", text))
        assert read(folded("Subject", text)) == text, (seed, text)


@pytest.mark.parametrize("subject", ["a" * 998, "x" * 900 + "{{ nome }}"])
def test_every_line_of_a_mail_is_one_that_smtp_takes(carrier: Carrier, settings: Settings, subject: str) -> None:
    rows = "email,nome\na@b.com,\u2028Bcc: ã\n".encode()
    mailing = upload(carrier, rows, assunto=subject, remetente="L" * 300 + " <a@b.co>")
    work(carrier, mailing, SinkProvider(carrier.database))
    (content,) = query(settings, "SELECT conteudo FROM mailing_sink")[0]
    assert max(map(len, bytes(content).split(b"\r\n"))) <= 998
    assert states(settings) == {"SENT": 1}


def test_a_name_that_looks_encoded_is_read_as_it_was_written() -> None:
    name, address = parseaddr(sender_of('"=?utf-8?q?Seu_banco?=" <a@b.com>'))
    assert address == "a@b.com"
    assert str(email.header.make_header(email.header.decode_header(name))) == "=?utf-8?q?Seu_banco?="


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/" + "a" * 1000,
        "https://x.example/\r\nBcc: a@b.com",
        "https://x.example/> , <mailto:a@b.com",
        "https://x.example/?a=b",
        "https://ção.example",
        "x.example",
        "ftp://x.example",
    ],
)
def test_an_address_that_no_link_in_a_mail_could_begin_with_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="public_url"):
        settings_of({"public_url": url})


def test_links_of_a_server_on_ipv6_can_be_followed() -> None:
    assert Settings(host="::1", port=8000).public_url == "http://[::1]:8000"
    assert Settings(public_url="https://x.example/mail/").public_url == "https://x.example/mail"
