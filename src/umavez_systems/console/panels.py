"""What each system shows in the console: a few numbers, counted by an index up to a bound, and ways to its pages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from umavez import Record
from umavez.console import Link, Panel, Tile
from umavez_systems.database import Database, open_database
from umavez_systems.fiscal.domain import Estado
from umavez_systems.fiscal.rules.deadlines import Pendencia, Situacao, pendencias
from umavez_systems.fiscal.rules.identifiers import UFS
from umavez_systems.mailing.domain import COUNTER, leaks

MOST = 1_000
"""Where counting ends."""
PATIENCE = 2.0
"""Seconds that one statement may take."""

MOST_OPEN = 200
"""Open fiscal documents, the oldest, whose deadlines are looked at."""
PORTUGUESE = {
    "lists": "listas",
    "sent": "enviados",
    "failed": "falhas",
    "invalid": "inválidos",
    "suppressed": "suprimidos",
    "in doubt": "em dúvida",
    "being sent": "enviando",
    "waiting": "esperando",
    "it adds up": "a conta fecha",
    "it does NOT add up": "a conta NÃO fecha",
    "yes": "sim",
    "the authority did not answer": "autoridade não respondeu",
    "divergent": "divergentes",
    "sent, no answer yet": "transmitidos, sem resposta",
    "cancellations pending": "cancelamentos pendentes",
    "first deadline": "primeiro prazo",
    "none": "nenhum",
    "too late": "prazos vencidos",
    "rides under way": "corridas em andamento",
    "confirmations waiting": "confirmações à espera",
    "incidents": "incidentes",
    "active": "ativos",
}
"""What the tiles say, for readers of Portuguese."""

_THERE = {
    "sqlite": "SELECT 1 AS there FROM sqlite_master WHERE type = 'table' AND name = 'mailings'",
    "postgres": "SELECT 1 AS there WHERE to_regclass('mailings') IS NOT NULL",
}


class Question(NamedTuple):
    """A line of a tile: how many rows match; above 0 somebody should look, where it is an `alarm`."""

    label: str
    table: str
    where: str
    alarm: bool = False


class SystemPanel:
    """A system with questions to its tables. `shared` is the server's own database; else one is opened when needed."""

    def __init__(self, name: str, page: str, questions: Sequence[Question], url: str, shared: Database | None) -> None:
        self.name = name
        self.page: str | None = page
        self._questions = questions
        self._url = url
        self._database = shared
        self._own = shared is None
        self._there: bool | None = None if self._own else True

    @property
    def database(self) -> Database:
        """Where the system's tables are."""
        if self._database is None:
            self._database = open_database(self._url, 1, PATIENCE)
        return self._database

    @property
    def there(self) -> bool:
        """Whether the database has the systems' tables: a store may be anybody's."""
        if self._there is None:
            text = _THERE["sqlite" if self._url.startswith("sqlite") else "postgres"]
            with self.database.statements() as connection:
                self._there = bool(connection.rows(text))
        return self._there

    def tile(self) -> Tile | None:
        """The answers to its questions."""
        if not self.there:
            return None
        counts = [(question, self._counted(question)) for question in self._questions]
        lines = tuple((question.label, f"{MOST}+" if many > MOST else str(many)) for question, many in counts)
        alarm = any(each.alarm and many for each, many in counts)
        return Tile(self.name, lines, self.page, alarm, PORTUGUESE)

    def _counted(self, question: Question) -> int:
        text = f"SELECT 1 AS one FROM {question.table} WHERE {question.where} LIMIT {MOST + 1}"  # noqa: S608  # constants
        with self.database.statements() as connection:
            return len(connection.rows(text))

    def find(self, word: str) -> Sequence[Link]:
        """Nothing, unless a system knows more."""
        return ()

    def links(self, record: Record) -> Sequence[Link]:
        """Nothing, unless a system knows more."""
        return ()

    def close(self) -> None:
        """Close what was opened here."""
        if self._own and self._database is not None:
            self._database.close()
            self._database = None


class MailingPanel(SystemPanel):
    """The newest mailing as an equation that must hold: total = sent + refused + in doubt + on the way + waiting."""

    def tile(self) -> Tile | None:
        """The equation."""
        if not self.there:
            return None
        with self.database.statements() as connection:
            row = connection.row("SELECT * FROM mailings ORDER BY id DESC LIMIT 1")
        if row is None:
            return Tile(self.name, (("lists", "0"),), self.page, portuguese=PORTUGUESE)
        states = tuple((_COUNTED[name], str(row[name])) for name in COUNTER.values() if row[name])
        missing = leaks(row)
        lines = ((str(row["nome"]), str(row["status"])), ("total", str(row["entradas"])), *states)
        proof = ("it adds up", "yes") if not missing else ("it does NOT add up", "; ".join(missing))
        alarm = bool(missing or row["desconhecidos"])
        return Tile(self.name, (*lines, proof), self.page, alarm, PORTUGUESE)


