"""Process instances with workers killed at random and a payer that loses 30 % of its answers after acting.

Afterwards: every instance has ended, the payer's ledger has one accepted claim and one payment for each, every
outcome that was unknown was closed by evidence, and the clean-up that ran all the while took nothing that ran.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from chaos import Report, Setting, Trial
from chaos.processos_worker import runner_of
from umavez import Once, Status, open_store
from umavez_systems.database import Database, open_database
from umavez_systems.processos.domain import Lote, lote_of
from umavez_systems.processos.runner import Runner
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

WORKERS = 3
PAUSES = (0.1, 1.5)
"""Seconds between two kills."""
RATES = ("lose_after=0.3", "lose_before=0.05", "busy=0.01")
PATIENCE = 0.6
"""Seconds per instance after which the trial is called stuck, besides a minute for all."""
LOCAL = "local"
UNKNOWN = ("PortalSemResposta", "OutcomeUnknown")
OUTSIDE = ("Task_SubmitClaim", "process_payment")


def run(setting: Setting) -> Report:
    """Start `count` instances, kill workers until all have ended, then count."""
    report, chance = Report(), random.Random(setting.seed)
    prepare(Settings(database=setting.url))
    database = open_database(setting.url, 4)
    try:
        with _portal(setting) as portal:
            runner = runner_of(setting.url, portal)
            for number in range(setting.count):
                runner.start(LOCAL, f"p{number}", _lote(number), "PT0S")
            with _nursery(setting, portal) as nursery, Once(open_store(database.store_url), scope=LOCAL) as once:
                _harm(setting, runner, once, nursery, chance, report)
                _judge_records(once, database, setting.count, report)
            _judge_ledger(httpx.get(f"{portal}/simulator/ledger", timeout=60).json(), setting.count, report)
    finally:
        database.close()
    report.done = setting.count
    return report


def _harm(
    setting: Setting, runner: Runner, once: Once, nursery: Nursery, chance: random.Random, report: Report
) -> None:
    """Kill and replace workers, and clean up, until nothing is left to do or patience ends."""
    deadline = time.monotonic() + 60 + PATIENCE * setting.count
    for _ in range(WORKERS):
        nursery.bear()
    while (left := _left(runner)) and time.monotonic() < deadline:
        setting.advance(setting.count - left)
        time.sleep(chance.uniform(*PAUSES))
        nursery.kill_one(chance)
        report.sometimes["killed"] += 1
        _operate(once, runner, report)
        _clean_up(once, report)
    if left:
        report.blame(f"{left} of {setting.count} instances had not ended in time")


def _clean_up(once: Once, report: Report) -> None:
    """The hourly sweep, every moment: an expired decoy must go, and nothing that runs or is unknown may."""
    once.run("decoy", key=str(report.sometimes["killed"]), call=lambda: None, unknown="rerun", keep=0.2)
    running = [record for status in (Status.PENDING, Status.UNKNOWN) for record in once.find(status=status, limit=1000)]
    report.sometimes["swept"] += once.sweep()
    for record in running:
        if once.get(record.key.operation, record.key.value) is None:
            report.blame(f"the clean-up removed {record.key} while it was {record.status}")
    report.sometimes["ran during a clean-up"] += len(running)


def _left(runner: Runner) -> int:
    return sum(len(runner.instances(LOCAL, state, limit=10_000)) for state in ("ativo", "esperando", "incidente"))


def _operate(once: Once, runner: Runner, report: Report) -> None:
    """What a human does about an incident: the payer never got it, so its key is freed and the instance resumed."""
    for row in runner.instances(LOCAL, "incidente", limit=100):
        for record in once.find(process_instance=row["id"], status=Status.FAILED):
            once.release(record.key.operation, record.key.value, by="operator", reason="the payer never got it")
        runner.advance(LOCAL, row["id"], force=True)
        report.sometimes["incidents dealt with"] += 1


def _judge_records(once: Once, database: Database, count: int, report: Report) -> None:
    """Every instance ended paid; every record is a success; every doubt has evidence that closed it."""
    with database.statements() as connection:
        ends = connection.rows("SELECT estado, desfecho, motivo, count(*) AS n FROM processos GROUP BY 1, 2, 3")
        doubts = connection.rows(
            "SELECT DISTINCT processo, atividade, detalhe FROM processos_passos WHERE evento = 'adiada'"
        )
    for row in ends:
        if row["desfecho"] != "End_Paid":
            report.blame(f"{row['n']} instances are {row['estado']} at {row['desfecho']}: {row['motivo']}")
    doubted = {(row["processo"], row["atividade"]) for row in doubts if row["detalhe"].startswith(UNKNOWN)}
    for number in range(count):
        records = once.find(process_instance=f"p{number}")
        if [record.status for record in records] != [Status.SUCCESS] * 3:
            report.blame(f"p{number} has records {[(r.key.operation, r.status.value) for r in records]}")
        for record in records:
            said = [entry["what"] for entry in json.loads(record.evidence or "[]")]
            report.sometimes.update(said)
            open_doubt = (f"p{number}", record.activity) in doubted and record.activity in OUTSIDE
            if open_doubt and not {"adopted", "not happened"} & set(said):
                report.blame(f"p{number} {record.activity} was unknown and nothing says how it was closed")


def _judge_ledger(ledger: dict[str, list[dict[str, Any]]], count: int, report: Report) -> None:
    """One accepted claim and one payment each."""
    lotes = Counter(row["lote"] for row in ledger["submissions"])
    payments = Counter(row["protocolo"] for row in ledger["payments"])
    for number in range(count):
        if lotes[f"L{number}"] != 1:
            report.blame(f"the payer accepted lote L{number} {lotes[f'L{number}']} times")
    for row in ledger["submissions"]:
        protocolo = f"CLM-{row['id']:06d}"
        if payments[protocolo] != 1:
            report.blame(f"the payer paid {protocolo} {payments[protocolo]} times")
    report.sometimes["accepted"] = len(ledger["submissions"])
    report.sometimes["paid"] = len(ledger["payments"])


def _lote(number: int) -> Lote:
    guia = {
        "numeroGuiaPrestador": f"G{number}",
        "carteira": f"0{number:010d}",
        "beneficiario": "Maria Souza",
        "procedimento": "10101012",
        "valor": "150.00",
        "dataAtendimento": "2026-07-01",
    }
    lote = {"operadora": "326305", "prestador": "2077469", "numeroLote": f"L{number}", "tipoGuia": "sp_sadt"}
    return lote_of({**lote, "guias": [guia]})


@contextmanager
def _portal(setting: Setting) -> Iterator[str]:
    """The payer in a process of its own; its address."""
    command = [
        sys.executable,
        "-m",
        "umavez_systems.processos.portal.simulator",
        "--port",
        "0",
        "--seed",
        str(setting.seed),
    ]
    command += ["--database", str(setting.folder / f"portal-{setting.seed}-{setting.backend}.db")]
    for rate in RATES:
        command += ["--rate", rate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


class Nursery:
    """Bears workers and kills them, by their process id."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._workers: list[int] = []

    def bear(self) -> None:
        """One more worker."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("another\n")
        self._process.stdin.flush()
        self._workers.append(int(self._process.stdout.readline()))

    def kill_one(self, chance: random.Random) -> None:
        """kill -9 a worker and put another in its place."""
        os.kill(self._workers.pop(chance.randrange(len(self._workers))), signal.SIGKILL)
        self.bear()

    def end(self) -> None:
        """Kill them all."""
        for worker in self._workers:
            os.kill(worker, signal.SIGKILL)
        self._process.kill()


@contextmanager
def _nursery(setting: Setting, portal: str) -> Iterator[Nursery]:
    command = [sys.executable, "-m", "chaos.processos_worker", setting.url, portal]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        nursery = Nursery(process)
        try:
            yield nursery
        finally:
            nursery.end()


TRIALS = (
    Trial(
        "processos: workers killed, answers lost",
        run,
        ("sqlite", "postgres"),
        short=30,
        long=2000,
        sometimes=("killed", "adopted", "not happened", "swept", "ran during a clean-up"),
    ),
)
