"""Taxes of an item: a stated default for Simples Nacional, which a caller overrides field by field. And their totals.

The default: ICMS by CSOSN 102 (no credit), PIS and COFINS by CST 49 at zero. Names are those of the official layout.

SEFAZ adds the items up again, and a total that differs is refused after its number was taken (531 to 538, 601 to 603,
610, 685, 795, 859 to 862): every field of an item that a total repeats stands in a table here.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from umavez_systems.fiscal.domain import Item, centavos
from umavez_systems.fiscal.rules.identifiers import invalid

DEFAULT: dict[str, Any] = {
    "ICMS": {"ICMSSN102": {"orig": "0", "CSOSN": "102"}},
    "PIS": {"PISOutr": {"CST": "49", "vBC": "0.00", "pPIS": "0.00", "vPIS": "0.00"}},
    "COFINS": {"COFINSOutr": {"CST": "49", "vBC": "0.00", "pCOFINS": "0.00", "vCOFINS": "0.00"}},
}
ZERO = Decimal("0.00")
DEEPEST = 6
Taxes = dict[str, Any]
ALWAYS = ("vBC", "vICMS", "vICMSDeson", "vFCP", "vBCST", "vST", "vFCPST", "vFCPSTRet", "vII", "vIPI", "vPIS", "vCOFINS")
NEVER = ("vFrete", "vSeg", "vDesc", "vIPIDevol", "vOutro")
"""Totals of what an item cannot say here: zero."""
MONO = ("qBCMono", "vICMSMono", "qBCMonoReten", "vICMSMonoReten", "qBCMonoRet", "vICMSMonoRet")
_SAME = ("vBC", "vICMS", "vICMSDeson", "vFCP", "vBCST", "vFCPST", "vFCPSTRet", *MONO)
GROUPED: dict[str, dict[str, str]] = {
    # The one total with a name of its own.
    "ICMS": {**{name: name for name in _SAME}, "vICMSST": "vST"},
    "IPI": {"vIPI": "vIPI"},
    "PIS": {"vPIS": "vPIS"},
    "COFINS": {"vCOFINS": "vCOFINS"},
}
"""Taxes that have their fields in one of several groups: each field, and the total that repeats it."""
PLAIN: dict[str, tuple[str, ...]] = {
    "II": ("vII",),
    "ICMSUFDest": ("vFCPUFDest", "vICMSUFDest", "vICMSUFRemet"),
}
"""Taxes that have their fields in themselves."""
ADDED = ("vST", "vFCPST", "vICMSMonoReten", "vII", "vIPI")
"""What the buyer pays beside the products (rule W16-10)."""
SUBSTITUTED = {"PISST": ("vPIS", "indSomaPISST"), "COFINSST": ("vCOFINS", "indSomaCOFINSST")}
"""Paid by the buyer too where the item says so; in no total of their own."""

_IBS, _MONO = "gIBSCBS", "gIBSCBSMono"


def _of_place(group: str, tax: str) -> dict[str, tuple[str, ...]]:
    inside = f"{_IBS}/{group}"
    return {"vDif": (f"{inside}/gDif/vDif",), "vDevTrib": (f"{inside}/gDevTrib/vDevTrib",), tax: (f"{inside}/{tax}",)}


def _credits(group: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"gCredPresOper/{group}/{name}",) for name in ("vCredPres", "vCredPresCondSus")}


def _mono(kind: str, ending: str) -> tuple[str, ...]:
    """Where an item may say one tax of fuels: by quantity or by value."""
    group = f"gMono{ending or 'Padrao'}/v{kind}Mono{ending}"
    return tuple(f"{_MONO}/g{kind}Mono{way}/{group}" for way in ("AdRem", "AdValorem"))


IBSCBS: dict[str, dict[str, Any]] = {
    "gIBS": {
        "gIBSUF": _of_place("gIBSUF", "vIBSUF"),
        "gIBSMun": _of_place("gIBSMun", "vIBSMun"),
        "vIBS": (f"{_IBS}/vIBS",),
        **_credits("gIBSCredPres"),
    },
    "gCBS": {**_of_place("gCBS", "vCBS"), **_credits("gCBSCredPres")},
    "gMono": {f"v{kind}Mono{end}": _mono(kind, end) for end in ("", "Reten", "Ret") for kind in ("IBS", "CBS")},
    "gEstornoCred": {name: (f"gEstornoCred/{name}",) for name in ("vIBSEstCred", "vCBSEstCred")},
}
"""The parts of IBSCBSTot: each field, and where in an item's IBSCBS it is."""
NEEDS = {"gIBS": _IBS, "gCBS": _IBS, "gMono": _MONO, "gEstornoCred": "gEstornoCred"}
"""A part is there when an item has this."""


