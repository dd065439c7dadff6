"""Schemas: the official XSDs that nfelib carries, compiled once, applied before anything is sent.

Those of events and voidings are older than the alphanumeric CNPJ; their patterns are widened as NT Conjunta 2025.001
says, in memory, when they are read. nfelib has no schema for the cancellation by substitution (110112): it is checked
by the schema that all events share, and what it says by a table written here.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib.resources import files
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.problems import Problem

PLACES = {
    "nfe": ("nfelib.nfe", "schemas/v4_0/nfe_v4.00.xsd"),
    "consulta": ("nfelib.nfe", "schemas/v4_0/consSitNFe_v4.00.xsd"),
    "inutilizacao": ("nfelib.nfe", "schemas/v4_0/inutNFe_v4.00.xsd"),
    "status": ("nfelib.nfe", "schemas/v4_0/consStatServ_v4.00.xsd"),
    "cancelamento": ("nfelib.nfe_evento_cancel", "schemas/v1_0/eventoCancNFe_v1.00.xsd"),
    "correcao": ("nfelib.nfe_evento_cce", "schemas/v1_0/CCe_v1.00.xsd"),
    "epec": ("nfelib.nfe_epec", "schemas/v1_0/EPEC_v1.00.xsd"),
    "dps": ("nfelib.nfse", "schemas/v1_0/DPS_v1.01.xsd"),
    "nfse": ("nfelib.nfse", "schemas/v1_0/NFSe_v1.01.xsd"),
    "pedido_evento": ("nfelib.nfse", "schemas/v1_0/pedRegEvento_v1.01.xsd"),
    "substituicao": ("nfelib.nfe_evento_generico", "schemas/v1_0/evento"),
}
SHARED = b"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="http://www.portalfiscal.inf.br/nfe"
 targetNamespace="http://www.portalfiscal.inf.br/nfe" elementFormDefault="qualified">
<xs:include schemaLocation="leiauteEvento_v1.00.xsd"/><xs:element name="evento" type="TEvento"/></xs:schema>"""
"""The layout of every event, whatever it says; nfelib has it without the element."""
DETAILS = {
    "substituicao": (
        ("descEvento", "Cancelamento por substituicao"),
        ("cOrgaoAutor", "[1-5][0-9]"),
        ("tpAutor", "1"),
        ("verAplic", "[!-ÿ]([ -ÿ]{0,18}[!-ÿ])?"),
        ("nProt", "[0-9]{15}"),
        ("xJust", "[!-ÿ][ -ÿ]{13,253}[!-ÿ]"),
        ("chNFeRef", "[0-9]{6}[0-9A-Z]{12}[0-9]{26}"),
    ),
}
"""What an event without a schema of its own says: its elements in order, each with its pattern."""
WIDENED = (
    (b"([\\d]{14})([\\d]{5})([\\d]{9})([\\d]{10})", b"([0-9A-Z]{12}[0-9]{2})([\\d]{5})([\\d]{9})([\\d]{10})"),
    (b'"[0-9]{44}"', b'"[0-9]{6}[0-9A-Z]{12}[0-9]{26}"'),
    (b'"[0-9]{14}"', b'"[0-9A-Z]{12}[0-9]{2}"'),
    (b'"[0-9]{0}|[0-9]{14}"', b'"[0-9]{0}|[0-9A-Z]{12}[0-9]{2}"'),
    (b'"ID[0-9]{52}"', b'"ID[0-9]{12}[0-9A-Z]{12}[0-9]{28}"'),
    (b'"ID[0-9]{41}"', b'"ID[0-9]{4}[0-9A-Z]{12}[0-9]{25}"'),
    (b'"DPS[0-9]{42}"', b'"DPS[0-9]{7}(1[0-9]{14}|2[0-9A-Z]{12}[0-9]{2})[0-9]{20}"'),
    (b'"[0-9]{50}"', b'"[0-9]{9}[0-9A-Z]{12}[0-9]{29}"'),
    (b'"NFS[0-9]{50}"', b'"NFS[0-9]{9}[0-9A-Z]{12}[0-9]{29}"'),
    (b'"PRE[0-9]{56}"', b'"PRE[0-9]{9}[0-9A-Z]{12}[0-9]{35}"'),
)
_NS = "{http://www.portalfiscal.inf.br/nfe}"
_SPACE = re.compile(r"\{http://www\.(portalfiscal\.inf\.br/nfe|sped\.fazenda\.gov\.br/nfse)\}")
_LOCK = threading.Lock()


