"""Processos, put together: the operations and the runner over one database, one store and one portal."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from umavez import Codec, Event, JsonCodec, Record, Store
from umavez.reconcile import Reconciler
from umavez_systems.database import Database
from umavez_systems.processos import views
from umavez_systems.processos.attempts import Terms
from umavez_systems.processos.contas.database import Glosas
from umavez_systems.processos.contas.operations import Recursos
from umavez_systems.processos.database import Registros, Reservas
from umavez_systems.processos.operations import Faturamento
from umavez_systems.processos.portal.client import HttpPortal
from umavez_systems.processos.runner import Runner
from umavez_systems.settings import Settings

LOG = logging.getLogger("umavez.systems.processos")
ROUND = 20
"""Instances that one round inside the server moves on."""


@dataclass(frozen=True, slots=True)
class Processos:
    """What routes and commands use."""

    faturamento: Faturamento
    recursos: Recursos
    runner: Runner
    reconciler: Reconciler
    registros: Registros
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends a round early, without waiting for the payer."""

    def shown(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Records as they are shown, in the same order."""
        ids = self.registros.ids(records)
        return [views.record_shown(record, ids.get(record.key.digest)) for record in records]

    def work(self) -> None:
        """One round: ask about what nobody knows, then move on what is due. Any number of processes may do so."""
        report = self.reconciler.run(self.stop)
        if report.asked or report.errors:
            LOG.warning("Asked the payer about %d unknown outcomes: %s", report.asked, report)
        self.runner.work(ROUND, self.stop)

    def close(self) -> None:
        """Stop heartbeats, close the portal's connections and the store."""
        self.faturamento.close()


def open_processos(
    settings: Settings, database: Database, store: Store, observers: Iterable[Callable[[Event], None]] = ()
) -> Processos:
    """The system as the settings describe it; sealed where UMAVEZ_SEAL_KEYS is set."""
    codec = codec_of_environment()
    portal = HttpPortal(
        settings.portal_url, timeout=settings.portal_timeout_seconds, token=settings.portal_token.get_secret_value()
    )
    terms = Terms(settings.processos_lease_seconds, settings.processos_keep_seconds, settings.portal_quiet_seconds)
    faturamento = Faturamento(store, portal, Reservas(database), codec=codec, terms=terms, observers=observers)
    recursos = Recursos(faturamento, portal, Glosas(database, settings.processos_appeal_days))
    return Processos(
        faturamento,
        recursos,
        Runner(
            database,
            faturamento,
            codec=codec,
            pause=settings.processos_pause_seconds,
            hold=settings.processos_lease_seconds,
        ),
        faturamento.reconciler(patience=3 * settings.portal_timeout_seconds),
        Registros(database),
    )


def warn_unsealed() -> None:
    """Say it to whoever serves or works; the commands of other systems open this one, too, and keep nothing."""
    if not os.environ.get("UMAVEZ_SEAL_KEYS"):
        LOG.warning(
            "Patient data of processos is stored unsealed; set UMAVEZ_SEAL_KEYS=id:base64-of-32-bytes to seal it"
        )


def codec_of_environment() -> Codec:
    """A sealing codec where UMAVEZ_SEAL_KEYS is set: results and states hold patient data."""
    if not os.environ.get("UMAVEZ_SEAL_KEYS"):
        return JsonCodec()
    from umavez.encryption import SealedCodec  # noqa: PLC0415  # needs umavez[seal], only where keys are set

    return SealedCodec.from_environment()
