"""The store's server dies under load: connections ended by the server, and the whole server killed and restarted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from chaos import SERVERS, Report, Setting, Trial, engine_joined, engine_outside
from chaos.engine_authority import Authority
from chaos.engine_board import Phase
from chaos.engine_ledger import connected
from chaos.engine_swarm import Job, Swarm, Work

WORKERS = 4
Harm = Callable[[Setting, random.Random, Swarm], Iterator[list[Phase]]]
"""Does harm over and over; each time it tells where the workers stood just before."""
ENDING = {
    "postgres": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1",
    "mariadb": "SELECT id FROM information_schema.processlist"
    " WHERE db = database() AND id <> connection_id() ORDER BY rand() LIMIT 1",
}


def joined(harm: Harm, work: Work = engine_joined.work, size: int = WORKERS) -> Callable[[Setting], Report]:
    """A trial in joined mode in which `harm` is done `count` times to `size` workers."""

    def run(setting: Setting) -> Report:
        report, chance = Report(), random.Random(setting.seed)
        job = engine_joined.prepared(setting)
        with Swarm(job, work, size, chance) as swarm:
            do(harm, setting, chance, swarm, report)
        engine_joined.finish(job)
        engine_joined.examine(job, report)
        return report

    return run


def outside(harm: Harm) -> Callable[[Setting], Report]:
    """The same with effects outside."""

    def run(setting: Setting) -> Report:
        report, chance = Report(), random.Random(setting.seed)
        authority = Authority(chance.getrandbits(32))
        try:
            job: Job = engine_outside.prepared(setting, authority)
            with Swarm(job, engine_outside.work, WORKERS, chance) as swarm:
                do(harm, setting, chance, swarm, report)
            engine_outside.conclude(job, authority, report)
            report.sometimes["errors"] = report.sometimes["error"]
        finally:
            authority.close()
        return report

    return run


def do(
    harm: Harm,
    setting: Setting,
    chance: random.Random,
    swarm: Swarm,
    report: Report,
) -> None:
    """Do the harm, and count how many workers it met between their effect and its record."""
    for stood in harm(setting, chance, swarm):
        report.sometimes["workers in between"] += sum(phase in (Phase.EFFECT, Phase.SETTLED) for phase in stood)
        report.done += 1
        setting.advance(1)
        if report.done >= setting.count:
            return


def server_killed(setting: Setting, chance: random.Random, swarm: Swarm) -> Iterator[list[Phase]]:
    """kill -9 for the whole server at a random time under load, then a restart on the same files."""
    while True:
        time.sleep(0.2 + chance.random() * 0.5)
        stood = swarm.phases()
        setting.server.kill()
        setting.server.restart()
        yield stood


def connections_ended(setting: Setting, chance: random.Random, swarm: Swarm) -> Iterator[list[Phase]]:
    """The server ends one connection at a time, whoever it belongs to."""
    with closing(connected(setting.backend, setting.url)) as connection, closing(connection.cursor()) as cursor:
        while True:
            time.sleep(chance.random() * 0.03)
            stood = swarm.phases()
            cursor.execute(ENDING[setting.backend])
            victim = cursor.fetchone()
            if victim and setting.backend == "mariadb":
                end_mariadb(cursor, victim[0])
            connection.commit()
            if victim:
                yield stood


def end_mariadb(cursor: object, number: int) -> None:
    """End one connection, which may have gone by itself."""
    import pymysql  # noqa: PLC0415  # only where MariaDB is

    try:
        cursor.execute(f"KILL {number}")  # type: ignore[attr-defined]  # a cursor of pymysql
    except pymysql.MySQLError as error:
        if error.args[0] != 1094:
            raise


TRIALS = (
    Trial(
        "joined: connections ended",
        joined(connections_ended),
        ("postgres", "mariadb"),
        short=60,
        long=5000,
        sometimes=("errors", "workers in between", "replayed"),
    ),
    Trial(
        "joined: server killed",
        joined(server_killed),
        ("postgres", "mariadb"),
        short=2,
        long=100,
        sometimes=("errors", "keys"),
        private=True,
    ),
    Trial(
        "outside: server killed",
        outside(server_killed),
        SERVERS,
        short=2,
        long=100,
        sometimes=("errors", "answers dropped"),
        private=True,
    ),
)
