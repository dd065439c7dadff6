"""Mailings with workers killed at every step and at random, and frozen; a sink counts what arrives, by address.

Held under every policy: nothing is lost (each address got its mail or is listed as UNKNOWN), the counters agree with
the tables, and a mailing is SENT only when nobody waits. Under `segurar` nobody is written to twice; under
`reenviar` everybody is written to, and repetitions stay within one group for each kill.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from chaos import Report, Setting, Trial
from chaos.mailing_worker import STEPS, started
from tests.servers import KINDS, CannotStart, Run
from umavez import StoreError
from umavez_systems.mailing.domain import leaks
from umavez_systems.mailing.ingest.uploads import spooled
from umavez_systems.mailing.operations import Upload
from umavez_systems.mailing.providers.smtpd import Sink
from umavez_systems.server import prepare
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

POLICIES = ("segurar", "reenviar", "perguntar")
GROUP = 8
MANY = 2 * GROUP + 3
LOCK = 1.0
PATIENCE = 60.0
WORKERS = 3
STALL = 10.0
"""Seconds after which the next harm is done although no mail came: something else is in the middle of its work."""
STORM_GROUP = 50
FEW = 10
"""Harms up to which a storm is a short one: over few mails, which are held back until it has begun."""
FORGETFUL = 12.0
"""Seconds. RabbitMQ 3.10 forgets a quorum queue, with what it confirmed, when it is killed right after declaring it."""
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Ledger:
    """An SMTP server in a thread of its own that counts how often each address was written to."""

    def __init__(self) -> None:
        self.mails: Counter[str] = Counter()
        self.delay = 0.0
        self._allowed = threading.Semaphore(0)
        self._held = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(30)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        sink = Sink(self._take)
        self.port = await sink.listen("127.0.0.1", 0)
        self._ready.set()
        await self._stop.wait()
        await sink.close()

    def _take(self, _: str, recipient: str, content: bytes) -> str | None:
        if self._held:
            self._allowed.acquire(timeout=PATIENCE)
        self.mails[recipient] += 1
        if self.delay:
            time.sleep(self.delay)
        return "250 2.0.0 OK"

    def hold(self) -> None:
        """Take no mail that was not allowed: a storm among few mails is not over before it has begun."""
        self._held = True

    def allow(self, many: int) -> None:
        """Let this many held mails pass, and wait until they did."""
        before = self.mails.total()
        self._allowed.release(many)
        until(lambda: self.mails.total() >= before + many)

    def let_go(self) -> None:
        """Hold nothing any more."""
        self._held = False
        self._allowed.release(1)

    def close(self) -> None:
        """Stop serving."""
        self.let_go()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


@contextmanager
def stage(setting: Setting, **more: Any) -> Iterator[tuple[Carrier, Ledger, dict[str, Any]]]:
    """A database, a counting sink, and the settings that workers need to reach both."""
    ledger = Ledger()
    given = {
        "database": setting.url,
        "storage": f"{setting.folder}/lists",
        "smtp_url": f"smtp://127.0.0.1:{ledger.port}?starttls=never",
        "mailing_lock_seconds": LOCK,
        "mailing_recovery_seconds": LOCK / 2,
        "mailing_group": GROUP,
        "mailing_connections": 2,
        **more,
    }
    settings = Settings(**given)
    prepare(settings)
    carrier = Carrier(settings)
    try:
        yield carrier, ledger, given
    finally:
        carrier.close()
        ledger.close()


def uploaded(carrier: Carrier, name: str, many: int, policy: str) -> str:
    """A mailing to `many` people whose addresses occur nowhere else."""
    with spooled(carrier.settings.spool) as spool:
        spool.write(b"email\n" + b"".join(b"u%d@%s.example\n" % (one, name.encode()) for one in range(many)))
        spool.close()
        fields = {"duvida": policy, "texto": "oi"}
        row, _ = carrier.mailing.cases.upload("local", Upload(f"{name}.csv", fields), spool)
    return str(row["id"])


def ended(carrier: Carrier, mailings: list[str]) -> bool:
    """Whether nothing more will happen by itself."""
    try:
        return all(carrier.mailing.cases.mailing("local", one)["status"] in ("SENT", "PAUSED") for one in mailings)
    except StoreError:
        return False  # our own connection was cut, too; the next look has a new one


def judge(carrier: Carrier, ledger: Ledger, mailing: str, name: str, many: int, report: Report) -> tuple[int, int, int]:
    """Lost, repeated and unknown of a mailing; what must not be is blamed."""
    row = carrier.mailing.cases.mailing("local", mailing)
    unknown = {one["email"] for one in carrier.mailing.cases.entries("local", mailing, "UNKNOWN", "", 1_000_000)}
    people = [f"u{one}@{name}.example" for one in range(many)]
    lost = [one for one in people if not ledger.mails[one] and one not in unknown]
    repeated = sum(ledger.mails[one] - 1 for one in people if ledger.mails[one] > 1)
    where = f"{name} ({row['duvida']}, {row['status']})"
    if lost:
        report.blame(f"{where}: {len(lost)} lost, such as {lost[0]}")
    if leaks(row) or row["entradas"] != many or row["pendentes"] or row["enviando"]:
        report.blame(f"{where}: the counters say {dict(row)}")
    if row["duvida"] != "reenviar" and repeated:
        report.blame(f"{where}: {repeated} written to twice")
    if row["duvida"] == "reenviar" and (unknown or row["status"] != "SENT"):
        report.blame(f"{where}: {len(unknown)} unknown though they may be sent again")
    if (row["status"] == "SENT") == bool(unknown):
        report.blame(f"{where}: {len(unknown)} unknown")
    return len(lost), repeated, len(unknown)


def matrix(setting: Setting) -> Report:
    """Kill a worker at each numbered step under each policy; print lost, repeated and unknown for each cell."""
    report = Report()
    cells = [(step, policy) for step in STEPS for policy in POLICIES]
    if setting.count < len(cells):
        cells = random.Random(setting.seed).sample(cells, setting.count)
    found: dict[str, str] = {}
    with stage(setting) as (carrier, ledger, given):
        for place, (step, policy) in enumerate(cells):
            name = f"m{setting.seed}-{place}"
            mailing = uploaded(carrier, name, MANY, policy)
            victim = started(given, step)
            victim.join(PATIENCE)
            if victim.exitcode != -signal.SIGKILL:
                report.blame(f"{step}: the worker never came there ({victim.exitcode})")
                victim.kill()
            report.sometimes["killed"] += 1
            settle(carrier, given, [mailing], report)
            cell = judge(carrier, ledger, mailing, name, MANY, report)
            report.sometimes["unknown"] += cell[2]
            found[step] = f"{found.get(step, '')}  {policy} {cell}"
            report.done += MANY
            setting.advance(1)
    print(f"crash matrix on {setting.backend}, seed {setting.seed}, {MANY} mails a cell, groups of {GROUP}:")
    print("  killed after              (lost, repeated, unknown) under each policy")
    print(*(f"  {step:<24}{told}" for step, told in sorted(found.items())), sep="\n")
    return report


def settle(
    carrier: Carrier, given: dict[str, Any], mailings: list[str], report: Report, patience: float = PATIENCE
) -> None:
    """Let one healthy worker finish what is left."""
    worker = started(given)
    deadline = time.monotonic() + patience
    while not ended(carrier, mailings) and time.monotonic() < deadline:
        time.sleep(0.1)
    if not ended(carrier, mailings):
        found = [carrier.mailing.cases.mailing("local", one) for one in mailings]
        report.blame(f"not ended in time: {[(one['status'], one['motivo'], one['pendentes']) for one in found]}")
    worker.terminate()
    worker.join(30)
    worker.kill()


def storm(setting: Setting) -> Report:
    """Kill one of three workers `count` times at random; the relay, too, and cut the database's connections."""
    return _stormed(setting, None)


