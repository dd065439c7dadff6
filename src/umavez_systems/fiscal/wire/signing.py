"""Signatures: XMLDSig as the authorities want it (enveloped, RSA-SHA1, inclusive C14N), made and checked.

SHA-1 is what the schemas of NF-e ask for; signxml refuses it unless told. The "empty xmlns" switch matters on both
sides: libxml2 adds xmlns="" when it canonicalises a part, and a good signature would be called bad.
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
from signxml.algorithms import CanonicalizationMethod, DigestAlgorithm, SignatureConstructionMethod, SignatureMethod
from signxml.signer import XMLSigner

from umavez_systems.fiscal.wire.certificate import Certificado

DS = "http://www.w3.org/2000/09/xmldsig#"


class _Signer(XMLSigner):
    excise_empty_xmlns_declarations = True

    def check_deprecated_methods(self) -> None:
        """SHA-1 is the authorities' choice, not ours."""


def assinar(root: Any, identity: str | None, certificado: Certificado) -> Any:
    """`root` with the signature over the element whose Id is `identity`, or over all of it.

    The same input gives the same bytes.
    """
    signer = _Signer(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=SignatureMethod.RSA_SHA1,
        digest_algorithm=DigestAlgorithm.SHA1,
        c14n_algorithm=CanonicalizationMethod.CANONICAL_XML_1_0,
    )
    signer.namespaces = {None: DS}  # type: ignore[dict-item]  # lxml's way to say the default namespace
    over = None if identity is None else f"#{identity}"
    made = signer.sign(root, key=certificado.key, cert=[certificado.cert], reference_uri=over, id_attribute="Id")
    # Written and read again: in signxml's own tree the signature's elements are found by no namespace.
    signed = etree.fromstring(etree.tostring(made))
    for name in ("SignatureValue", "X509Certificate"):
        for element in signed.iter(f"{{{DS}}}{name}"):
            element.text = "".join((element.text or "").split())
    return signed


def digest_of(signed: Any) -> str:
    """digVal of a signed document: what the authority repeats when it means these bytes."""
    value = signed.find(f".//{{{DS}}}DigestValue")
    return (value.text or "").strip() if value is not None else ""


def conferir(xml: bytes, tag: str | None) -> x509.Certificate:
    """Check the one signature in `xml` over its element `tag` or over all of it, without signxml; who signed it.

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
    made = certificado.key.sign(text.encode("ascii"), padding.PKCS1v15(), SHA1())  # noqa: S303  # the city's choice
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
