"""The simulated payer's accounts: what it analysed and does not pay, and who appealed. Without a unique constraint."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from umavez_systems.processos.tiss.xml import Node, message

TABLES = """
CREATE TABLE IF NOT EXISTS itens (submission INTEGER, guia TEXT, procedimento TEXT, atendimento TEXT, valor TEXT);
CREATE TABLE IF NOT EXISTS glosas (protocolo TEXT, guia TEXT, codigo TEXT, valor TEXT);
CREATE TABLE IF NOT EXISTS appeals (
    id INTEGER PRIMARY KEY, operadora TEXT, protocolo TEXT, numero TEXT, referencia TEXT, valor TEXT,
    situacao TEXT NOT NULL DEFAULT 'em_analise', acatado TEXT);
CREATE INDEX IF NOT EXISTS by_submission ON itens (submission);
CREATE INDEX IF NOT EXISTS by_appealed ON appeals (protocolo, numero);
"""
ANALYSED = (3, 6)
"""The situations, liberado and pago, in which there is a demonstrativo."""
PAID = 6


class Contas:
    """The part of the ledger that comes after the submission; whoever calls holds the ledger's lock."""

    def __init__(self, link: sqlite3.Connection) -> None:
        self._link = link
        link.executescript(TABLES)

    def keep(self, submission: int, guias: list[dict[str, Any]]) -> None:
        """Note the items of a lote."""
        names = ("numeroGuiaPrestador", "procedimento", "dataAtendimento", "valor")
        rows = [(submission, *(guia[name] for name in names)) for guia in guias]
        self._link.executemany("INSERT INTO itens VALUES (?, ?, ?, ?, ?)", rows)

    def deny(self, protocolo: str, guia: str, codigo: str, valor: str) -> None:
        """Let the analysis of a protocolo end with a glosa, as the payer's auditor would."""
        self._link.execute("INSERT INTO glosas VALUES (?, ?, ?, ?)", (protocolo, guia, codigo, valor))

    def decide(self, recurso: str, situacao: str, acatado: str) -> None:
        """Let a recurso be decided."""
        words = "UPDATE appeals SET situacao = ?, acatado = ? WHERE 'REC-' || id = ?"
        self._link.execute(words, (situacao, acatado, recurso))

    def appeals(self) -> list[dict[str, Any]]:
        """Every recurso that was accepted, in order."""
        return self._rows("SELECT id, protocolo, numero, referencia, valor FROM appeals ORDER BY id", ())

    def appeal(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Accept a recurso."""
        valor = str(sum((Decimal(item["valorRecursado"]) for item in content["itens"]), Decimal("0.00")))
        values = tuple(content[name] for name in ("operadora", "protocolo", "numeroRecurso", "referencia"))
        words = "INSERT INTO appeals (operadora, protocolo, numero, referencia, valor) VALUES (?, ?, ?, ?, ?)"
        self._link.execute(words, (*values, valor))
        return 201, self.appealed(content)[1]

    def appealed(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The recurso of a number."""
        found = self._rows(
            "SELECT id, referencia, valor, situacao, acatado FROM appeals"
            " WHERE operadora = ? AND protocolo = ? AND numero = ? ORDER BY id LIMIT 1",
            tuple(content[name] for name in ("operadora", "protocolo", "numeroRecurso")),
        )
        return 200, {**found[0], "recurso": f"REC-{found[0]['id']}"} if found else {}

    def statement(self, content: dict[str, Any], lote: dict[str, Any], situacao: int) -> tuple[int, dict[str, Any]]:
        """The demonstrativo of a protocolo; none while it is being analysed, or before it is paid."""
        if situacao not in ANALYSED or (content["tipo"] == "pagamento" and situacao != PAID):
            return 200, {"xml": None}
        today = datetime.now(UTC)
        items = self._rows("SELECT * FROM itens WHERE submission = ? ORDER BY rowid", (lote["id"],))
        guias = [(item, self._denied(content["protocolo"], item["guia"])) for item in items]
        whole = sum((Decimal(item["valor"]) for item, _ in guias), Decimal("0.00"))
        denied = sum((valor for _, glosas in guias for _, valor in glosas), Decimal("0.00"))
        head: Node = (
            "cabecalhoDemonstrativo",
            [
                ("registroANS", content["operadora"]),
                ("numeroDemonstrativo", f"D{content['tipo'][0]}-{lote['id']}"),
                ("nomeOperadora", "Operadora simulada"),
                ("dataEmissao", f"{today:%Y-%m-%d}"),
            ],
        )
        names = [("numeroLotePrestador", lote["lote"]), ("numeroProtocolo", content["protocolo"])]
        told: Node
        if content["tipo"] == "pagamento":
            values = _values(("valorInformado", "valorLiberado", "valorGlosa"), whole, denied)
            resumo: Node = ("dadosResumo", [("relacaoProtocolos", [*names[1:], *values])])
            paid: Node = ("dadosPagamento", [("dataPagamento", f"{today:%Y-%m-%d}")])
            told = ("demonstrativoPagamento", [head, ("pagamentos", [("pagamentosPorData", [paid, resumo])])])
        else:
            totals = ("valorInformadoProtocolo", "valorLiberadoProtocolo", "valorGlosaProtocolo")
            values = _values(totals, whole, denied)
            account: list[Node] = [*names, *(_guia(item, glosas) for item, glosas in guias), *values]
            told = ("demonstrativoAnaliseConta", [head, ("dadosConta", [("dadosProtocolo", account)])])
        ends: tuple[Node, Node] = (
            ("registroANS", content["operadora"]),
            ("identificacaoPrestador", [("codigoPrestadorNaOperadora", lote["prestador"])]),
        )
        body: Node = ("operadoraParaPrestador", [("demonstrativosRetorno", [told])])
        xml = message("DEMONSTRATIVO_ANALISE_CONTA", str(lote["id"]), today, ends, body)
        return 200, {"xml": xml.decode("iso-8859-1")}

    def _denied(self, protocolo: str, guia: str) -> list[tuple[str, Decimal]]:
        rows = self._rows("SELECT codigo, valor FROM glosas WHERE protocolo = ? AND guia = ?", (protocolo, guia))
        return [(row["codigo"], Decimal(row["valor"])) for row in rows]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._link.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _values(names: tuple[str, str, str], whole: Decimal, denied: Decimal) -> list[Node]:
    return [(name, str(value)) for name, value in zip(names, (whole, whole - denied, denied), strict=True)]


def _guia(item: dict[str, Any], glosas: list[tuple[str, Decimal]]) -> Node:
    whole, denied = Decimal(item["valor"]), sum((valor for _, valor in glosas), Decimal("0.00"))
    details: list[Node] = [
        ("sequencialItem", "1"),
        ("dataRealizacao", item["atendimento"]),
        ("procedimento", [("codigoTabela", "22"), ("codigoProcedimento", item["procedimento"])]),
        ("valorInformado", str(whole)),
        ("qtdExecutada", "1"),
        ("valorLiberado", str(whole - denied)),
        *(("relacaoGlosa", [("valorGlosa", str(valor)), ("tipoGlosa", codigo)]) for codigo, valor in glosas),
    ]
    return ("relacaoGuias", [("numeroGuiaPrestador", item["guia"]), ("detalhesGuia", details)])