class _Widening(etree.Resolver):  # type: ignore[misc]  # lxml has no types
    """Reads a schema's parts from the same folder, their patterns widened."""

    def __init__(self, folder: Any) -> None:
        super().__init__()
        self._folder = folder

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:
        """lxml asks for a part by its file name."""
        name = system_url.rpartition("/")[2]
        return self.resolve_string(_widened(self._folder.joinpath(name).read_bytes()), context, base_url=name)


def _widened(text: bytes) -> bytes:
    for narrow, wide in WIDENED:
        text = text.replace(narrow, wide)
    return text


@cache
def _schema(name: str) -> etree.XMLSchema:
    package, path = PLACES[name]
    folder, _, file = path.rpartition("/")
    place = files(package).joinpath(folder)
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Widening(place))
    text = SHARED if file == "evento" else place.joinpath(file).read_bytes()
    root = etree.fromstring(_widened(text), parser, base_url=file)
    return etree.XMLSchema(root)


def faults(name: str, tree: Any) -> list[str]:
    """What is wrong with `tree` by the schema `name`; empty when nothing is."""
    # One at a time: a schema object keeps its last errors in itself.
    with _LOCK:
        schema = _schema(name)
        if schema.validate(tree):
            return _faults_by_table(DETAILS[name], tree) if name in DETAILS else []
        return [_SPACE.sub("", str(entry.message)) for entry in schema.error_log]


def _faults_by_table(expected: tuple[tuple[str, str], ...], tree: Any) -> list[str]:
    detail = tree.find(f".//{_NS}detEvento")
    found = [(str(part.tag).removeprefix(_NS), part.text or "", len(part)) for part in detail]
    if [tag for tag, _, _ in found] != [tag for tag, _ in expected] or detail.get("versao") != "1.00":
        return [f"Element 'detEvento': expected {', '.join(tag for tag, _ in expected)} in version 1.00."]
    wrong = (
        tag
        for (tag, text, parts), (_, pattern) in zip(found, expected, strict=True)
        if parts or not re.fullmatch(pattern, text)
    )
    return [f"Element '{tag}': its value does not match the layout." for tag in wrong]


def validate(name: str, tree: Any) -> None:
    """Raise a 422 problem unless `tree` is valid by the schema `name`."""
    found = faults(name, tree)
    if found:
        raise Problem(422, "xml-invalido", "Documento recusado pelo esquema oficial", in_portuguese(found[0]))


_FAULT = re.compile(r"^Element '([A-Za-z0-9]+)'(?:, attribute '([A-Za-z0-9]+)')?: (.*)\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected is (?:one of )?\( ([A-Za-z0-9, ]+) \)\.")
_SAID = (
    ("[facet 'pattern']", "o valor não tem a forma que o leiaute oficial pede"),
    ("[facet 'enumeration']", "o valor não é um dos que o leiaute oficial conhece"),
    ("[facet 'length']", "o tamanho não é o do leiaute oficial"),
    ("[facet 'minLength']", "o texto é mais curto do que o leiaute oficial pede"),
    ("[facet 'maxLength']", "o texto é mais longo do que o leiaute oficial aceita"),
    ("This element is not expected", "não é esperado aqui pelo leiaute oficial"),
    ("Missing child element", "falta algo que o leiaute oficial exige"),
)
"""What libxml2 says, and what that is in the language of the systems."""


def in_portuguese(fault: str) -> str:
    """A fault for whoever sent the order: where and why, and nothing of what was sent."""
    found = _FAULT.match(fault)
    if found is None:
        return "O documento não segue o leiaute oficial."
    where, why = found.group(2) or found.group(1), found.group(3)
    said = next((words for mark, words in _SAID if mark in why), "não segue o leiaute oficial")
    wanted = _EXPECTED.search(why)
    return f"{where}: {said}{'' if wanted is None else f' (espera {wanted.group(1)})'}."