def broker_storm(setting: Setting) -> Report:
    """The same through RabbitMQ, which is killed and restarted, too."""
    run = Run.begin()
    try:
        return _stormed(setting, run.private(KINDS["rabbitmq"]))
    except CannotStart as error:
        return Report(skipped=str(error))
    finally:
        run.end()


def _stormed(setting: Setting, broker: Any) -> Report:
    report, chance = Report(), random.Random(setting.seed)
    many = (2000 if broker is not None else 700) * setting.count if setting.count > FEW else 50 * setting.count
    more = {} if broker is None else {"broker": broker.url}
    with stage(setting, mailing_group=STORM_GROUP, mailing_connections=5, **more) as (carrier, ledger, given):
        workers = [started(given, relay=False) for _ in range(WORKERS)]
        relay = [started(given, worker=False)]
        if broker is not None:
            time.sleep(FORGETFUL)
        names = {policy: f"s{setting.seed}-{policy}" for policy in POLICIES}
        if setting.count <= FEW:
            ledger.hold()
        ids = {policy: uploaded(carrier, name, many, policy) for policy, name in names.items()}
        for one in range(setting.count):
            _wait(setting, ledger, many * len(POLICIES), chance)
            if ended(carrier, list(ids.values())):
                report.sometimes["too late to kill"] += 1
                break
            _harm_around(setting, carrier, relay, given, broker, one, report)
            place = chance.randrange(WORKERS)
            workers[place] = _replaced(workers[place], started(given, relay=False))
            report.sometimes["killed"] += 1
            setting.advance(1)
        for process in (*workers, *relay):
            process.kill()
            process.join()
        ledger.let_go()
        settle(carrier, given, list(ids.values()), report, 180 + many / 20)
        for policy in POLICIES:
            _tell(policy, judge(carrier, ledger, ids[policy], names[policy], many, report), report)
    report.done = many * len(POLICIES)
    return report


