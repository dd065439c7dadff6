"""The simulator's certification authority: makes its own CA, a server certificate and taxpayers' A1 certificates.

Worth nothing outside this machine, and marked so: none of it is an ICP-Brasil certificate.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from umavez_systems.fiscal.wire.certificate import CNPJ_OID

YEARS = timedelta(days=3650)


class Cartorio:
    """A folder with a CA in it, made on first use."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca_file = folder / "ca.pem"
        self.server_file = folder / "servidor.pem"
        if not self.server_file.exists():
            self._found()
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)  # noqa: S101  # made below
        self._key = key
        self._cert = x509.load_pem_x509_certificate(self.ca_file.read_bytes())

    def _found(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        name = _name("umavez simulador AC (sem valor)")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        cert = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self.folder / "ca.key", _pem(key))
        _write(self.ca_file, cert.public_bytes(Encoding.PEM))
        server = rsa.generate_private_key(65537, 2048)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        served = _issued(key, cert, server, "localhost", names, ExtendedKeyUsageOID.SERVER_AUTH)
        _write(self.server_file, _pem(server) + served.public_bytes(Encoding.PEM))

    def a1(self, cnpj: str, nome: str, senha: str) -> bytes:
        """A PKCS#12 for a taxpayer, its CNPJ where ICP-Brasil puts it."""
        key = rsa.generate_private_key(65537, 2048)
        value = b"\x13\x0e" + cnpj.encode()  # DER: PrintableString of 14
        names = [x509.OtherName(x509.ObjectIdentifier(CNPJ_OID), value)]
        cert = _issued(self._key, self._cert, key, f"{nome[:40]}:{cnpj}", names, ExtendedKeyUsageOID.CLIENT_AUTH)
        sealing = BestAvailableEncryption(senha.encode())
        return pkcs12.serialize_key_and_certificates(b"a1", key, cert, [self._cert], sealing)


def _issued(
    ca_key: rsa.RSAPrivateKey,
    ca: x509.Certificate,
    key: rsa.RSAPrivateKey,
    common: str,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
) -> x509.Certificate:
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(_name(common), ca.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + YEARS)
    )


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Readable by the owner alone, and whole or not at all."""
    fresh = path.with_suffix(".novo")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)
