"""Signatures: XMLDSig as the authorities want it (enveloped, RSA-SHA1, inclusive C14N), made and checked.

SHA-1 is what the schemas of NF-e ask for. A signature here has one form only, so it is written as a text: the same
bytes as signxml's (tests compare them), for less than half of its time. An element is taken out of its document before
it is canonicalised: libxml2 adds xmlns="" to a part, and a good signature would be called bad.
"""

from __future__ import annotations

import base64
from hashlib import sha1
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1
from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.wire.certificate import Certificado

DS = "http://www.w3.org/2000/09/xmldsig#"
_C14N = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
_SIGNATURE = (
    f'<Signature xmlns="{DS}"><SignedInfo><CanonicalizationMethod Algorithm="{_C14N}"/>'
    f'<SignatureMethod Algorithm="{DS}rsa-sha1"/><Reference URI="{{uri}}"><Transforms>'
    f'<Transform Algorithm="{DS}enveloped-signature"/><Transform Algorithm="{_C14N}"/></Transforms>'
    f'<DigestMethod Algorithm="{DS}sha1"/><DigestValue>{{digest}}</DigestValue></Reference></SignedInfo>'
    "<SignatureValue/><KeyInfo><X509Data><X509Certificate>{cert}</X509Certificate></X509Data></KeyInfo></Signature>"
)
_DIGEST = "/".join(f"{{{DS}}}{name}" for name in ("Signature", "SignedInfo", "Reference", "DigestValue"))


def assinar(root: Any, identity: str | None, certificado: Certificado) -> Any:
    """`root` with the signature over its child whose Id is `identity`, or over all of it, as its last element.

    The same input gives the same bytes. Raises ValueError where there is no such child.
    """
    signed = root if identity is None else next((part for part in root if part.get("Id") == identity), None)
    if signed is None or not (identity or "0").isalnum():
        raise ValueError(f"não há o que assinar com o Id {identity}")
    uri = "" if identity is None else f"#{identity}"
    digest = base64.b64encode(sha1(_canonical(signed)).digest()).decode()  # noqa: S324  # the authorities' choice
    signature = etree.fromstring(_SIGNATURE.format(uri=uri, digest=digest, cert=certificado.escrito))
    root.append(signature)
    # Where it stands: the canonical form has every namespace that is declared around it.
    info, value, _ = signature
    value.text = _signed(_canonical(info), certificado)
    return root


def digest_of(signed: Any) -> str:
    """digVal of a signed document: what the authority repeats when it means these bytes."""
    value = signed.find(_DIGEST)  # where the signature of the whole stands: no need to look through everything
    if value is None:
        value = signed.find(f".//{{{DS}}}DigestValue")
    return (value.text or "").strip() if value is not None else ""


def conferir(xml: bytes, tag: str | None) -> x509.Certificate:
    """Check the one signature in `xml` over its element `tag` or over all of it; who signed it.

    Independent of how it was made: the element is parsed alone, canonicalised, hashed, and the key applied. Raises
    ValueError.
    """
    root = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True))
    signatures = root.findall(f".//{{{DS}}}Signature")
    if len(signatures) != 1:
        raise ValueError("a assinatura falta ou é mais de uma")
    signature = signatures[0]
    parent = signature.getparent()
    if tag is None:
        signed, wanted = root, ""
    else:
        signed = None if parent is None else parent.find(tag)
        wanted = "" if signed is None else f"#{signed.get('Id')}"
    info = signature.find(f"{{{DS}}}SignedInfo")
    if signed is None or info is None:
        raise ValueError("a assinatura não está ao lado do que assina")
    reference = info.find(f"{{{DS}}}Reference")
    if reference is None or reference.get("URI") != wanted:
        raise ValueError("a assinatura é de outro elemento")
    return _verified(signature, info, reference, signed)


def assinar_texto(text: str, certificado: Certificado) -> str:
    """RSA-SHA1 over an ASCII text, in base64: what São Paulo wants beside the signature of the whole."""
    return _signed(text.encode("ascii"), certificado)


def _signed(data: bytes, certificado: Certificado) -> str:
    made = certificado.key.sign(data, padding.PKCS1v15(), SHA1())  # noqa: S303  # the authorities' choice
    return base64.b64encode(made).decode()


def conferir_texto(text: str, signature: str, cert: x509.Certificate) -> bool:
    """Whether a text was signed with a certificate's key."""
    key = cert.public_key()
    try:
        if not isinstance(key, rsa.RSAPublicKey):
            return False
        key.verify(base64.b64decode(signature), text.encode("ascii"), padding.PKCS1v15(), SHA1())  # noqa: S303  # the same
    except (InvalidSignature, ValueError):
        return False
    return True


def _verified(signature: Any, info: Any, reference: Any, signed: Any) -> x509.Certificate:
    canonical_info = _canonical(info)
    if signed is signature.getroottree().getroot():
        signature.getparent().remove(signature)  # enveloped: the signature is no part of what it signs
    if _text(reference, "DigestValue") != base64.b64encode(sha1(_canonical(signed)).digest()).decode():  # noqa: S324  # the authorities' choice
        raise ValueError("o conteúdo assinado foi mudado")
    cert = x509.load_der_x509_certificate(base64.b64decode(_text(signature, "KeyInfo", "X509Data", "X509Certificate")))
    key = cert.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("a chave não é RSA")  # noqa: TRY004  # a bad document, not a bad call
    try:
        key.verify(base64.b64decode(_text(signature, "SignatureValue")), canonical_info, padding.PKCS1v15(), SHA1())  # noqa: S303  # the same
    except InvalidSignature:
        raise ValueError("a assinatura não confere com a chave") from None
    return cert


def _canonical(element: Any) -> bytes:
    """The element alone, in canonical form, with the namespaces that it stands in."""
    alone = etree.fromstring(etree.tostring(element, with_tail=False))
    canonical: bytes = etree.tostring(alone, method="c14n", exclusive=False, with_comments=False)
    return canonical


def _text(element: Any, *path: str) -> str:
    found = element.find("/".join(f"{{{DS}}}{name}" for name in path))
    if found is None or not found.text:
        raise ValueError(f"falta {path[-1]}")
    return "".join(found.text.split())
