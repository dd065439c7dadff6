"""Taxes of an item: a stated default for Simples Nacional, which a caller overrides field by field.

The default: ICMS by CSOSN 102 (no credit), PIS and COFINS by CST 49 at zero. Names are those of the official layout.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from umavez_systems.fiscal.domain import Item
from umavez_systems.fiscal.rules.identifiers import invalid

DEFAULT: dict[str, Any] = {
    "ICMS": {"ICMSSN102": {"orig": "0", "CSOSN": "102"}},
    "PIS": {"PISOutr": {"CST": "49", "vBC": "0.00", "pPIS": "0.00", "vPIS": "0.00"}},
    "COFINS": {"COFINSOutr": {"CST": "49", "vBC": "0.00", "pCOFINS": "0.00", "vCOFINS": "0.00"}},
}
ZERO = Decimal("0.00")
DEEPEST = 6
SUMMED = ("vBC", "vICMS", "vICMSDeson", "vFCP", "vBCST", "vST", "vFCPST", "vFCPSTRet")
"""Fields of the ICMS group that the totals repeat."""
TOTALLED = {"ICMS": SUMMED, "IPI": ("vIPI",), "PIS": ("vPIS",), "COFINS": ("vCOFINS",)}


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


def totals(items: list[dict[str, Any]]) -> dict[str, Decimal]:
    """The sums that the document's total repeats."""
    found = dict.fromkeys((*SUMMED, "vIPI", "vPIS", "vCOFINS"), ZERO)
    for taxes in items:
        for tax, names in TOTALLED.items():
            for group in _groups(taxes, tax):
                for name in filter(group.__contains__, names):
                    found[name] += number(group[name])
    return found


def _groups(taxes: dict[str, Any], tax: str) -> list[dict[str, Any]]:
    named = taxes.get(tax)
    return [group for group in named.values() if isinstance(group, dict)] if isinstance(named, dict) else []


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
