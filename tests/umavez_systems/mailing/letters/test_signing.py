"""Signing: DKIM."""

from __future__ import annotations

from pathlib import Path

import pytest

from umavez_systems.mailing.letters.signing import signer_of


def test_dkim_signs_the_same_mail_the_same_way(tmp_path: Path) -> None:
    import dkim
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(*form))
    sign = signer_of(f"s1:b.com:{tmp_path}/key.pem")
    assert sign is not None
    content = b"From: a@b.com\r\nTo: c@d.com\r\nSubject: s\r\nDate: x\r\nMessage-ID: <1@b.com>\r\n\r\noi\r\n"
    line = sign(content, 1_700_000_000)
    assert b"t=1700000000" in line
    assert line == sign(content, 1_700_000_000)
    spki = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    import base64

    record = b"v=DKIM1; k=rsa; p=" + base64.b64encode(key.public_key().public_bytes(*spki))
    assert dkim.verify(line + content, dnsfunc=lambda *_, **__: record)
    with pytest.raises(ValueError, match="UMAVEZ_MAILING_DKIM"):
        signer_of("s1:b.com:/nowhere")
