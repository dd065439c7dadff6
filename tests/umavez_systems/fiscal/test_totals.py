"""Totals of a note: every field that a total repeats is in it, as SEFAZ adds the items up again."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from lxml import etree

from tests.umavez_systems.fiscal.conftest import Loja, numerado, pedido
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Item, Pagamento, Tipo
from umavez_systems.fiscal.wire import schemas
from umavez_systems.fiscal.wire.nfe import NS
from umavez_systems.fiscal.wire.sefaz import Sefaz
from umavez_systems.problems import Problem

ICMS10 = {
    "orig": "0", "CST": "10", "modBC": "3", "vBC": "100.00", "pICMS": "18.00", "vICMS": "18.00", "vBCFCP": "100.00",
    "pFCP": "2.00", "vFCP": "2.00", "modBCST": "4", "vBCST": "150.00", "pICMSST": "18.00", "vICMSST": "9.00",
    "vBCFCPST": "150.00", "pFCPST": "2.00", "vFCPST": "1.00",
}  # fmt: skip
ICMS40 = {"orig": "0", "CST": "40", "vICMSDeson": "5.00", "motDesICMS": "9"}
ICMS60 = {
    "orig": "0", "CST": "60", "vBCSTRet": "50.00", "pST": "18.00", "vICMSSubstituto": "3.00", "vICMSSTRet": "6.00",
    "vBCFCPSTRet": "50.00", "pFCPSTRet": "2.00", "vFCPSTRet": "1.00",
}  # fmt: skip
ICMS15 = {
    "orig": "0", "CST": "15", "qBCMono": "1.0050", "adRemICMS": "1.0000", "vICMSMono": "1.01", "qBCMonoReten": "2.0000",
    "adRemICMSReten": "1.0000", "vICMSMonoReten": "2.00",
}  # fmt: skip
ICMS61 = {"orig": "0", "CST": "61", "qBCMonoRet": "3.0000", "adRemICMSRet": "1.0000", "vICMSMonoRet": "3.00"}
UF_DEST = {
    "vBCUFDest": "100.00", "vBCFCPUFDest": "100.00", "pFCPUFDest": "2.00", "pICMSUFDest": "18.00",
    "pICMSInter": "12.00", "pICMSInterPart": "100.00", "vFCPUFDest": "2.00", "vICMSUFDest": "6.00",
    "vICMSUFRemet": "0.00",
}  # fmt: skip
IPI = {"cEnq": "999", "IPITrib": {"CST": "50", "vBC": "100.00", "pIPI": "10.00", "vIPI": "10.00"}}
II = {"vBC": "100.00", "vDespAdu": "1.00", "vII": "20.00", "vIOF": "0.00"}


def st(kind: str, mark: str | None) -> dict[str, Any]:
    marked = {} if mark is None else {f"indSoma{kind}ST": mark}
    return {"vBC": "100.00", f"p{kind}": "1.00", f"v{kind}": "1.00", **marked}


def tot(sefaz: Sefaz, *taxes: dict[str, Any]) -> dict[str, str]:
    """The total of a note of one item of 100.00 for each of these taxes; it is valid by the official schema."""
    items = tuple(Item("1", "Caneta", "96081000", "5102", "UN", Decimal(1), Decimal(100), each) for each in taxes)
    note = numerado()
    made = sefaz.montar(replace(note, pedido=replace(note.pedido, itens=items, pagamentos=())))
    root = etree.fromstring(made.xml)
    assert schemas.faults("nfe", root) == []
    found = root.find(f".//{{{NS}}}ICMSTot")
    said = {part.tag.rpartition("}")[2]: str(part.text) for part in found}
    return {name: value for name, value in said.items() if value != "0.00"}


@pytest.mark.parametrize(
    ("taxes", "said"),
    [
        ({"vTotTrib": "31.45"}, {"vTotTrib": "31.45", "vNF": "100.00"}),
        ({"II": II}, {"vII": "20.00", "vNF": "120.00"}),
        ({"IPI": IPI}, {"vIPI": "10.00", "vNF": "110.00"}),
        (
            {"ICMS": {"ICMS10": ICMS10}},
            {
                "vBC": "100.00", "vICMS": "18.00", "vFCP": "2.00", "vBCST": "150.00", "vST": "9.00", "vFCPST": "1.00",
                "vNF": "110.00",
            },
        ),
        ({"ICMS": {"ICMS40": ICMS40}}, {"vICMSDeson": "5.00", "vNF": "95.00"}),
        ({"ICMS": {"ICMS40": {**ICMS40, "indDeduzDeson": "1"}}}, {"vICMSDeson": "5.00", "vNF": "95.00"}),
        ({"ICMS": {"ICMS40": {**ICMS40, "indDeduzDeson": "0"}}}, {"vICMSDeson": "5.00", "vNF": "100.00"}),
        ({"ICMS": {"ICMS60": ICMS60}}, {"vFCPSTRet": "1.00", "vNF": "100.00"}),
        (
            {"ICMS": {"ICMS15": ICMS15}},
            {
                "qBCMono": "1.01", "vICMSMono": "1.01", "qBCMonoReten": "2.00", "vICMSMonoReten": "2.00",
                "vNF": "102.00",
            },
        ),
        ({"ICMS": {"ICMS61": ICMS61}}, {"qBCMonoRet": "3.00", "vICMSMonoRet": "3.00", "vNF": "100.00"}),
        ({"ICMSUFDest": UF_DEST}, {"vFCPUFDest": "2.00", "vICMSUFDest": "6.00", "vNF": "100.00"}),
        ({"PISST": st("PIS", None), "COFINSST": st("COFINS", "0")}, {"vNF": "100.00"}),
        ({"PISST": st("PIS", "1"), "COFINSST": st("COFINS", "1")}, {"vNF": "102.00"}),
    ],
)  # fmt: skip
def test_s4_12_a_tax_of_an_item_is_in_the_totals_that_repeat_it(
    sefaz: Sefaz, taxes: dict[str, Any], said: dict[str, str]
) -> None:
    assert tot(sefaz, taxes) == {"vProd": "100.00", **said}
    twice = {name: f"{Decimal(value) * 2:.2f}" for name, value in {"vProd": "100.00", **said}.items()}
    # A quantity has four places in an item and two in the total: what is rounded is the sum.
    rounded = {"qBCMono": "2.01"} if "qBCMono" in said else {}
    assert tot(sefaz, taxes, taxes) == {**twice, **rounded}


def ibscbs(fields: dict[str, Any]) -> dict[str, Any]:
    return {"IBSCBS": {"CST": "000", "cClassTrib": "000001", **fields}}


SHARED = ibscbs(
    {
        "gIBSCBS": {
            "vBC": "100.00",
            "gIBSUF": {"pIBSUF": "0.1000", "gDif": {"pDif": "50.0000", "vDif": "0.05"}, "vIBSUF": "0.05"},
            "gIBSMun": {"pIBSMun": "0.0000", "vIBSMun": "0.00"},
            "vIBS": "0.05",
            "gCBS": {"pCBS": "0.9000", "gDevTrib": {"vDevTrib": "0.10"}, "vCBS": "0.80"},
        }
    }
)
FUEL = ibscbs(
    {
        "gIBSCBSMono": {
            "gIBSMonoAdRem": {"gMonoPadrao": {"qBCMono": "1.0000", "adRemIBS": "1.0000", "vIBSMono": "1.00"}},
            "gCBSMonoAdRem": {"gMonoPadrao": {"qBCMono": "1.0000", "adRemCBS": "2.0000", "vCBSMono": "2.00"}},
            "vTotIBSMonoItem": "1.00",
            "vTotCBSMonoItem": "2.00",
        }
    }
)


def newer(sefaz: Sefaz, *taxes: dict[str, Any]) -> dict[str, str]:
    items = tuple(Item("1", "Caneta", "96081000", "5102", "UN", Decimal(1), Decimal(100), each) for each in taxes)
    note = numerado()
    made = sefaz.montar(replace(note, pedido=replace(note.pedido, itens=items, pagamentos=())))
    total = etree.fromstring(made.xml).find(f".//{{{NS}}}total")
    leaves = [part for part in total.iter() if not len(part) and "ICMSTot" not in part.getparent().tag]
    paths = ("/".join([*(up.tag for up in reversed(list(part.iterancestors()))), part.tag]) for part in leaves)
    said = zip((path.replace(f"{{{NS}}}", "").partition("total/")[2] for path in paths), leaves, strict=True)
    return {path: str(part.text) for path, part in said if part.text != "0.00"}


def test_s4_12_ibs_cbs_and_is_have_totals_of_their_own_where_an_item_has_them(sefaz: Sefaz) -> None:
    assert newer(sefaz, {}) == {}
    assert newer(sefaz, SHARED, SHARED, {}) == {
        "IBSCBSTot/vBCIBSCBS": "200.00",
        "IBSCBSTot/gIBS/gIBSUF/vDif": "0.10",
        "IBSCBSTot/gIBS/gIBSUF/vIBSUF": "0.10",
        "IBSCBSTot/gIBS/vIBS": "0.10",
        "IBSCBSTot/gCBS/vDevTrib": "0.20",
        "IBSCBSTot/gCBS/vCBS": "1.60",
    }
    assert newer(sefaz, FUEL) == {"IBSCBSTot/gMono/vIBSMono": "1.00", "IBSCBSTot/gMono/vCBSMono": "2.00"}
    selective = {"IS": {"CSTIS": "000", "cClassTribIS": "000001", "vBCIS": "100.00", "pIS": "1.0000", "vIS": "1.00"}}
    assert newer(sefaz, selective) == {"ISTot/vIS": "1.00"}


@pytest.mark.parametrize(
    "taxes",
    [
        {"vTotTrib": {"valor": "1.00"}},
        {"vTotTrib": "1,00"},
        {"II": "1.00"},
        {"II": {"vII": ["1.00"]}},
        {"ICMSUFDest": [UF_DEST]},
        {"PISST": {"vPIS": "x", "indSomaPISST": "1"}},
        {"IBSCBS": "000"},
        {"IBSCBS": {"gIBSCBS": {"vBC": {"x": "1"}}}},
        {"IS": [{"vIS": "1.00"}]},
    ],
)
def test_what_cannot_be_added_up_is_a_problem_of_the_caller(sefaz: Sefaz, taxes: dict[str, Any]) -> None:
    with pytest.raises(Problem) as refused:
        tot(sefaz, taxes)
    assert refused.value.status == 422


def test_a_document_is_worth_what_its_note_says_and_not_only_its_products(loja_local: Loja) -> None:
    order = pedido(Tipo.NFE, loja_local.serie)
    item = replace(order.itens[0], valor_unitario=Decimal(50), impostos={"IPI": IPI})
    paid = (Pagamento("01", Decimal("110.00")),)
    made = loja_local.fiscal.emitir(Caller("local", None), replace(order, itens=(item,), pagamentos=paid))
    assert (made.row["estado"], made.row["total"]) == ("AUTORIZADO", "110.00")
