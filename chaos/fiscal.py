"""Fiscal documents with workers killed at random, 30 % of the authority's answers lost, and the authority restarted.

Afterwards: the authority has exactly one document per intent, every fifth cancelled; no number twice and no gap; ours
is the authority's state for every document; every proof is whole; and nobody asked above the budget.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from chaos import Report, Setting, Trial
from chaos.fiscal_worker import HOUR, WORKERS, system_of, undecided
from umavez_systems.fiscal.assembly import Sistema
from umavez_systems.fiscal.domain import Tipo
from umavez_systems.fiscal.simulador import keeper
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

LOCAL = "local"
PAUSES = (0.1, 0.5)
"""Seconds between two looks."""
KILLS = 100
"""About how many workers die in a run."""
RATES = {
    "queda/antes": 0.09,
    "queda/depois": 0.11,
    "meia/depois": 0.03,
    "500/antes": 0.02,
    "500/depois": 0.02,
    "429/antes": 0.01,
    "429/depois": 0.01,
    "lixo/depois": 0.01,
}
PATIENCE = 2.0 * HOUR
"""Seconds without any document decided after which the trial is called stuck: one that has used its questions up waits
for the next hour, and may lose that one's first answers, too. Time in which the authority is down by
the trial's own hand does not count: a busy machine takes half a minute to start it, and nothing can be decided then."""
PROOFS = 200
"""Chains that are checked link by link, the rest by their heads."""


GOODS = (Tipo.NFE, Tipo.NFCE)
ALL = (*GOODS, Tipo.NFSE_ADN, Tipo.NFSE_SP)


def run(setting: Setting, kinds: tuple[Tipo, ...] = GOODS) -> Report:
    """Emit `count` documents, kill until all are decided, then compare the books."""
    report, chance = Report(), random.Random(setting.seed)
    prepare(Settings(database=setting.url))
    folder = setting.folder / f"fiscal-{setting.seed}-{setting.backend}-{len(kinds)}{kinds[0]}"
    folder.mkdir()
    sim = keeper.manter(folder)
    _losing(sim, setting.seed)
    system = system_of(setting.url, str(folder))
    try:
        system.demo(LOCAL)
        with _nursery(setting, folder, kinds) as workers:
            sim = _harm(setting, system, folder, sim, workers, chance, report)
        sim = keeper.manter(folder)
        _judge(system, folder, httpx.get(f"{sim.controle}/_sim/livro", timeout=120).json(), setting.count, report)
    finally:
        system.close()
        found = keeper.em_pe(folder)
        if found is not None:
            os.kill(found.pid, signal.SIGKILL)
        keeper.parar(sim)
    report.done = setting.count
    return report


def _losing(sim: keeper.Simulador, seed: int) -> None:
    httpx.post(f"{sim.controle}/_sim/taxas", json={**RATES, "semente": seed}, timeout=30).raise_for_status()
    httpx.post(f"{sim.controle}/_sim/hora", json={"segundos": HOUR}, timeout=30).raise_for_status()


