"""The tables of fiscal documents: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from typing import Any

from umavez.sequences import taking
from umavez_systems.database import Connection, Database, Row
from umavez_systems.fiscal.rules.proof import INICIO, Entrada

_DOCUMENT = (
    "id, org_id, principal, idempotencia_key, impressao, tipo, modelo, serie, numero, tp_emis, id_idempotencia,"
    " chave_natural, chave_acesso, estado, versao, origem, pedido, total, xml_assinado, digest, protocolo,"
    " protocolo_xml, codigo, motivo, tentativas, emitido_em, enviado_em, autorizado_em, epec_em, ausente_em,"
    " proximo_em, inutilizacao, prova_sequencia, prova_resumo, criado_em, mudado_em, incidente"
)
_LISTED = (
    "id, org_id, tipo, modelo, serie, numero, tp_emis, id_idempotencia, chave_acesso, estado, versao, origem, total,"
    " protocolo, codigo, motivo, tentativas, emitido_em, autorizado_em, epec_em, proximo_em, criado_em, mudado_em,"
    " incidente"
)
_ACT = (
    "org_id, nome, acao, documento_id, estado, xml, texto, sequencia, tipo, serie, primeiro, ultimo, codigo, motivo,"
    " protocolo, proximo_em, criado_em"
)
DOCUMENT = f"SELECT {_DOCUMENT} FROM documentos_fiscais WHERE id = ?"
HAS_KEY = "SELECT id FROM documentos_fiscais WHERE idempotencia_key = ?"
DOCUMENT_BY_KEY = f"SELECT {_DOCUMENT} FROM documentos_fiscais WHERE idempotencia_key = ?"
_NAMES = tuple(name.strip() for name in _DOCUMENT.split(","))
INSERT_DOCUMENT = f"INSERT INTO documentos_fiscais ({_DOCUMENT}) VALUES ({', '.join('?' * len(_NAMES))})"
_RIGHT = "id, org_id, modelo, tipo, chave_acesso, id_idempotencia, estado, tp_emis, emitido_em, autorizado_em, epec_em"
DUE = (
    f"SELECT {_RIGHT}, incidente FROM documentos_fiscais"
    " WHERE estado IN ('RASCUNHO', 'TRANSMITIDO', 'INDETERMINADO', 'AUTORIZADO') AND proximo_em <= ?"
    " ORDER BY proximo_em LIMIT ?"
)
DUE_ACTS = (
    f"SELECT a.nome, a.acao, a.org_id AS de, {', '.join(f'd.{name}' for name in _RIGHT.split(', '))}, d.incidente"
    " FROM fiscal_atos a LEFT JOIN documentos_fiscais d ON d.id = a.documento_id"
    " WHERE a.estado IN ('PENDENTE', 'RECUSA') AND a.proximo_em <= ? ORDER BY a.proximo_em LIMIT ?"
)
ACT = f"SELECT {_ACT} FROM fiscal_atos WHERE org_id = ? AND nome = ?"
ACTS_OF = f"SELECT {_ACT} FROM fiscal_atos WHERE documento_id = ? ORDER BY acao, sequencia"
INSERT_ACT = f"INSERT INTO fiscal_atos ({_ACT}) VALUES ({', '.join('?' * len(_ACT.split(',')))}) RETURNING {_ACT}"
ORGANISATION = "SELECT * FROM fiscal_organizacoes WHERE id = ?"
PROOFS = (
    "SELECT documento, sequencia, tipo, quando, conteudo, anterior, resumo FROM fiscal_provas WHERE documento = ?"
    " ORDER BY sequencia"
)
LAST_PROOF = "SELECT sequencia, resumo FROM fiscal_provas WHERE documento = ? ORDER BY sequencia DESC LIMIT 1"
_PROOF = "documento, sequencia, tipo, quando, conteudo, anterior, resumo"
_ENTRY = "(?, ?, ?, ?, ?, ?, ?)"
INSERT_PROOFS = f"INSERT INTO fiscal_provas ({_PROOF}) VALUES "


class Dialect:
    """What differs: PostgreSQL locks rows by name, SQLite's transaction holds the whole file; each has its clock."""

    def __init__(self, database: Database) -> None:
        sqlite = database.url.startswith("sqlite")
        self.one_statement = not sqlite
        """Whether a row and its proof can be written by one statement, which is its own transaction."""
        self.lock = "" if sqlite else " FOR UPDATE"
        self.clock = (
            "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) AS agora"
            if sqlite
            else "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS agora"
        )
        self._document = f"SELECT {_DOCUMENT}, {self.clock} FROM documentos_fiscais WHERE id = ?{self.lock}"
        self._next = (
            "UPDATE faixas_numeracao SET ultimo_numero = ultimo_numero + 1"
            f" WHERE org_id = ? AND modelo = ? AND serie = ?{{more}} RETURNING ultimo_numero, bloqueado, {self.clock},"
            " (SELECT bloqueado_ate FROM fiscal_consumo c"
            " WHERE c.org_id = faixas_numeracao.org_id AND c.alvo = ?) AS ate"
        )
        unused = " AND NOT EXISTS (SELECT FROM documentos_fiscais d WHERE d.idempotencia_key = ?)"
        # The range is locked before the engine's row, as by whoever takes them one after the other.
        self._number = (
            f"WITH faixa AS ({self._next.format(more=unused)}),"
            f" dado AS ({taking('EXISTS (SELECT FROM faixa WHERE NOT bloqueado)')})"
            " SELECT faixa.*, dado.number FROM faixa LEFT JOIN dado ON true"
        )
        self._named = (
            f"SELECT {_DOCUMENT}, {self.clock} FROM documentos_fiscais WHERE org_id = ? AND id_idempotencia = ?"
        )

    def now(self, connection: Connection) -> int:
        """The database's clock, in milliseconds: hosts an hour apart must not matter."""
        row = connection.row(f"SELECT {self.clock}")
        return 0 if row is None else int(row["agora"])

    def now_and_block(self, connection: Connection, org_id: str, alvo: str) -> tuple[int, int]:
        """The same, and until when the governor's row `alvo` is blocked; 0 without such a row."""
        blocked = "(SELECT bloqueado_ate FROM fiscal_consumo WHERE org_id = ? AND alvo = ?) AS ate"
        row = connection.row(f"SELECT {self.clock}, {blocked}", (org_id, alvo))
        return (0, 0) if row is None else (int(row["agora"]), int(row["ate"] or 0))

    def named(self, connection: Connection, org_id: str, name: str) -> Row | None:
        """The document of an id_idempotencia; `agora` in it is the database's clock."""
        return connection.row(self._named, (org_id, name))

    def locked(self, connection: Connection, document: str) -> Row | None:
        """A document's row, held until the transaction ends; `agora` in it is the database's clock."""
        return connection.row(self._document, (document,))

    def locked_act(self, connection: Connection, org_id: str, name: str) -> Row | None:
        """An act's row, held until the transaction ends."""
        return connection.row(ACT + self.lock, (org_id, name))

    def locked_range(self, connection: Connection, org_id: str, modelo: str, serie: int) -> Row | None:
        """The seed's locked row of a series (§9.2)."""
        sql = "SELECT * FROM faixas_numeracao WHERE org_id = ? AND modelo = ? AND serie = ?"
        return connection.row(sql + self.lock, (org_id, modelo, serie))

    def next_in_range(self, connection: Connection, org_id: str, modelo: str, serie: int, alvo: str) -> Row | None:
        """The same row locked by counting it on, which saves a round trip; a rollback takes it back.

        With it the database's clock, and until when the governor's row `alvo` is blocked.
        """
        return connection.row(self._next.format(more=""), (org_id, modelo, serie, alvo))

    def number_for_key(
        self, connection: Connection, org_id: str, modelo: str, serie: int, alvo: str, column: str | None, series: str
    ) -> Row | None:
        """The same with the number that the engine's `series` gives, by one statement. PostgreSQL only.

        None where the series has not begun, or where the idempotency key has a document already: then nothing is
        locked. `number` is None where the engine has to look for the next stretch, or the series is blocked.
        """
        values = (org_id, modelo, serie, column, alvo, org_id, series)
        return connection.row(self._number, values)


