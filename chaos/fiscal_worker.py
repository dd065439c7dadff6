"""A nursery of workers on fiscal documents: imports everything once, then forks one for each line it reads."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import traceback
from decimal import Decimal
from pathlib import Path

from chaos import given
from umavez import Once, UmavezError
from umavez_systems.database import open_database
from umavez_systems.fiscal.assembly import DEMO_DATA, Sistema, Tempos
from umavez_systems.fiscal.atos.governor import Limites
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Destinatario, Endereco, Item, Pagamento, Pedido, Servico, Tipo
from umavez_systems.fiscal.operations import Termos
from umavez_systems.problems import Problem

WORKERS = 4
CANCELLED = 5
"""Every so many intents is cancelled after it is authorised."""
WHERE = Endereco(**DEMO_DATA["endereco"])
ROUND = 10
"""Intents between two looks at what others left behind."""
BATCHED = 0.3
"""How many of the rounds begin with a batch of their documents of São Paulo."""
HURRY = 20
"""All pauses are shortened by this, so that the storm is about losses and not about waiting; the hour in which
questions are counted too, here and at the authority: a document that has used its own up waits for the next."""
HOUR = 3600 // HURRY
"""Seconds."""


def system_of(url: str, folder: str) -> Sistema:
    """A system of its own: connections are never shared with another process."""
    database = open_database(url, 2)
    once = Once(database.store_url, scope="umavez")
    terms = Termos(
        lease=2.0,
        settle=10 / HURRY,
        first=30 / HURRY,
        cap=600 / HURRY,
        patience=20.0,
        quarentena=60 / HURRY,
        conferir=120 / HURRY,
    )
    return Sistema(
        once,
        database,
        folder=Path(folder),
        tempos=Tempos(5.0, 5.0),
        termos=terms,
        limites=Limites(hora=HOUR * 1000, bloqueio=HOUR * 1000, folga=6000),
        sleep=lambda seconds: time.sleep(seconds / HURRY),
    )


def order(number: int, kinds: tuple[Tipo, ...]) -> Pedido:
    """What intent number `number` asks for."""
    kind = kinds[number % len(kinds)]
    if kind.de_servico:
        code, price = "02919" if kind is Tipo.NFSE_SP else "010101", Decimal(1 + number % 900)
        done = Servico("Consultoria", code, price, aliquota=Decimal(2))
        return Pedido(kind, "demo", 1, (), (), Destinatario("Maria Souza", cpf="52998224725"), servico=done)
    item = Item(str(number), "Caneta", "96081000", "5102", "UN", Decimal(1 + number % 9), Decimal("1.50"))
    buyer = Destinatario("Maria Souza", cpf="52998224725", endereco=WHERE)
    return Pedido(kind, "demo", 1, (item,), (Pagamento("01", item.valor),), buyer)


def labour(url: str, folder: str, count: int, slot: int, kinds: tuple[Tipo, ...]) -> None:
    """Work on what is not yet where it belongs, beginning elsewhere than the others; until killed or orphaned."""
    system, nursery = system_of(url, folder), os.getppid()
    chance = random.Random(slot)
    while os.getppid() == nursery:
        # A database that is too busy to answer is met again in the next round; anything else ends the worker loudly.
        with contextlib.suppress(UmavezError, Problem):
            _round(system, count, chance, kinds)


def _round(system: Sistema, count: int, chance: random.Random, kinds: tuple[Tipo, ...]) -> None:
    """Some of the intents that are left, then what dead workers left behind."""
    left = undecided(system, count)
    if not left:
        time.sleep(0.1)
    picked = chance.sample(left, min(len(left), ROUND))
    if chance.random() < BATCHED:
        with contextlib.suppress(UmavezError, Problem):
            _work_together(system, picked, kinds, transacao=chance.random() < 0.5)
    for number in picked:
        with contextlib.suppress(UmavezError, Problem):
            _work(system, number, kinds)
    system.livros.varrer(ROUND)


def undecided(system: Sistema, count: int) -> list[int]:
    """The intents that are not yet where they belong."""
    with system.fiscal.database.statements() as connection:
        rows = connection.rows("SELECT idempotencia_key, estado FROM documentos_fiscais")
    states = {row["idempotencia_key"]: row["estado"] for row in rows}
    wanted = {number: "AUTORIZADO" if number % CANCELLED else "CANCELADO" for number in range(count)}
    return [number for number, state in wanted.items() if states.get(f"intent-{number}") != state]


def _work(system: Sistema, number: int, kinds: tuple[Tipo, ...]) -> None:
    caller = Caller("local", f"intent-{number}")
    made = system.fiscal.emitir(caller, order(number, kinds))
    if number % CANCELLED == 0 and made.row["estado"] == "AUTORIZADO":
        system.fiscal.cancelar(caller, made.row["id"], "Pedido desfeito pelo cliente", made.row["versao"])


def _work_together(system: Sistema, numbers: list[int], kinds: tuple[Tipo, ...], *, transacao: bool) -> None:
    """Those of São Paulo in one message; what others began is shown as it is."""
    orders = [(Caller("local", f"intent-{number}"), order(number, kinds)) for number in numbers]
    wanted = [one for one in orders if one[1].tipo is Tipo.NFSE_SP]
    if wanted:
        system.lotes.emitir(wanted, transacao=transacao)


def nurse(url: str, folder: str, count: str, kinds: str) -> None:
    """Fork a worker for every line of input and print its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for slot, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            try:
                labour(url, folder, int(count), slot, tuple(map(Tipo, kinds.split(","))))
            except BaseException:  # noqa: BLE001  # a worker that dies by itself must say so: nobody replaces it
                traceback.print_exc()
            finally:
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    nurse(*given(__doc__, "url", "folder", "count", "kinds"))