def _harm(
    setting: Setting,
    system: Sistema,
    folder: Path,
    sim: keeper.Simulador,
    workers: _Workers,
    chance: random.Random,
    report: Report,
) -> keeper.Simulador:
    """Kill workers, and now and then the authority itself, until nothing is left to do or patience ends."""
    for _ in range(WORKERS):
        workers.bear()
    shown, least, moved = 0, setting.count + 1, time.monotonic()
    while (left := len(undecided(system, setting.count))) and (left < least or time.monotonic() < moved + PATIENCE):
        if left < least:
            least, moved = left, time.monotonic()
        time.sleep(chance.uniform(*PAUSES))
        workers.replace_ended(report)
        if report.sometimes["killed"] and setting.count - left < shown + max(1, setting.count // KILLS):
            continue  # after the first, harm goes with progress: a busy machine is no reason to kill more
        setting.advance(setting.count - left - shown)
        shown = setting.count - left
        workers.kill_one(chance)
        report.sometimes["killed"] += 1
        if chance.random() < 0.1 or report.sometimes["killed"] == 1:
            sim, moved = _restarted(folder), time.monotonic()
            report.sometimes["authority restarted"] += 1
    if left:
        report.blame(f"{left} of {setting.count} documents were not decided in time")
        _explain(system, setting.count, report)
    return sim


def _explain(system: Sistema, count: int, report: Report) -> None:
    """Why some are not decided, as far as the books tell: their state, who holds them, when they are looked at."""
    for number in undecided(system, count)[:10]:
        with system.fiscal.database.statements() as connection:
            row = connection.row(
                "SELECT d.org_id, d.id_idempotencia, d.estado, d.tentativas, d.proximo_em, a.nome, a.estado AS ato,"
                " a.proximo_em AS ato_em FROM documentos_fiscais d"
                " LEFT JOIN fiscal_atos a ON a.documento_id = d.id AND a.acao = 'cancelar'"
                " WHERE d.idempotencia_key = ?",
                (f"intent-{number}",),
            )
        if row is None:
            report.blame(f"intent {number}: no document")
            continue
        emission = _held(system, "fiscal_emitir", row["org_id"], row["id_idempotencia"], row["proximo_em"])
        told = f"intent {number}: {row['estado']}, sent {row['tentativas']} times, {emission}"
        if row["nome"] is not None:
            act = _held(system, "fiscal_cancelar", row["org_id"], row["nome"], row["ato_em"])
            told += f"; cancellation {row['ato']}, {act}"
        report.blame(told)


def _held(system: Sistema, operation: str, org_id: str, name: str, due: int | None) -> str:
    """What the engine has of an act, and when it is looked at again."""
    record = system.once.get(operation, name, scope=org_id)
    held = None if record is None else (record.status.value, record.attempt, record.error)
    waits = "never" if due is None else f"in {due / 1000 - time.time():.0f} s"
    return f"next {waits}, engine {held}"


def _restarted(folder: Path) -> keeper.Simulador:
    """kill -9 the authority; whoever needs it first starts it again, with its books and its habit of losing."""
    found = keeper.em_pe(folder)
    if found is not None:
        os.kill(found.pid, signal.SIGKILL)
    return keeper.manter(folder)


def _judge(system: Sistema, folder: Path, book: dict[str, Any], count: int, report: Report) -> None:
    with system.fiscal.database.statements() as connection:
        rows = connection.rows("SELECT id, chave_acesso, estado, modelo, numero, origem FROM documentos_fiscais")
    theirs = Counter(row["chave"] for row in book["documentos"])
    states = {row["chave"]: row["situacao"] for row in book["documentos"]}
    if (len(rows), len(book["documentos"])) != (count, count):
        report.blame(f"{count} intents, {len(rows)} documents here, {len(book['documentos'])} at the authority")
    for row in rows:
        chave = row["chave_acesso"]
        if theirs[chave] != 1 or states.get(chave) != row["estado"]:
            report.blame(
                f"{chave}: ours is {row['estado']}, the authority's {states.get(chave)} ({theirs[chave]} times)"
            )
        report.sometimes[row["origem"]] += 1
    report.sometimes["destroyed notes"] = len(book["destruidas"])
    if book["destruidas"]:
        report.blame(f"{len(book['destruidas'])} notes destroyed: {book['destruidas'][:3]}")
    _judge_numbers(system, book, report)
    for row in rows[:PROOFS]:
        for fault in system.livros.prova(LOCAL, row["id"])["falhas"]:
            report.blame(f"proof of {row['chave_acesso']}: {fault}")
    with system.fiscal.database.statements() as connection:
        sql = "SELECT count(*) AS n FROM fiscal_provas WHERE tipo = 'bytes' AND conteudo LIKE '%\"lote\"%'"
        report.sometimes["sent in a batch"] = connection.rows(sql)[0]["n"]
    _judge_budget(folder, report)


def _judge_numbers(system: Sistema, book: dict[str, Any], report: Report) -> None:
    """No number twice, and none unexplained."""
    for number, times in Counter((row["modelo"], row["numero"]) for row in book["documentos"]).items():
        if times > 1:
            report.blame(f"number {number} was used {times} times")
    for series in system.livros.numeracao(LOCAL):
        if series.livro.abertos:
            report.blame(f"series {series.modelo}/{series.serie}: unexplained {series.livro.abertos[:5]}")


def _judge_budget(folder: Path, report: Report) -> None:
    """The authority's own count: no 656 ever."""
    with sqlite3.connect(folder / "livro.db") as books:
        most = (
            "SELECT alvo, count(*) FROM chamadas WHERE servico LIKE '%consulta' AND alvo NOT LIKE 'periodo/%'"
            " GROUP BY alvo ORDER BY 2 DESC LIMIT 1"
        )
        asked = books.execute(most).fetchone()
        pages = books.execute("SELECT count(*) FROM chamadas WHERE alvo LIKE 'periodo/%'").fetchone()[0]
        undue = books.execute("SELECT count(*) FROM chamadas WHERE codigo = '656'").fetchone()[0]
        duplicates = books.execute(
            "SELECT count(*) FROM chamadas WHERE codigo IN ('204', '573', 'E0014', 'E0840', '1301')"
        ).fetchone()[0]
    books.close()
    report.sometimes["most questions about one key"] = 0 if asked is None else asked[1]
    report.sometimes["pages of periods"] = pages
    report.sometimes["repeats recognised by the authority"] = duplicates
    if undue:
        report.blame(f"asked too often: {undue} times 656")


class _Workers:
    """Bears workers and kills them, by their process id."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._alive: list[int] = []

    def bear(self) -> None:
        """One more worker."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("another\n")
        self._process.stdin.flush()
        self._alive.append(int(self._process.stdout.readline()))

    def kill_one(self, chance: random.Random) -> None:
        """kill -9 a worker and put another in its place."""
        victim = self._alive.pop(chance.randrange(len(self._alive)))
        if _lives(victim):
            os.kill(victim, signal.SIGKILL)
        self.bear()

    def replace_ended(self, report: Report) -> None:
        """A worker that ended by itself has said why; it is a violation, and another takes its place."""
        for worker in [one for one in self._alive if not _lives(one)]:
            report.blame(f"worker {worker} ended by itself")
            self._alive.remove(worker)
            self.bear()

    def end(self) -> None:
        """Kill them all."""
        for worker in filter(_lives, self._alive):
            os.kill(worker, signal.SIGKILL)
        self._process.kill()


def _lives(worker: int) -> bool:
    """Whether a worker is there; the nursery leaves no zombies."""
    try:
        os.kill(worker, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _nursery(setting: Setting, folder: Path, kinds: tuple[Tipo, ...]) -> Iterator[_Workers]:
    command = [sys.executable, "-m", "chaos.fiscal_worker", setting.url, str(folder), str(setting.count)]
    command.append(",".join(kinds))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        workers = _Workers(process)
        try:
            yield workers
        finally:
            workers.end()


TRIALS = tuple(
    Trial(
        f"fiscal{name}: workers killed, answers lost, authority restarted",
        partial(run, kinds=kinds),
        ("sqlite", "postgres"),
        short=12,
        long=5000,
        sometimes=("killed", "conciliacao", "emissao", "authority restarted"),
    )
    for name, kinds in (("", GOODS), (", adn", (Tipo.NFSE_ADN,)), (", sp", (Tipo.NFSE_SP,)), (", all four kinds", ALL))
)
