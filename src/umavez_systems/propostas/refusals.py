"""Refusals of clientes and propostas: each says what is wrong and what to do."""

from __future__ import annotations

from umavez_systems.problems import Problem
from umavez_systems.propostas.domain import Cliente, Proposta


def not_found(what: str, number: int) -> Problem:
    """The 404 of an unknown id; 0 stands for every number that no id can be."""
    detail = f"Não há {what} {number}." if number else f"Não há {what} com este número."
    return Problem(404, f"{what}-inexistente", f"{what.capitalize()} inexistente", detail)


def unknown_cliente(number: int) -> Problem:
    """The 422 of a proposta for nobody."""
    return Problem(422, "cliente-inexistente", "Cliente inexistente", f"Não há cliente {number}.")


def stale(current: Cliente | Proposta) -> Problem:
    """The 409 of a version that is not the newest."""
    what, more = "o cliente", {}
    if isinstance(current, Proposta):
        what, more = "a proposta", {"estado": current.estado.value}
    detail = f"A versão atual é {current.versao}; releia {what} e tente de novo."
    return Problem(409, "versao-desatualizada", "Versão desatualizada", detail, versao=current.versao, **more)


def not_allowed(current: Proposta, why: str) -> Problem:
    """The 409 of a change that the proposta's state does not allow."""
    detail = f"A proposta está {current.estado.value} e {why}."
    where = {"estado": current.estado.value, "versao": current.versao}
    return Problem(409, "transicao-invalida", "Transição não permitida", detail, **where)


def in_use(constraint: str) -> Problem:
    """The 409 of an e-mail or a document that another cliente has."""
    if "documento" in constraint:
        return Problem(409, "documento-em-uso", "Documento em uso", "Já existe um cliente com este documento.")
    return Problem(409, "email-em-uso", "E-mail em uso", "Já existe um cliente com este e-mail.")


def bad_document() -> Problem:
    """The 422 of a document whose digits are wrong, where the strict rule is asked for."""
    return Problem(422, "documento-invalido", "Documento inválido", "Os dígitos do CPF/CNPJ não conferem.")


def reused() -> Problem:
    """The 422 of a key that was used with other content."""
    return Problem(
        422,
        "chave-reutilizada",
        "Chave de idempotência já usada",
        "Esta chave foi usada antes com outro conteúdo; repita o conteúdo original ou use uma chave nova.",
    )


def moved() -> Problem:
    """The 503 of a row that went away between two looks."""
    return Problem(503, "indisponivel", "Tente de novo", "O registro mudou durante a leitura; tente de novo.")
