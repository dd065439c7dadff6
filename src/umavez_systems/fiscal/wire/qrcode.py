"""The QR code of an NFC-e: version 3, which needs no secret, or version 2 where the state gave one (CSC)."""

from __future__ import annotations

import base64
from hashlib import sha1
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA1
from lxml import etree  # type: ignore[import-untyped]  # ships no type information
from nfelib.nfe.client.v4_0.servers_nfce import ESTADO_CONSULTA_NFCE, ESTADO_QRCODE

from umavez_systems.fiscal.domain import Destinatario
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import NS, Emitente

OFFLINE = "9"


def anexar(
    signed: Any, emitente: Emitente, certificado: Certificado, ambiente: str, comprador: Destinatario | None
) -> None:
    """Put infNFeSupl before the signature; it is not signed itself, but says what was."""
    supl = etree.Element(f"{{{NS}}}infNFeSupl", nsmap={None: NS})
    etree.SubElement(supl, f"{{{NS}}}qrCode").text = etree.CDATA(
        texto(signed, emitente, certificado, ambiente, comprador)
    )
    address = ESTADO_CONSULTA_NFCE[emitente.uf][0 if ambiente == "1" else 1]
    etree.SubElement(supl, f"{{{NS}}}urlChave").text = f"https://{address}"
    signed.insert(1, supl)


def texto(
    signed: Any, emitente: Emitente, certificado: Certificado, ambiente: str, comprador: Destinatario | None
) -> str:
    """What the code says."""
    chave = signed[0].get("Id")[3:]
    address = f"https://{ESTADO_QRCODE[emitente.uf][ambiente]}".partition("?")[0]
    parts = [chave, "3" if emitente.csc is None else "2", ambiente]
    if chave[34] == OFFLINE:
        parts += _offline(signed, emitente, comprador)
    if emitente.csc is None:
        if chave[34] == OFFLINE:
            parts.append(_sealed("|".join(parts), certificado))
        return f"{address}?p={'|'.join(parts)}"
    if chave[34] == OFFLINE:
        parts.append(_digest_hex(signed))
    parts.append((emitente.csc_id or "1").lstrip("0"))
    mark = sha1(("|".join(parts) + emitente.csc).encode()).hexdigest().upper()  # noqa: S324  # the layout's choice
    return f"{address}?p={'|'.join([*parts, mark])}"


def _offline(signed: Any, emitente: Emitente, comprador: Destinatario | None) -> list[str]:
    day = signed.find(f".//{{{NS}}}dhEmi").text[8:10]
    parts = [day, signed.find(f".//{{{NS}}}vNF").text]
    if emitente.csc is not None:
        return parts
    if comprador is None:
        return [*parts, "", ""]
    return [*parts, "1" if comprador.cnpj else "2", comprador.cnpj or comprador.cpf or ""]


def _digest_hex(signed: Any) -> str:
    value = signed.find(".//{http://www.w3.org/2000/09/xmldsig#}DigestValue").text
    return str(value).encode().hex()


def _sealed(text: str, certificado: Certificado) -> str:
    mark = certificado.key.sign(text.encode(), padding.PKCS1v15(), SHA1())  # noqa: S303  # the layout's choice
    return base64.b64encode(mark).decode()