class Totais(NamedTuple):
    """The totals of a note: ICMSTot's fields, and the groups of the newer taxes where an item has them."""

    icms: dict[str, str]
    nota: Decimal
    """vNF."""
    seletivo: dict[str, str] | None
    ibscbs: dict[str, Any] | None


def impostos(item: Item) -> dict[str, Any]:
    """The item's taxes as the layout names them: the default with what the caller changed."""
    merged = {tax: dict(groups) for tax, groups in DEFAULT.items()}
    for tax, groups in item.impostos.items():
        if not isinstance(groups, dict):
            merged[tax] = written(groups)
            continue
        before = merged.get(tax, {})
        merged[tax] = {
            name: {**before.get(name, {}), **written(fields)} if isinstance(fields, dict) else written(fields)
            for name, fields in groups.items()
        }
    return merged


def written(value: Any, depth: int = 0) -> Any:
    """A value as the layout writes it: text. Exact numbers keep their places; a float never gets here."""
    if depth > DEEPEST:
        raise invalid("impostos: níveis demais.")
    if isinstance(value, dict):
        return {str(name): written(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [written(part, depth + 1) for part in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise invalid("impostos: use textos e números.")


def number(text: Any) -> Decimal:
    """A field's value. Raises a 422 problem for what is not a plain number."""
    if text is None:
        return ZERO
    try:
        value = Decimal(text)
    except (InvalidOperation, ValueError, TypeError):  # the last two: a list, an object
        raise invalid("impostos: um valor não é número.") from None
    if not value.is_finite() or abs(value) > Decimal("9999999999999.99"):
        raise invalid("impostos: um valor é grande demais.")
    return value


def totais(products: Decimal, items: list[Taxes]) -> Totais:
    """The totals of items with these taxes. Raises a 422 problem for what is not a plain number."""
    sums = dict.fromkeys(ALWAYS, ZERO)
    for name, value in (part for taxes in items for part in _said(taxes)):
        sums[name] = sums.get(name, ZERO) + value
    extra = sum((sums[name] for name in ADDED if name in sums), ZERO)
    nota = products + extra + sum((_changed(taxes) for taxes in items), ZERO)
    written = {name: _written(value) for name, value in sums.items()}
    icms = {**written, **dict.fromkeys(NEVER, "0.00"), "vProd": _written(products), "vNF": _written(nota)}
    selective = [taxes["IS"] for taxes in items if "IS" in taxes]
    shared = [taxes["IBSCBS"] for taxes in items if "IBSCBS" in taxes]
    return Totais(
        icms,
        centavos(nota),
        {"vIS": _written(_sum(selective, "vIS"))} if selective else None,
        _shared(shared) if shared else None,
    )


def _said(taxes: Taxes) -> Iterator[tuple[str, Decimal]]:
    """Each total that an item has a share in, and the share."""
    if "vTotTrib" in taxes:
        yield "vTotTrib", number(taxes["vTotTrib"])
    for tax, names in GROUPED.items():
        for group in groups(taxes, tax):
            for name in names.keys() & group.keys():
                yield names[name], number(group[name])
    for tax, plain in PLAIN.items():
        found = taxes.get(tax)
        if isinstance(found, dict):
            for name in filter(found.__contains__, plain):
                yield name, number(found[name])


def _changed(taxes: Taxes) -> Decimal:
    """What else an item changes in vNF: relieved ICMS that it does not say to keep, PIS and COFINS it says to add."""
    value = ZERO
    for group in groups(taxes, "ICMS"):
        # Without the mark SEFAZ takes both; from before there was one, it is taken off.
        if group.get("indDeduzDeson") != "0":
            value -= number(group.get("vICMSDeson"))
    for tax, (name, mark) in SUBSTITUTED.items():
        found = taxes.get(tax)
        if isinstance(found, dict) and found.get(mark) == "1":
            value += number(found.get(name))
    return value


def groups(taxes: Taxes, tax: str) -> list[Taxes]:
    """The groups of a tax in an item."""
    named = taxes.get(tax)
    return [group for group in named.values() if isinstance(group, dict)] if isinstance(named, dict) else []


def _shared(items: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"vBCIBSCBS": _written(_sum(items, f"{_IBS}/vBC"))}
    for part, fields in IBSCBS.items():
        if any(isinstance(item, dict) and NEEDS[part] in item for item in items):
            found[part] = _filled(fields, items)
    return found


def _filled(fields: dict[str, Any], items: list[Any]) -> dict[str, Any]:
    return {
        name: _filled(paths, items) if isinstance(paths, dict) else _written(_sum(items, *paths))
        for name, paths in fields.items()
    }


def _sum(items: list[Any], *paths: str) -> Decimal:
    return sum((number(_at(item, path)) for item in items for path in paths), ZERO)


def _at(value: Any, path: str) -> Any:
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _written(value: Decimal) -> str:
    return f"{centavos(value):.2f}"
