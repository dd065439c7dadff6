"""Processos, put together: the operations and the runner over one database, one store and one portal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from umavez import Codec, Event, JsonCodec, Store
from umavez_systems.database import Database
from umavez_systems.processos.operations import Faturamento, Terms
from umavez_systems.processos.portal_http import HttpPortal
from umavez_systems.processos.runner import Runner
from umavez_systems.settings import Settings


@dataclass(frozen=True, slots=True)
class Processos:
    """What routes and commands use."""

    faturamento: Faturamento
    runner: Runner

    def close(self) -> None:
        """Stop heartbeats, close the portal's connections and the store."""
        self.faturamento.close()


def open_processos(
    settings: Settings, database: Database, store: Store, observers: Iterable[Callable[[Event], None]] = ()
) -> Processos:
    """The system as the settings describe it; sealed where UMAVEZ_SEAL_KEYS is set."""
    codec = codec_of_environment()
    portal = HttpPortal(settings.portal_url, timeout=settings.portal_timeout_seconds, token=settings.portal_token)
    terms = Terms(settings.processos_lease_seconds, settings.processos_keep_seconds, settings.portal_quiet_seconds)
    faturamento = Faturamento(store, portal, codec=codec, terms=terms, observers=observers)
    return Processos(
        faturamento,
        Runner(
            database,
            faturamento,
            codec=codec,
            pause=settings.processos_pause_seconds,
            hold=settings.processos_lease_seconds,
        ),
    )


def codec_of_environment() -> Codec:
    """A sealing codec where UMAVEZ_SEAL_KEYS is set: results and states hold patient data."""
    if not os.environ.get("UMAVEZ_SEAL_KEYS"):
        return JsonCodec()
    from umavez.seal import SealedCodec  # noqa: PLC0415  # needs umavez[seal], only where keys are set

    return SealedCodec.from_environment()
