"""Our trees and signatures are those of nfelib's own serializer and of signxml, byte for byte."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from lxml import etree
from nfelib.nfe.bindings.v4_0 import leiaute_nfe_v4_00 as layout
from nfelib.nfe.bindings.v4_0.nfe_v4_00 import Nfe
from signxml.algorithms import CanonicalizationMethod, DigestAlgorithm, SignatureConstructionMethod, SignatureMethod
from signxml.signer import XMLSigner
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.serializers import TreeSerializer

from tests.umavez_systems.fiscal.conftest import EMITENTE, Mundo, numerado
from umavez_systems.fiscal.domain import Item, Tipo
from umavez_systems.fiscal.wire import events, nfe, signing, writing
from umavez_systems.fiscal.wire.nfe import NS

THEIRS = TreeSerializer(context=XmlContext())
DEEPEST = 9
MOST_LISTED = 3


class Signxml(XMLSigner):
    excise_empty_xmlns_declarations = True

    def check_deprecated_methods(self) -> None:
        """SHA-1 is the authorities' choice."""


def rendered(document: Any) -> bytes:
    tree = THEIRS.render(document, ns_map={None: NS})
    written: bytes = etree.tostring(tree.getroot() if hasattr(tree, "getroot") else tree)
    return written


def filled(kind: Any, chance: random.Random, depth: int = 0) -> Any:
    """A document of any form that the layout has, with texts that need escaping."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if chance.random() < 0.5 or field.name == "signature" or field.metadata.get("format"):
            continue
        (wanted, *_) = get_args(hints[field.name]) or (hints[field.name],)
        if wanted is not str and not (isinstance(wanted, type) and (is_dataclass(wanted) or issubclass(wanted, Enum))):
            continue
        many = chance.randrange(MOST_LISTED) if get_origin(hints[field.name]) is list else None
        made = [_value(wanted, chance, depth) for _ in range(1 if many is None else many)]
        values[field.name] = made[0] if many is None else made
    return kind(**values)


def _value(wanted: Any, chance: random.Random, depth: int) -> Any:
    if wanted is str:
        return chance.choice(["1", "Açaí & <b>", 'a"b', "  x ", ""])
    if issubclass(wanted, Enum):
        return chance.choice(list(wanted))
    return None if depth > DEEPEST else filled(wanted, chance, depth + 1)


def test_s4_12_whatever_the_layout_can_say_is_written_as_the_bindings_own_serializer_does() -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    sizes = []
    for _ in range(40):
        document = Nfe(infNFe=filled(layout.Tnfe.InfNfe, chance))
        ours = etree.tostring(writing.arvore(document, NS))
        assert ours == rendered(document), f"seed {seed}"
        sizes.append(len(ours))
    assert sum(sizes) > 20_000, "they said much"


def test_a_binding_with_more_than_elements_and_attributes_is_refused_and_not_guessed() -> None:
    from nfelib.nfe.bindings.v4_0.xmldsig_core_schema_v1_01 import SignatureValueType

    with pytest.raises(TypeError, match="serializer"):
        writing.arvore(SignatureValueType(value=b"x"), NS)


@pytest.mark.parametrize("identity", ["of the note", None])
@pytest.mark.parametrize("around", [False, True])
def test_s4_12_a_signature_has_the_bytes_that_signxml_makes(mundo: Mundo, identity: str | None, around: bool) -> None:
    """Also in a document that declares other namespaces around it, as São Paulo's does."""
    item = Item("1", "Pão & <queijo>", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"))
    order = numerado(Tipo.NFE)
    order = replace(order, pedido=replace(order.pedido, itens=(item,)))
    tree = nfe.arvore(EMITENTE, order, "2")
    if around:
        text = etree.tostring(tree).replace(b"<NFe ", b'<NFe xmlns:p1="urn:x" xmlns:xsi="urn:y" ')
        tree = etree.fromstring(text)
    who = identity and tree[0].get("Id")
    signer = Signxml(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=SignatureMethod.RSA_SHA1,
        digest_algorithm=DigestAlgorithm.SHA1,
        c14n_algorithm=CanonicalizationMethod.CANONICAL_XML_1_0,
    )
    signer.namespaces = {None: signing.DS}  # type: ignore[dict-item]  # lxml's way to say the default namespace
    cert = mundo.certificado
    over = who and f"#{who}"
    made = signer.sign(tree, key=cert.key, cert=[cert.cert], reference_uri=over, id_attribute="Id")
    theirs = etree.fromstring(etree.tostring(made))
    for name in ("SignatureValue", "X509Certificate"):
        for element in theirs.iter(f"{{{signing.DS}}}{name}"):
            element.text = "".join(element.text.split())

    ours = signing.assinar(tree, who, cert)
    assert etree.tostring(ours) == etree.tostring(theirs)
    signing.conferir(etree.tostring(ours), None if identity is None else f"{{{NS}}}infNFe")


def test_what_is_not_there_is_not_signed(mundo: Mundo) -> None:
    with pytest.raises(ValueError, match="Id NFe1"):
        signing.assinar(
            events.evento("ID1", "35", "2", "1", "2", "3", "110111", 1, events.correcao("x")), "NFe1", mundo.certificado
        )
