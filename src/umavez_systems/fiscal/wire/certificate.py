"""A1 certificates: a PKCS#12 opened in memory. The private key is never written to a disk unencrypted."""

from __future__ import annotations

import base64
import os
import re
import secrets
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

from umavez_systems.problems import Problem

CNPJ_OID = "2.16.76.1.3.3"
"""ICP-Brasil: the CNPJ among the alternative names."""
LARGEST = 100_000
OPENING_SECONDS = 5
"""Of a processor: an A1 opens in hundredths of one, but how often its password is hashed is said by the file."""
WAITING_SECONDS = 30
_OPENING = """
import base64, sys
from cryptography.hazmat.primitives.serialization import pkcs12
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
except ImportError:
    pass
pfx, password = map(base64.b64decode, sys.stdin.read().split(","))
try:
    pkcs12.load_key_and_certificates(pfx, password)
except ValueError:
    sys.exit(3)
""".replace("SECONDS", str(OPENING_SECONDS))


@dataclass(frozen=True, slots=True)
class Certificado:
    """A taxpayer's certificate with its key and chain."""

    key: rsa.RSAPrivateKey
    cert: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    pfx: bytes
    senha: str
    escrito: str
    """The certificate as a signature carries it: DER in base64."""

    def __repr__(self) -> str:
        return f"Certificado(cnpj={self.cnpj!r}, vence_em={self.vence_em.isoformat()})"

    @classmethod
    def lido(cls, pfx: bytes, senha: str) -> Certificado:
        """The certificate in a PKCS#12. Raises a 422 problem, which never repeats the password."""
        if len(pfx) > LARGEST:
            raise _invalid("O certificado é grande demais; envie um PKCS#12 (A1) de até 100 kB.")
        try:
            key, cert, chain = pkcs12.load_key_and_certificates(pfx, senha.encode())
        except ValueError:
            raise _invalid("O certificado não abre; confira o arquivo PKCS#12 (A1) e a senha.") from None
        if not isinstance(key, rsa.RSAPrivateKey) or cert is None:
            raise _invalid("O certificado precisa de uma chave RSA e do próprio certificado.")
        written = base64.b64encode(cert.public_bytes(Encoding.DER)).decode()
        return cls(key, cert, tuple(chain), pfx, senha, written)

    @property
    def vence_em(self) -> datetime:
        """When it ends."""
        return self.cert.not_valid_after_utc

    def valido(self, agora: datetime | None = None) -> bool:
        """Whether it may be used now."""
        return self.cert.not_valid_before_utc <= (agora or datetime.now(UTC)) <= self.vence_em

    @property
    def cnpj(self) -> str | None:
        """The CNPJ it was issued to, letters included; None when it names none."""
        try:
            names = self.cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return None
        for name in names.get_values_for_type(x509.OtherName):
            if name.type_id.dotted_string == CNPJ_OID:
                found = re.search(rb"[0-9A-Z]{12}[0-9]{2}\Z", name.value)
                return None if found is None else found.group().decode()
        return None

    def tls(self, ca: str | None = None) -> ssl.SSLContext:
        """A client's context with this certificate; the server's is always verified, against `ca` where given."""
        context = ssl.create_default_context(cadata=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        password = secrets.token_urlsafe(32)
        sealed = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
        pem = sealed + b"".join(cert.public_bytes(Encoding.PEM) for cert in (self.cert, *self.chain))
        _load(context, pem, password)
        return context


def refuse_endless(pfx: bytes, senha: str) -> None:
    """Raise a 422 problem for a stranger's PKCS#12 that would keep whoever opens it busy for minutes."""
    if len(pfx) <= LARGEST and not _opens_in_time(pfx, senha):
        raise _invalid("O certificado leva tempo demais para abrir; exporte-o de novo, com menos iterações.")


def _opens_in_time(pfx: bytes, senha: str) -> bool:
    """Whether opening comes to an end, well or not, tried in a process of its own: OpenSSL listens to nobody."""
    given = ",".join(base64.b64encode(part).decode() for part in (pfx, senha.encode()))
    try:
        done = subprocess.run(  # noqa: S603  # our own words; what is a stranger's goes to its standard input
            [sys.executable, "-c", _OPENING],
            input=given,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=WAITING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 3)


def _load(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    """Hand a key over to OpenSSL, which reads files only: in memory where the system can, and encrypted in any case."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("umavez", os.MFD_CLOEXEC)
        try:
            os.write(memory, pem)
            context.load_cert_chain(f"/proc/self/fd/{memory}", password=password)
        finally:
            os.close(memory)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a1.pem"
        path.write_bytes(pem)
        context.load_cert_chain(path, password=password)


def _invalid(detail: str) -> Problem:
    return Problem(422, "certificado-invalido", "Certificado inválido", detail)
