"""What each system shows in the console: a few numbers, counted by an index up to a bound, and ways to its pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from umavez import Record
from umavez.console import Link, Panel, Tile
from umavez_systems.database import Database, open_database
from umavez_systems.mailing.domain import COUNTER, leaks

MOST = 1_000
"""Where counting ends."""
PATIENCE = 2.0
"""Seconds that one statement may take."""


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

    @property
    def database(self) -> Database:
        """Where the system's tables are."""
        if self._database is None:
            self._database = open_database(self._url, 1, PATIENCE)
        return self._database

    def tile(self) -> Tile | None:
        """The answers to its questions."""
        counts = [(question, self._counted(question)) for question in self._questions]
        lines = tuple((question.label, f"{MOST}+" if many > MOST else str(many)) for question, many in counts)
        return Tile(self.name, lines, self.page, alarm=any(each.alarm and many for each, many in counts))

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
        with self.database.statements() as connection:
            row = connection.row("SELECT * FROM mailings ORDER BY id DESC LIMIT 1")
        if row is None:
            return Tile(self.name, (("listas", "0"),), self.page)
        states = tuple((name, str(row[name])) for name in COUNTER.values() if row[name])
        missing = leaks(row)
        lines = ((str(row["nome"]), str(row["status"])), ("total", str(row["entradas"])), *states)
        proof = ("a conta fecha", "sim") if not missing else ("a conta NÃO fecha", "; ".join(missing))
        return Tile(self.name, (*lines, proof), self.page, alarm=bool(missing or row["desconhecidos"]))


class FiscalPanel(SystemPanel):
    """Documents that wait for the authority, and the way from an access key to its proof."""

    def find(self, word: str) -> Sequence[Link]:
        """The documents of an access key, or of an id."""
        text = "SELECT id, tipo, numero FROM documentos_fiscais WHERE {column} = ? LIMIT 5"
        with self.database.statements() as connection:
            rows = [
                row for column in ("chave_acesso", "id") for row in connection.rows(text.format(column=column), (word,))
            ]
        return [
            Link(f"{row['tipo']} {row['numero']}", f"/api/v1/fiscal/documentos/{quote(row['id'])}/prova")
            for row in rows
        ]


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
        FiscalPanel(
            "Fiscal",
            "/fiscal",
            (
                Question("autoridade não respondeu", "documentos_fiscais", "estado = 'INDETERMINADO'", alarm=True),
                Question("divergentes", "documentos_fiscais", "estado = 'DIVERGENTE'", alarm=True),
                Question("transmitidos, sem resposta", "documentos_fiscais", "estado = 'TRANSMITIDO'"),
                Question("cancelamentos pendentes", "documentos_fiscais", "estado = 'CANCELAMENTO_PENDENTE'"),
            ),
            url,
            shared,
        ),
        SystemPanel(
            "Corridas",
            "/corridas",
            (
                Question(
                    "corridas em andamento", "rides", "status IN ('accepted', 'started') AND driver_id IS NOT NULL"
                ),
                Question(
                    "confirmações à espera", "ride_confirmations", "NOT is_used AND expires_at > CURRENT_TIMESTAMP"
                ),
            ),
            url,
            shared,
        ),
        ProcessosPanel(
            "Processos",
            "/processos",
            tuple(
                Question(label, "processos", f"estado = '{state}'", alarm)
                for label, state, alarm in (
                    ("incidentes", "incidente", True),
                    ("esperando", "esperando", False),
                    ("ativos", "ativo", False),
                )
            ),
            url,
            shared,
        ),
    ]
