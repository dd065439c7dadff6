"""Mailings with a worker frozen by SIGSTOP: between two statements, and inside a transaction of SQLite."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from chaos import Report, Setting, Trial
from chaos.mailing import GROUP, LOCK, STALL, Ledger, judge, settle, stage, until, uploaded
from chaos.mailing_worker import started
from umavez import StoreUnavailable
from umavez_systems.web import Carrier

BUSY = 2.0
"""Seconds that a statement may take while somebody frozen has the file."""


def frozen(setting: Setting) -> Report:
    """Freeze a worker past its lock, let another finish, wake it: it changes nothing and sends what was in its hand."""
    report = Report()
    many = 6 * GROUP
    with stage(setting, mailing_connections=1) as (carrier, ledger, given):
        for place in range(setting.count):
            name = f"f{setting.seed}-{place}"
            ledger.delay = 0.05
            mailing = uploaded(carrier, name, many, "reenviar")
            victim = started(given)
            until(lambda: sum(ledger.mails[f"u{one}@{name}.example"] for one in range(many)) >= GROUP // 2)  # noqa: B023  # used at once
            _freeze(victim.pid or 0, setting, report)
            report.sometimes["frozen"] += 1
            time.sleep(LOCK * 1.2)
            ledger.delay = 0.0
            settle(carrier, given, [mailing], report)
            before = seen(carrier, ledger, mailing)
            os.kill(victim.pid or 0, signal.SIGCONT)
            time.sleep(LOCK)
            row, entries, mails = seen(carrier, ledger, mailing)
            if (row, entries) != before[:2]:
                report.blame(f"{name}: a woken worker changed its mailing")
            if mails > before[2] + 1:
                report.blame(f"{name}: a woken worker sent {mails - before[2]} mails")
            report.sometimes[f"sent after waking: {mails - before[2]}"] += 1
            victim.kill()
            victim.join()
            judge(carrier, ledger, mailing, name, many, report)
            report.done += many
            setting.advance(1)
    return report


def frozen_inside(setting: Setting) -> Report:
    """Freeze a worker inside a transaction of SQLite: others are told so in time, and when it wakes nothing is missing.

    Nobody can take over meanwhile: whoever writes has the whole file.
    """
    report = Report()
    many = 6 * GROUP
    with stage(setting, mailing_connections=1, database_timeout_seconds=BUSY) as (carrier, ledger, given):
        for place in range(setting.count):
            name = f"i{setting.seed}-{place}"
            ledger.delay = 0.02
            mailing = uploaded(carrier, name, many, "reenviar")
            victim = started(given)
            until(lambda: ledger.mails[f"u0@{name}.example"] > 0)  # noqa: B023  # used at once
            if _caught(victim.pid or 0, setting.url):
                report.sometimes["frozen inside"] += 1
                time.sleep(LOCK * 1.2)
                _refused(carrier, name, report)
            os.kill(victim.pid or 0, signal.SIGCONT)
            ledger.delay = 0.0
            settle(carrier, given, [mailing], report)
            victim.kill()
            victim.join()
            repeated = judge(carrier, ledger, mailing, name, many, report)[1]
            if repeated > GROUP:
                report.blame(f"{name}: {repeated} written to twice, more than one group")
            report.done += many
            setting.advance(1)
    return report


def _caught(victim: int, url: str) -> bool:
    """Whether the worker could be stopped at a moment in which it has the file."""
    deadline = time.monotonic() + STALL
    while time.monotonic() < deadline:
        _stop(victim)
        if not _writable(url):
            return True
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.003)
    return False


def _refused(carrier: Carrier, name: str, report: Report) -> None:
    """Who wants to write meanwhile must hear of it, within the time that a statement may take."""
    began = time.monotonic()
    try:
        carrier.mailing.holdings.recover()
        report.blame(f"{name}: somebody wrote although a frozen worker has the file")
    except StoreUnavailable:
        report.sometimes["others were told"] += 1
    if time.monotonic() - began > BUSY + 2:
        report.blame(f"{name}: others were told after {time.monotonic() - began:.1f} s")


def _freeze(victim: int, setting: Setting, report: Report) -> None:
    """Stop a worker outside of a statement: inside one it keeps the whole file of SQLite locked until it wakes."""
    _stop(victim)
    while setting.backend == "sqlite" and not _writable(setting.url):
        report.sometimes["frozen in a statement"] += 1
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.02)
        _stop(victim)


def _stop(victim: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: on its way there one may still take SQLite's lock."""
    os.kill(victim, signal.SIGSTOP)
    until(lambda: _states(victim) <= {"T"}, STALL)


def _states(process: int) -> set[str]:
    """What the threads of a process are doing, as /proc says."""
    tasks = Path(f"/proc/{process}/task").glob("*/stat")
    return {task.read_text().rpartition(")")[2].split()[0] for task in tasks}


def _writable(url: str) -> bool:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def seen(carrier: Carrier, ledger: Ledger, mailing: str) -> tuple[Any, Any, int]:
    """A mailing and its entries as they stand, and how many mails came in all."""
    cases = carrier.mailing.cases
    return cases.mailing("local", mailing), cases.entries("local", mailing, None, "", 1000), ledger.mails.total()


TRIALS = (
    Trial("mailing: frozen worker", frozen, ("sqlite", "postgres"), 1, 10, ("frozen",)),
    Trial("mailing: frozen inside a transaction", frozen_inside, ("sqlite",), 1, 10, ("frozen inside",)),
)
