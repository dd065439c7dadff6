"""Bounces: a mail made to be slow is read in no time, one in no encoding can be kept."""

from __future__ import annotations

import time
from email import message_from_bytes

import httpx
import pytest

from umavez_systems.mailing.providers import bounces
from umavez_systems.mailing.providers.bounces import LONGEST_DETAIL, bounce_of

ID = "00000000-0000-0000-0000-000000000000"
BOUNCE = (
    b"Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n"
    b"Content-Type: message/delivery-status\r\n\r\nAction: failed\r\nStatus: 5.1.1\r\n\r\n--b\r\n"
    b"Content-Type: message/rfc822\r\n\r\nMessage-ID: <" + ID.encode() + b".00000000@x>\r\n\r\n--b--\r\n"
)
TYPE = b"Content-Type: multipart/report; boundary=b"
NESTED = b"".join(b"Content-Type: multipart/report; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(2000))
MALICE = {
    "parameters in pieces": TYPE + b"; " + b"a*0*=x;" * 20_000,
    "empty parameters": TYPE + b";" * 900_000,
    "many parameters": TYPE + b";x=y" * 200_000,
    "encoded words": b"Content-Type: =?utf-8?q?" + b"?=" * 10_000,
    "mails in mails": b"Content-Type: message/rfc822\r\n\r\n" * 3000,
    "parts in parts": NESTED,
    "many parts": TYPE + b"\r\n\r\n" + b"--b\r\n\r\n\r\n" * 20_000,
    "an address without end": BOUNCE.replace(b"Action: failed", b"To: " + b"<" * 200_000),
    "many addresses": BOUNCE.replace(b"Message-ID", b"From: " + b",".join([b"a@b"] * 50_000) + b"\r\nX"),
}


@pytest.mark.parametrize("content", MALICE.values(), ids=MALICE)
def test_a_mail_made_to_be_slow_is_read_in_no_time(content: bytes) -> None:
    """140 kB of parameters in one Content-Type stood still for minutes, and the whole worker with it."""
    began = time.perf_counter()
    bounce_of(content + b"\r\n\r\n--b\r\n")
    assert time.perf_counter() - began < 2.0


def test_of_a_long_header_only_the_beginning_is_read() -> None:
    """A million semicolons took a second otherwise, and what they cost grows faster than they do."""
    message = message_from_bytes(TYPE + b";" * 900_000 + b"\r\n\r\n", policy=bounces._ShortHeaders())
    assert len(message["Content-Type"]) == bounces.LONGEST_HEADER


def test_a_bounce_in_no_encoding_at_all_can_be_kept() -> None:
    found = bounce_of(BOUNCE)
    assert found is not None
    assert (found.entry, found.detail, found.hard) == (ID, "5.1.1", True)
    strange = bounce_of(BOUNCE.replace(b"Status: 5", b"Diagnostic-Code: \xff\x00\xed\xa0\x80\r\nStatus: 5"))
    assert strange is not None
    assert b"\0" not in strange.detail.encode()
    long = bounce_of(BOUNCE.replace(b"Status: 5", b"Diagnostic-Code: " + b"x" * 100_000 + b"\r\nStatus: 5"))
    assert long is not None
    assert len(long.detail) == LONGEST_DETAIL


def test_reading_a_mail_keeps_nobody_waiting(client: httpx.Client) -> None:
    content = MALICE["parameters in pieces"]
    answer = client.post("/mailings/retornos/dsn", content=content, headers={"Content-Type": "message/rfc822"})
    assert answer.status_code == 422
