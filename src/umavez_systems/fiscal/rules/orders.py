"""Orders: a caller's JSON as a Pedido or an Emitente, every field within its bounds. Pure.

Money and quantities are texts or exact numbers; nothing here is ever a float.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, NamedTuple

from umavez import fingerprint
from umavez_systems.fiscal.domain import Destinatario, Endereco, Item, Pagamento, Pedido, Servico, Tipo
from umavez_systems.fiscal.rules.identifiers import UFS, cnpj_limpo, cpf_limpo, invalid

MOST_ITEMS = 990
MOST_IN_BATCH = 50
MODOS = ("normal", "svc", "offline", "epec")
_TEXT = re.compile(r"^[!-ÿ][ -ÿ]*\Z")
_DECIMAL = re.compile(r"^[0-9]{1,15}(\.[0-9]{1,10})?\Z", re.ASCII)
LARGEST_TOTAL = Decimal("9999999999999.99")
LARGEST_RATE = Decimal(5)
"""Per cent; the law's most for ISS (LC 116/2003)."""
SERIE_PROPRIA = 49_999
"""Series above it belong to other ways of emitting (rule E0010)."""
TRIBUTACAO = {Tipo.NFSE_ADN: ("1", "2", "3", "4"), Tipo.NFSE_SP: ("T", "F", "A", "B", "M", "N", "X", "V", "P", "S")}


def pedido_de(data: Any) -> Pedido:
    """The order in a request's body. Raises 422 problems that name the field."""
    body = _object(data, "corpo")
    tipo = _choice(body, "tipo", tuple(Tipo))
    if Tipo(tipo).de_servico:
        return _service_order(body, Tipo(tipo))
    modo = _choice(body, "modo", MODOS) if "modo" in body else "normal"
    items = tuple(_item(entry, f"itens.{place}") for place, entry in enumerate(_list(body, "itens", 1, MOST_ITEMS)))
    paid = tuple(_payment(entry, place) for place, entry in enumerate(_list(body, "pagamentos", 0, 100)))
    order = Pedido(
        Tipo(tipo),
        texto(body, "organizacao", 1, 60),
        _integer(body, "serie", 0, 999, default=1),
        items,
        paid,
        _buyer(body.get("destinatario")),
        texto(body, "natureza", 1, 60, default="Venda de mercadoria"),
        modo,
        texto(body, "justificativa", 15, 255) if modo != "normal" else None,
    )
    _refuse_whole(order)
    return order


def lote_de(data: Any) -> tuple[list[Pedido], bool]:
    """The orders of a batch, and whether the authority takes all of them or none. Raises 422 problems."""
    body = _object(data, "corpo")
    together = body.get("transacao", False)
    if not isinstance(together, bool):
        raise invalid("transacao: true ou false.")
    return [pedido_de(entry) for entry in _list(body, "documentos", 1, MOST_IN_BATCH)], together


class Conteudo(NamedTuple):
    """What an order says: the text that is kept, and the fingerprint by which two are compared."""

    texto: str
    impressao: str


def conteudo(pedido: Pedido) -> Conteudo:
    """An order's content; without a service it is written as it was before there were any."""
    found = _kept(pedido)
    if pedido.servico is None:
        del found["servico"]
    return Conteudo(json.dumps(found, ensure_ascii=False), fingerprint({"documento": found}))