def insert_document(connection: Connection, values: tuple[Any, ...], entries: list[Entrada], *, at_once: bool) -> Row:
    """A new document's row with its first proofs, as it stands then. Raises Duplicate."""
    if at_once:
        _with_proofs(connection, f"{INSERT_DOCUMENT} RETURNING id", values, entries)
    else:
        connection.rows(INSERT_DOCUMENT, values)
        append_proofs(connection, entries)
    return dict(zip(_NAMES, values, strict=True))


def change_known(
    connection: Connection, row: Row, values: dict[str, Any], entries: list[Entrada], now: int | None
) -> Row | None:
    """Write new values and proofs by one statement where the row is still as it is known; None when it is not.

    Nobody holds the row: its version and the end of its chain decide. Without `now` the version stays.
    """
    changes = dict(values) if now is None else {**values, "mudado_em": now, "versao": row["versao"] + 1}
    names = ", ".join(f"{name} = ?" for name in changes)
    sql = f"UPDATE documentos_fiscais SET {names} WHERE id = ? AND versao = ? AND prova_sequencia = ? RETURNING id"
    known = (row["id"], row["versao"], row["prova_sequencia"])
    written = _with_proofs(connection, sql, (*changes.values(), *known), entries)
    return {**row, **changes} if written else None


def _with_proofs(connection: Connection, sql: str, values: tuple[Any, ...], entries: list[Entrada]) -> bool:
    """A statement that returns a document's id, and its proofs where it returns one. PostgreSQL only."""
    rows = ", ".join([_ENTRY] * len(entries))
    both = (
        f"WITH changed AS ({sql}) INSERT INTO fiscal_provas ({_PROOF})"
        f" SELECT entry.* FROM changed, (VALUES {rows}) AS entry RETURNING sequencia"
    )
    return bool(connection.rows(both, (*values, *_flat(entries))))


