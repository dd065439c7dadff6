"""The pages of processos: self-contained HTML, no script, nothing of a patient in them."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from umavez_systems.processos import views
from umavez_systems.processos.assembly import Processos
from umavez_systems.processos.pagina.drawing import WORDS, drawing

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def detail(system: Processos, principal: str, number: str) -> dict[str, Any]:
    """One instance: itself, the state of each task, its records and its timeline."""
    row = system.runner.row(principal, number)
    _, tasks = system.runner.drawn(row)
    records = system.faturamento.records(principal, process_instance=number)
    return {
        **views.process_shown(row),
        "tarefas": tasks,
        "registros": system.shown(records),
        "historico": [views.step_shown(step) for step in system.runner.timeline(principal, number)],
    }


def process_page(system: Processos, principal: str, number: str) -> str:
    """One instance, drawn."""
    row = system.runner.row(principal, number)
    definition, tasks = system.runner.drawn(row)
    shown = detail(system, principal, number)
    lines = {record["activityId"]: f"{record['status']} · {record['retryCount']} rep." for record in shown["registros"]}
    picture = drawing(definition, tasks, lines)
    records = [
        (
            *(record[name] for name in ("activityId", "operationName", "status", "retryCount")),
            _when(record["updatedAt"]),
            _evidence(record),
        )
        for record in shown["registros"]
    ]
    steps = [
        (_when(step["quando"]), *(step[name] for name in ("atividade", "evento", "detalhe")))
        for step in shown["historico"]
    ]
    facts = [("estado", shown["estado"]), ("desfecho", shown["desfecho"]), ("motivo", shown["motivo"])]
    body = (
        f'<p><a href="/processos">todos os processos</a></p><h1>{escape(number)}</h1>{_facts(facts)}'
        f"<figure>{picture}<figcaption>{_legend()}</figcaption></figure><h2>Registros de idempotência</h2>"
        + _table(("atividade", "operação", "status", "repetições", "mudado em", "evidência"), records)
        + "<h2>Linha do tempo</h2>"
        + _table(("quando", "atividade", "evento", "detalhe"), steps)
    )
    return _page(f"Processo {number}", body)


def list_page(rows: list[dict[str, Any]]) -> str:
    """The instances, newest first."""
    lines = [
        (
            _Html(f'<a href="/processos/{escape(row["id"])}">{escape(row["id"])}</a>'),
            *(row[name] for name in ("estado", "desfecho", "falhas")),
            _when(row["mudadoEm"]),
        )
        for row in rows
    ]
    empty = "" if rows else "<p>Nenhum processo ainda: inicie um com POST /api/v1/processos.</p>"
    table = _table(("id", "estado", "desfecho", "falhas", "mudado em"), lines)
    return _page("Processos", f'<p><a href="/glosas">glosas</a></p><h1>Processos</h1>{empty}{table}')


def glosas_page(rows: list[dict[str, Any]]) -> str:
    """Glosas and the terms of their recursos."""
    names = ("claimId", "numeroGuiaPrestador", "sequencialItem", "codigoGlosa", "valorGlosado", "prazo", "situacao")
    lines = [
        tuple(row[name] for name in (*names, "numeroRecurso", "appealId", "situacaoRecurso", "valorRecursado"))
        for row in rows
    ]
    heads = ("protocolo", "guia", "item", "glosa", "valor glosado", "recurso até", "situação")
    more = ("nº do recurso", "recebido como", "situação do recurso", "valor recursado")
    which = " · ".join(f'<a href="/glosas?situacao={name}">{name}s</a>' for name in ("aberta", "recorrida", "vencida"))
    empty = "" if rows else "<p>Nenhuma glosa: peça um demonstrativo com POST /api/v1/request_statement.</p>"
    body = f'<p><a href="/processos">processos</a> · <a href="/glosas">todas</a> · {which}</p><h1>Glosas</h1>{empty}'
    return _page("Glosas", body + _table((*heads, *more), lines))


def _evidence(record: dict[str, Any]) -> str:
    return "; ".join(f"{entry['what']} ({entry['by']}: {entry['reason']})" for entry in record["evidence"])


def _facts(facts: list[tuple[str, Any]]) -> str:
    return "<p>" + " · ".join(f"{name}: <b>{escape(str(value))}</b>" for name, value in facts if value) + "</p>"


def _legend() -> str:
    return " ".join(f'<span class="key {state.lower()}">{word}</span>' for state, word in WORDS.items())


class _Html(str):
    """What is markup already."""

    __slots__ = ()


def _when(instant: str | None) -> str:
    """An instant as people read it, to the second, in UTC."""
    return (instant or "")[:19].replace("T", " ")


def _table(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table; each cell bears its column's name, which a narrow screen shows beside it. Nothing without rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in names)
    lines = "".join(
        "<tr>"
        + "".join(f'<td data-label="{name}">{_cell(cell)}</td>' for name, cell in zip(names, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, _Html):
        return value
    return escape("" if value is None else str(value))


def _page(title: str, body: str) -> str:
    frame = Template(files("umavez_systems.processos.pagina").joinpath("page.html").read_text())
    return frame.substitute(title=escape(title), body=body)