def _wait(setting: Setting, ledger: Ledger, mails: int, chance: random.Random) -> None:
    """Until the next harm: for so many mails that the harms are spread over the whole sending."""
    if setting.count <= FEW:
        ledger.allow(chance.randint(1, mails // (2 * setting.count)))
        return
    # Some harms come while a list is read, before any mail: nobody waits for mails without end.
    target = ledger.mails.total() + chance.randint(0, 2 * mails // (setting.count + 15))
    until(lambda: ledger.mails.total() >= target, STALL)


def _tell(policy: str, found: tuple[int, int, int], report: Report) -> None:
    """Report a mailing of a storm; a harm repeats at most what was in one worker's hands."""
    lost, repeated, unknown = found
    report.sometimes[f"{policy}: lost {lost}, repeated {repeated}, unknown {unknown}"] += 1
    if repeated > STORM_GROUP * (report.sometimes["killed"] + report.sometimes["cut"] + WORKERS):
        report.blame(f"{policy}: {repeated} repeated, more than a group for each harm")


def _harm_around(
    setting: Setting,
    carrier: Carrier,
    relay: list[BaseProcess],
    given: dict[str, Any],
    broker: Any,
    number: int,
    report: Report,
) -> None:
    """Now and then more than a worker: every connection of the database, the broker, the relay."""
    if number % 5 == 3 and setting.backend == "postgres":
        with carrier.database.statements() as connection:
            connection.rows(CUT)
        report.sometimes["cut"] += 1
    if number % 10 == 5 and broker is not None:
        broker.kill()
        broker.restart()
        report.sometimes["broker killed"] += 1
    if number % 5 == 1:
        relay[0] = _replaced(relay[0], started(given, worker=False))
        report.sometimes["relay killed"] += 1


def _replaced(victim: BaseProcess, heir: BaseProcess) -> BaseProcess:
    victim.kill()
    victim.join()
    return heir


def until(done: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until it is so, or the patience is over."""
    deadline = time.monotonic() + patience
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)


TRIALS = (
    Trial("mailing: crash matrix", matrix, ("sqlite", "postgres"), 3, len(STEPS) * len(POLICIES), ("killed",)),
    Trial("mailing: storm", storm, ("sqlite", "postgres"), 3, 50, ("killed",)),
    Trial("mailing: storm over RabbitMQ", broker_storm, ("postgres",), 5, 50, ("killed", "cut", "relay killed")),
)