_COUNTED = {
    "pendentes": "waiting",
    "enviando": "being sent",
    "enviados": "sent",
    "falhas": "failed",
    "invalidos": "invalid",
    "suprimidos": "suppressed",
    "desconhecidos": "in doubt",
}


class FiscalPanel(SystemPanel):
    """Documents that wait for the authority, the right that is lost first, the last number of each series."""

    def tile(self) -> Tile | None:
        """What waits, with the first deadline and where the series stand."""
        counted = super().tile()
        if counted is None:
            return None
        with self.database.statements() as connection:
            rows = connection.rows(_OPEN)
            series = connection.rows(_SERIES)
        now = int(time.time() * 1000)
        rights = pendencias([_situation(row) for row in rows])
        late = sum(right.vencida(now) for right in rights)
        lines = [*counted.lines, ("first deadline", _deadline(rights))]
        lines += [("too late", str(late))] if late else []
        lines += [(f"{row['modelo']}/{row['serie']}", f"nº {row['ultimo_numero']}") for row in series]
        return counted._replace(lines=tuple(lines), alarm=counted.alarm or bool(late))

    def find(self, word: str) -> Sequence[Link]:
        """The documents of an access key, or of an id."""
        if not self.there:
            return []
        text = "SELECT id, tipo, numero FROM documentos_fiscais WHERE {column} = ? LIMIT 5"
        with self.database.statements() as connection:
            rows = [
                row for column in ("chave_acesso", "id") for row in connection.rows(text.format(column=column), (word,))
            ]
        return [
            Link(f"{row['tipo']} {row['numero']}", f"/api/v1/fiscal/documentos/{quote(row['id'])}/prova")
            for row in rows
        ]


_STATES = ("RASCUNHO", "TRANSMITIDO", "INDETERMINADO", "CANCELAMENTO_PENDENTE", "DIVERGENTE")
_LISTED = ", ".join(f"'{state}'" for state in _STATES)
_OPEN = f"SELECT * FROM documentos_fiscais WHERE estado IN ({_LISTED}) ORDER BY emitido_em LIMIT {MOST_OPEN}"  # noqa: S608  # constants
_SERIES = "SELECT modelo, serie, ultimo_numero FROM faixas_numeracao ORDER BY org_id, modelo, serie LIMIT 3"


def _situation(row: Mapping[str, Any]) -> Situacao:
    state = next((uf for uf, number in UFS.items() if number == (row["chave_acesso"] or "")[:2]), "")
    return Situacao(
        row["id"],
        row["modelo"],
        state,
        Estado(row["estado"]),
        row["tp_emis"],
        row["emitido_em"],
        row["autorizado_em"],
        row["epec_em"],
        row["incidente"] is not None,
    )


def _deadline(rights: Sequence[Pendencia]) -> str:
    if not rights:
        return "none"
    return f"{datetime.fromtimestamp(rights[0].vence_em // 1000, UTC):%d/%m %H:%M} UTC"


class ProcessosPanel(SystemPanel):
    """Instances of processes, and the way from a record to its instance."""

    def links(self, record: Record) -> Sequence[Link]:
        """The instance that a record belongs to."""
        if record.process_instance is None or record.activity is None:
            return ()
        return [Link(f"processo {record.process_instance}", f"/processos/{quote(record.process_instance, safe='')}")]


def panels(url: str, shared: Database | None = None) -> list[Panel]:
    """The panels of every system whose tables are at `url`. For the entry point `umavez.console_panels`, too."""
    if not url.startswith(("sqlite:", "postgres")):
        return []
    return [
        MailingPanel("Mailing", "/mailing", (), url, shared),
        FiscalPanel("Fiscal", "/fiscal", _FISCAL, url, shared),
        SystemPanel("Corridas", "/corridas", _CORRIDAS, url, shared),
        ProcessosPanel("Processos", "/processos", _PROCESSOS, url, shared),
    ]


_FISCAL = (
    Question("the authority did not answer", "documentos_fiscais", "estado = 'INDETERMINADO'", alarm=True),
    Question("divergent", "documentos_fiscais", "estado = 'DIVERGENTE'", alarm=True),
    Question("sent, no answer yet", "documentos_fiscais", "estado = 'TRANSMITIDO'"),
    Question("cancellations pending", "documentos_fiscais", "estado = 'CANCELAMENTO_PENDENTE'"),
)
_CORRIDAS = (
    Question("rides under way", "rides", "status IN ('accepted', 'started') AND driver_id IS NOT NULL"),
    Question("confirmations waiting", "ride_confirmations", "NOT is_used AND expires_at > CURRENT_TIMESTAMP"),
)
_PROCESSOS = (
    Question("incidents", "processos", "estado = 'incidente'", alarm=True),
    Question("waiting", "processos", "estado = 'esperando'"),
    Question("active", "processos", "estado = 'ativo'"),
)