def change(connection: Connection, row: Row, values: dict[str, Any], now: int) -> Row | None:
    """Write a document's new values where its version is still the one that was read; None when it is not."""
    names = "".join(f", {name} = ?" for name in values)
    sql = (
        f"UPDATE documentos_fiscais SET versao = versao + 1, mudado_em = ?{names}"
        " WHERE id = ? AND versao = ? RETURNING versao"
    )
    changed = connection.row(sql, (now, *values.values(), row["id"], row["versao"]))
    # The row is known: reading it again would cost as much as everything else in the statement.
    return None if changed is None else {**row, **values, "mudado_em": now, "versao": changed["versao"]}


def note(connection: Connection, document: str, values: dict[str, Any]) -> None:
    """Write values that are no change of the document itself: its version stays. The row must be held."""
    names = ", ".join(f"{name} = ?" for name in values)
    connection.rows(f"UPDATE documentos_fiscais SET {names} WHERE id = ?", (*values.values(), document))


def change_act(connection: Connection, row: Row, values: dict[str, Any]) -> None:
    """Write an act's new values. The row must be held."""
    names = ", ".join(f"{name} = ?" for name in values)
    sql = f"UPDATE fiscal_atos SET {names} WHERE org_id = ? AND nome = ?"
    connection.rows(sql, (*values.values(), row["org_id"], row["nome"]))


def last_proof(connection: Connection, document: str) -> tuple[int, str]:
    """Number and digest of a chain's last entry."""
    row = connection.row(LAST_PROOF, (document,))
    return (0, INICIO) if row is None else (row["sequencia"], row["resumo"])


def append_proofs(connection: Connection, entries: list[Entrada]) -> None:
    """Add entries to their chain at once; the primary key refuses a fork."""
    connection.rows(INSERT_PROOFS + ", ".join([_ENTRY] * len(entries)), _flat(entries))


def _flat(entries: list[Entrada]) -> list[Any]:
    return [value for one in entries for value in _of_entry(one)]


def _of_entry(one: Entrada) -> tuple[Any, ...]:
    return (one.documento, one.sequencia, one.tipo, one.quando, one.conteudo, one.anterior, one.resumo)


def proofs(connection: Connection, document: str) -> list[Entrada]:
    """A chain, in order."""
    return [Entrada(**row) for row in connection.rows(PROOFS, (document,))]


def documents(
    connection: Connection,
    principal: str,
    *,
    org_id: str | None,
    estado: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> list[Row]:
    """Documents, newest first; `before` is criado_em and id of the last one of the page before."""
    asked, values = ["principal = ?"], [principal]
    for name, value in (("org_id", org_id), ("estado", estado)):
        if value is not None:
            asked.append(f"{name} = ?")
            values.append(value)
    if before is not None:
        asked.append("(criado_em < ? OR (criado_em = ? AND id > ?))")
    sql = f"SELECT {_LISTED} FROM documentos_fiscais WHERE {' AND '.join(asked)} ORDER BY criado_em DESC, id LIMIT ?"
    return connection.rows(sql, (*values, *(() if before is None else (before[0], *before)), limit))


def open_documents(connection: Connection, principal: str, limit: int) -> list[Row]:
    """Documents with a right that may be lost."""
    sql = (
        f"SELECT {_LISTED} FROM documentos_fiscais WHERE principal = ? AND (estado IN"
        " ('RASCUNHO', 'TRANSMITIDO', 'INDETERMINADO', 'CANCELAMENTO_PENDENTE', 'REJEITADO', 'DIVERGENTE')"
        " OR incidente IS NOT NULL) ORDER BY emitido_em LIMIT ?"
    )
    return connection.rows(sql, (principal, limit))
