"""SMTP under TLS, with a name and a password, against a server of this test's own."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from umavez_systems.mailing.ports import Answer, Mail
from umavez_systems.mailing.providers.smtp import SmtpProvider

RIGHT = base64.b64encode(b"\0loja\0s3nh@:/x").decode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, which nobody trusts by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    return path


class Relay:
    """Takes mails from whoever comes under TLS and logs in; counts its connections."""

    def __init__(self, context: ssl.SSLContext, *, starttls: bool, login: str = "235 ok") -> None:
        self.context = context
        self.starttls = starttls
        self.login = login
        self.connections = 0
        self.mails = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        secure = writer.get_extra_info("sslcontext") is not None
        known = False
        writer.write(b"220 hi\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            if verb == "STAR":
                writer.write(b"220 go on\r\n")
                await writer.drain()
                await writer.start_tls(self.context)
                secure = True
                continue
            if verb == "EHLO":
                offers = ["STARTTLS"] if self.starttls and not secure else ["AUTH PLAIN"] if secure else []
                said = "250-hi\r\n" + "".join(f"250-{one}\r\n" for one in offers) + "250 ok"
            elif verb == "AUTH":
                known = line == f"AUTH PLAIN {RIGHT}" and self.login.startswith("2")
                said = self.login if known or not self.login.startswith("2") else "535 5.7.8 no"
            elif verb == "MAIL":
                said = "250 ok" if known else "530 5.7.0 log in first"
            elif verb == "DATA":
                writer.write(b"354 go on\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                self.mails += 1
                said = "250 ok"
            else:
                said = "221 bye" if verb == "QUIT" else "250 ok"
            writer.write(said.encode() + b"\r\n")
        writer.close()


def _sent(relay: Relay, address: Callable[[int], str], many: int = 1) -> list[Answer]:
    """The answers to so many mails; the server speaks TLS from the beginning if it does not offer STARTTLS."""

    async def nothing() -> None:
        """Nothing to prove."""

    async def exchanged() -> list[Answer]:
        context = None if relay.starttls or address(1).startswith("smtp:") else relay.context
        server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=context)
        provider = SmtpProvider(address(server.sockets[0].getsockname()[1]), 2, timeout=10)
        mails = [Mail(str(n), "k", f"<{n}@x>", "a@x.com", f"u{n}@b.com", "s", b"\r\noi\r\n") for n in range(many)]
        answers = await provider.send(mails, nothing)
        await provider.close()
        server.close()
        return answers

    return asyncio.run(exchanged())


@pytest.fixture
def context(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The server's side; this process trusts its certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


LOGIN = "loja:s3nh%40%3A%2Fx@"


@pytest.mark.parametrize(
    ("starttls", "url"),
    [
        (False, "smtps://{}127.0.0.1:{}"),
        (True, "smtp://{}127.0.0.1:{}?starttls=required"),
        (True, "smtp://{}127.0.0.1:{}"),
    ],
    ids=["tls", "starttls required", "starttls by itself"],
)
def test_mails_go_out_under_tls_over_few_connections(context: ssl.SSLContext, starttls: bool, url: str) -> None:
    relay = Relay(context, starttls=starttls)
    answers = _sent(relay, lambda port: url.format(LOGIN, port), 20)
    assert {answer.fate for answer in answers} == {"accepted"}, answers
    assert (relay.mails, relay.connections) == (20, 2)


@pytest.mark.parametrize(
    ("url", "login", "words"),
    [
        ("smtps://loja:errada@127.0.0.1:{}", "235 ok", "não aceitou usuário e senha"),
        ("smtps://127.0.0.1:{}", "235 ok", "Remetente recusado"),
        ("smtp://127.0.0.1:{}?starttls=required", "235 ok", "não atende"),
    ],
    ids=["wrong password", "no password", "no tls"],
)
def test_a_relay_that_does_not_let_us_in_costs_nothing(
    context: ssl.SSLContext, url: str, login: str, words: str
) -> None:
    relay = Relay(context, starttls=False, login=login)
    (answer,) = _sent(relay, url.format)
    assert (answer.fate, relay.mails) == ("unreached", 0)
    assert words in answer.text
    assert "errada" not in answer.text


def test_a_login_that_is_put_off_slows_everybody_down(context: ssl.SSLContext) -> None:
    relay = Relay(context, starttls=False, login="454 4.7.0 temporary failure")
    (answer,) = _sent(relay, lambda port: f"smtps://{LOGIN}127.0.0.1:{port}")
    assert (answer.fate, answer.slow) == ("unreached", True)


def test_a_certificate_that_nobody_vouches_for_is_not_taken(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    relay = Relay(context, starttls=False)
    (answer,) = _sent(relay, lambda port: f"smtps://{LOGIN}127.0.0.1:{port}")
    assert (answer.fate, relay.mails) == ("unreached", 0)