def _kept(value: Any) -> Any:
    """A value as JSON has it: exact numbers as text, parts of an order by their names."""
    if value is None or type(value) is str:
        return value
    names = _names(value.__class__)
    if names is not None:
        return {name: _kept(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(name): _kept(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(part) for part in value]
    return f"{value:f}" if isinstance(value, Decimal) else value


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a part of an order; None for what is a value."""
    return tuple(part.name for part in fields(kind)) if is_dataclass(kind) else None


def _service_order(body: dict[str, Any], tipo: Tipo) -> Pedido:
    """An order for a service invoice: one service and, mostly, who took it. Raises 422 problems."""
    for name in ("itens", "pagamentos"):
        if body.get(name):
            raise invalid(f"{name}: uma nota de serviço não os tem; informe servico.")
    if body.get("modo", "normal") != "normal":
        raise invalid("modo: nota de serviço não tem contingência; use normal.")
    last = SERIE_PROPRIA if tipo is Tipo.NFSE_ADN else 99_999
    return Pedido(
        tipo,
        texto(body, "organizacao", 1, 60),
        _integer(body, "serie", 1, last, default=1),
        (),
        (),
        _buyer(body.get("destinatario")),
        servico=_service(body.get("servico"), tipo),
    )


def _service(data: Any, tipo: Tipo) -> Servico:
    body = _object(data, "servico")
    city = tipo is Tipo.NFSE_SP
    price, off = exato(body, "valor", 2, "servico"), _optional(body, "deducoes", 2) or Decimal("0.00")
    if price > LARGEST_TOTAL or off > price:
        raise invalid("servico: o valor cabe em 13 dígitos e as deduções não passam dele.")
    if off and not city:
        raise invalid("servico.deducoes: só na NFS-e de São Paulo.")
    rate = _optional(body, "aliquota", 2)
    if (rate is not None and rate > LARGEST_RATE) or (city and rate is None):
        raise invalid(f"servico.aliquota: até {LARGEST_RATE} por cento; obrigatória em São Paulo.")
    if not isinstance(body.get("iss_retido", False), bool):
        raise invalid("servico.iss_retido: true ou false.")
    taxed = None if body.get("tributacao") is None else _choice(body, "tributacao", TRIBUTACAO[tipo])
    if city and body.get("substitui") is not None:
        raise invalid("servico.substitui: só na NFS-e Nacional; em São Paulo, cancele e emita outra.")
    replaced = None if body.get("substitui") is None else texto(body, "substitui", 50, 50, where="servico")
    return Servico(
        texto(body, "descricao", 1, 1000 if city else 2000, where="servico"),
        _digits(body, "codigo", 5 if city else 6, "servico"),
        price,
        off,
        rate,
        body.get("iss_retido", False),
        taxed,
        replaced,
    )


def _optional(body: dict[str, Any], name: str, places: int) -> Decimal | None:
    """An exact number that may be missing or zero."""
    if body.get(name) is None or str(body[name]).strip("0") in ("", "."):
        return None
    return exato(body, name, places, "servico")


def _refuse_whole(order: Pedido) -> None:
    if order.total <= 0 or order.total > LARGEST_TOTAL:
        raise invalid("itens: o total da nota deve ser maior que zero e caber em 13 dígitos.")
    if order.tipo is Tipo.NFE and order.destinatario is None:
        raise invalid("destinatario: obrigatório na NF-e.")
    if order.tipo is Tipo.NFE and order.destinatario is not None and order.destinatario.endereco is None:
        raise invalid("destinatario.endereco: obrigatório na NF-e.")
    if order.modo == "offline" and order.tipo is not Tipo.NFCE:
        raise invalid("modo: offline existe só para NFC-e.")
    if order.modo in ("svc", "epec") and order.tipo is not Tipo.NFE:
        raise invalid(f"modo: {order.modo} existe só para NF-e.")


def endereco_de(data: Any, where: str) -> Endereco:
    """An address."""
    body = _object(data, where)
    uf = texto(body, "uf", 2, 2, where=where).upper()
    if uf not in UFS:
        raise invalid(f"{where}.uf: não é uma unidade da federação.")
    return Endereco(
        texto(body, "logradouro", 2, 60, where=where),
        texto(body, "numero", 1, 60, where=where, default="S/N"),
        texto(body, "bairro", 2, 60, where=where),
        _digits(body, "codigo_municipio", 7, where),
        texto(body, "municipio", 2, 60, where=where),
        uf,
        _digits(body, "cep", 8, where),
    )


def justificativa_de(data: Any, name: str = "justificativa", longest: int = 255) -> str:
    """A reason of 15 to `longest` characters, as the layout takes it."""
    return texto(_object(data, "corpo"), name, 15, longest)


def _buyer(data: Any) -> Destinatario | None:
    if data is None:
        return None
    body = _object(data, "destinatario")
    cpf, cnpj = body.get("cpf"), body.get("cnpj")
    if (cpf is None) == (cnpj is None):
        raise invalid("destinatario: informe cpf ou cnpj, um dos dois.")
    return Destinatario(
        texto(body, "nome", 2, 60, where="destinatario"),
        None if cpf is None else cpf_limpo(_plain(cpf, "destinatario.cpf")),
        None if cnpj is None else cnpj_limpo(_plain(cnpj, "destinatario.cnpj")),
        None if body.get("endereco") is None else endereco_de(body["endereco"], "destinatario.endereco"),
        None if body.get("ie") is None else _digits(body, "ie", None, "destinatario"),
    )


def _item(data: Any, where: str) -> Item:
    body = _object(data, where)
    taxes = body.get("impostos", {})
    return Item(
        texto(body, "codigo", 1, 60, where=where),
        texto(body, "descricao", 1, 120, where=where),
        _digits(body, "ncm", 8, where),
        _digits(body, "cfop", 4, where),
        texto(body, "unidade", 1, 6, where=where),
        exato(body, "quantidade", 4, where),
        exato(body, "valor_unitario", 10, where),
        _object(taxes, f"{where}.impostos"),
    )


def _payment(data: Any, place: int) -> Pagamento:
    where = f"pagamentos.{place}"
    body = _object(data, where)
    return Pagamento(_digits(body, "forma", 2, where), exato(body, "valor", 2, where))


def exato(body: dict[str, Any], name: str, places: int, where: str) -> Decimal:
    """An exact positive number, from text or from an exact JSON number."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise invalid(f"{where}.{name}: informe um número, como texto ou número exato.")
    text = (
        f"{value:f}" if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 30 else str(value)
    )
    if not _DECIMAL.match(text) or len(text.partition(".")[2].rstrip("0")) > places:
        raise invalid(f"{where}.{name}: número positivo com até {places} casas.")
    try:
        found = Decimal(text)
    except InvalidOperation:
        raise invalid(f"{where}.{name}: não é um número.") from None
    if found <= 0:
        raise invalid(f"{where}.{name}: deve ser maior que zero.")
    return found


def texto(
    body: dict[str, Any], name: str, least: int, most: int, *, where: str = "", default: str | None = None
) -> str:
    """A text within its bounds, in the characters that the layout takes."""
    label = f"{where}.{name}" if where else name
    value = body.get(name, default)
    if not isinstance(value, str):
        raise invalid(f"{label}: informe um texto.")
    value = value.strip()
    if not least <= len(value) <= most:
        raise invalid(f"{label}: de {least} a {most} caracteres.")
    if not _TEXT.match(value):
        raise invalid(f"{label}: só letras, números e sinais do alfabeto latino, sem quebras de linha.")
    return value


def _plain(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > 30:
        raise invalid(f"{where}: informe um texto.")
    return value


def _digits(body: dict[str, Any], name: str, length: int | None, where: str) -> str:
    value = body.get(name)
    text = re.sub(r"[.\s-]", "", value) if isinstance(value, str) and len(value) <= 30 else ""
    if not re.match(r"^[0-9]{1,14}\Z", text, re.ASCII) or (length is not None and len(text) != length):
        raise invalid(f"{where}.{name}: informe {length or '1 a 14'} dígitos, como texto.")
    return text


def _integer(body: dict[str, Any], name: str, least: int, most: int, *, default: int) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(f"{name}: número inteiro de {least} a {most}.")
    return value


def _choice(body: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = body.get(name)
    if not isinstance(value, str) or value not in known:
        raise invalid(f"{name}: um de {', '.join(known)}.")
    return value


def _list(body: dict[str, Any], name: str, least: int, most: int) -> list[Any]:
    value = body.get(name, [])
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise invalid(f"{name}: uma lista de {least} a {most}.")
    return value


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise invalid(f"{where}: informe um objeto.")
    return data
