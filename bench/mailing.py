"""Mailing against its floors: ingest against the seed's own INSERT, sending against bare aiosmtplib.

python -m bench.mailing [--rows 1000000] [--rounds 3] [--mails 5000] [--quick] [--big]

Ingest: the same file (10 % repeated) by the system, and by the seed's 1,000-row INSERT … ON CONFLICT DO NOTHING with
one commit each, into the seed's own table with all of its indexes; in turn, each into an empty database, the median
of the rounds. Ours is timed from the lock to the checked end and fills columns that the seed has not. Sending: the
same number of connections to the same sink, in a process of its own; ours with intents and results durable. Memory:
the peak of a process that ingests, by VmHWM.

Seen on two quiet cores, seed 7, N = 1,000,000, PostgreSQL 15, three rounds in turn: 7.9, 8.0 and 9.7 x, by medians
8.5 (273,111 against 31,948 rows/s; 8 are wanted), 215 MB at most. In seconds of processor: the seed's way 12.9 in the
client and 17.7 in the server, one after the other; ours 1.3 and 2.9 at the same time. While ours is copied in, the
server waits for the client in 2 of 140 looks: what is left is its own work on rows and indexes. Against our own,
faster database module instead of the bare driver, on a busy machine, six rounds gave 4.0 to 7.7. 5,000,000 rows, ours
alone: 218 MB (250 at most are wanted). SQLite and sending were seen before: N = 200,000, one round, busy: 5.0 x (5
are wanted); N = 5,000, five rounds: 0.45 to 1.21 x, median 0.84 (0.5 are wanted).
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import multiprocessing
import os
import random
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from umavez_systems.database import open_database
from umavez_systems.mailing.assembly import Desk, open_desk
from umavez_systems.mailing.ingest.ingesting import ingest
from umavez_systems.mailing.ingest.uploads import spool_file, spooled
from umavez_systems.mailing.operations import Upload
from umavez_systems.settings import Settings

SEED = 7
CONNECTIONS = 10
SEEDS_TABLE = (
    (
        "CREATE TABLE mailing_entries (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), mailing_id VARCHAR(255) NOT NULL,"
        " email VARCHAR(255) NOT NULL, token VARCHAR(255) NOT NULL, status VARCHAR(50) DEFAULT 'PENDING',"
        " attempts INT DEFAULT 0, last_attempt TIMESTAMPTZ, external_id VARCHAR(255),"
        " created_at TIMESTAMPTZ DEFAULT NOW(), updated_at TIMESTAMPTZ DEFAULT NOW(),"
        " CONSTRAINT unique_mailing_email UNIQUE (mailing_id, email))"
    ),
    "CREATE INDEX idx_mailing_entries_mailing_id ON mailing_entries(mailing_id)",
    "CREATE INDEX idx_mailing_entries_status ON mailing_entries(status)",
)


def main() -> None:
    """Print both tables."""
    # Here, because the processes that are measured load this module, too.
    from tests.servers import KINDS, Found, Run  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--on", choices=["postgres", "sqlite"])
    parser.add_argument("--mails", type=int, default=5_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--big", action="store_true", help="5,000,000 rows, for the memory")
    parser.add_argument("--only", choices=["ingest", "send"])
    given = parser.parse_args()
    rows = 50_000 if given.quick else (5_000_000 if given.big else given.rows)
    mails = 500 if given.quick else given.mails
    run = Run.begin()
    try:
        with tempfile.TemporaryDirectory() as folder:
            postgres = run.server(KINDS["postgres"])
            if not isinstance(postgres, Found):
                raise SystemExit("no PostgreSQL")

            @contextmanager
            def place(name: str) -> Iterator[str]:
                if name == "postgres":
                    with run.lend(KINDS["postgres"], postgres) as url:
                        yield url
                else:
                    with tempfile.TemporaryDirectory() as own:
                        yield f"sqlite:///{own}/bench.db"

            if given.only != "send":
                file = written(Path(folder) / "lista.csv", rows)
                rounds = 1 if given.quick or given.big else given.rounds
                for name in (given.on,) if given.on else ("postgres", "sqlite"):
                    told(name, lambda: place(name), file, rows, rounds)  # noqa: B023  # used at once
            if given.only != "ingest":
                with place("postgres") as url:
                    sending(url, mails, Path(folder))
    finally:
        run.end()


def written(path: Path, rows: int) -> Path:
    """A list of `rows` addresses, a tenth of them repeated."""
    chance = random.Random(SEED)
    people = [f"{chance.getrandbits(40):x}.user{one}@example{one % 1000}.com" for one in range(rows * 9 // 10)]
    people += chance.choices(people, k=rows - len(people))
    chance.shuffle(people)
    path.write_text("email\n" + "\n".join(people) + "\n")
    return path


def told(name: str, place: Callable[[], AbstractContextManager[str]], file: Path, rows: int, rounds: int) -> None:
    """One line of the table of ingestion."""
    found: dict[Any, list[dict[str, float]]] = {seed_way: [], our_way: []}
    for _ in range(rounds):
        for way, runs in found.items():
            with place() as url, tempfile.TemporaryDirectory() as folder:
                _apart(_emptied, url, way is our_way)
                runs.append(_apart(way, url, file, folder))
    seeds, ours = (statistics.median(run["seconds"] for run in runs) for runs in found.values())
    peak = max(run["peak"] for run in found[our_way])
    each = (theirs["seconds"] / mine["seconds"] for theirs, mine in zip(*found.values(), strict=True))
    print(
        f"ingest {name:<9} N={rows} seed={SEED} rounds={rounds}: ours {rows / ours:>9,.0f} rows/s,"
        f" the seed's INSERT {rows / seeds:>8,.0f} rows/s, {seeds / ours:.1f} x"
        f" (by rounds {', '.join(f'{ratio:.1f}' for ratio in each)}), peak {peak:.0f} MB",
        flush=True,
    )
    for way, runs in found.items():
        client, server = (statistics.median(run[where] for run in runs) for where in ("client", "server"))
        print(f"       {way.__name__}: {client:.1f} s of processor in the client, {server:.1f} s in the server")


def _apart(call: Any, *given: Any) -> dict[str, float]:
    """What `call` says, in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    process = context.Process(target=_run, args=(queue, call, given))
    process.start()
    found: dict[str, float] = queue.get(timeout=3600)
    process.join()
    return found


def _emptied(url: str, ours: bool) -> dict[str, float]:
    """Make the tables, elsewhere: what that loads is no part of a worker. Nothing is left for the server to write."""
    from umavez_systems.server import prepare  # noqa: PLC0415  # as said

    if ours or url.startswith("sqlite"):
        prepare(Settings(database=url))
    if url.startswith("sqlite"):
        return {}
    database = open_database(url, 1, 60)
    with database.statements() as connection:
        for text in () if ours else SEEDS_TABLE:
            connection.rows(text)
        connection.rows("CHECKPOINT")
    database.close()
    return {}


def _run(queue: Any, call: Any, given: tuple[Any, ...]) -> None:
    queue.put({**call(*given), "peak": _peak()})


def _spent(url: str, call: Callable[[], None]) -> dict[str, float]:
    """What `call` takes: seconds of the clock, and of processor on either side, which other work disturbs less."""
    began, client, server = time.perf_counter(), time.process_time(), _served(url)
    call()
    took = time.perf_counter() - began
    return {"seconds": took, "client": time.process_time() - client, "server": _served(url) - server}


def _served(url: str) -> float:
    """Seconds of processor of the server's processes for us, if it is on this machine; without those that help them."""
    if url.startswith("sqlite"):
        return 0.0
    with closing(_bare(url)) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    total = 0.0
    for (pid,) in found:
        with suppress(OSError):
            _, _, told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            total += sum(map(int, told.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def _peak() -> float:
    """Megabytes that this process had at most. Not ru_maxrss: that counts what its parent had, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def our_way(url: str, file: Path, folder: str) -> dict[str, float]:
    """What it takes to ingest the file, from the lock to the checked end."""
    with open_desk(Settings(database=url, storage=f"{folder}/lists")) as desk:
        return _ingested(desk, file)


def _ingested(desk: Desk, file: Path) -> dict[str, float]:
    with spooled(desk.settings.spool) as spool:
        spool_file(file, spool)
        row, _ = desk.mailing.cases.upload("local", Upload(f"{secrets.token_hex(4)}.csv", {}), spool)

    def work() -> None:
        holding = desk.mailing.holdings.acquire(str(row["id"]))
        assert holding is not None
        assert ingest(holding, desk.mailing.cases.storage, time.monotonic() + 3600, lambda _: None)

    took = _spent(desk.settings.database, work)
    done = desk.mailing.cases.mailing("local", str(row["id"]))
    assert done["linhas"] == done["aceitas"] + done["duplicadas"]
    return took


def seed_way(url: str, file: Path, _: str) -> dict[str, float]:
    """What the seed's ingestCSV takes: batches of 1,000, each with its own commit, over the bare driver."""
    mailing, bare = secrets.token_hex(8), _bare(url)
    mark = "?" if url.startswith("sqlite") else "%s"

    def work() -> None:
        with file.open() as stream:
            emails = [row[0] for row in csv.reader(stream)][1:]
        for place in range(0, len(emails), 1000):
            batch = emails[place : place + 1000]
            marks = ",".join([f"({mark}, {mark}, {mark}, 'PENDING')"] * len(batch))
            text = f"INSERT INTO mailing_entries (mailing_id, email, token, status) VALUES {marks}"
            values = [value for email in batch for value in (mailing, email, secrets.token_hex(16))]
            bare.execute(text + " ON CONFLICT (mailing_id, email) DO NOTHING", values)
            bare.commit()

    took = _spent(url, work)
    bare.close()
    return took


def _bare(url: str) -> Any:
    """The driver as it comes: what is measured against must not be made faster, or slower, by what we do around it."""
    return sqlite3.connect(url.partition(":///")[2]) if url.startswith("sqlite") else psycopg.connect(url)


def sending(url: str, mails: int, folder: Path) -> None:
    """The table of sending."""
    ledger = folder / "ledger"
    words = [sys.executable, "-m", "umavez.cli", "mailing", "sink", "--port", "0", "--ledger", str(ledger)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        address = sink.stdout.readline().split()[0]
        try:
            bare = asyncio.run(bare_way(address, mails))
            ours = our_sending(url, address, mails, folder)
        finally:
            sink.terminate()
    print(
        f"send N={mails} over {CONNECTIONS} connections: ours {mails / ours:,.0f} mails/s"
        " (intents and results on PostgreSQL),"
        f" bare aiosmtplib {mails / bare:,.0f} mails/s, {bare / ours:.2f} x"
    )


async def bare_way(address: str, mails: int) -> float:
    """Seconds of aiosmtplib alone."""
    import aiosmtplib  # noqa: PLC0415  # of use here only

    host, _, port = address.removeprefix("smtp://").partition(":")
    content = b"From: a@b.com\r\nTo: c@d.com\r\nSubject: s\r\nMessage-ID: <1@b.com>\r\n\r\n" + b"x" * 400 + b"\r\n"
    left = iter(range(mails))

    async def hand() -> None:
        async with aiosmtplib.SMTP(hostname=host, port=int(port), start_tls=False) as client:
            for one in left:
                await client.mail("a@b.com")
                await client.rcpt(f"u{one}@d.com")
                await client.data(content)

    began = time.perf_counter()
    await asyncio.gather(*(hand() for _ in range(CONNECTIONS)))
    return time.perf_counter() - began


def our_sending(url: str, address: str, mails: int, folder: Path) -> float:
    """Seconds from the first intent to the last result."""
    _apart(_emptied, url, True)
    with open_desk(Settings(database=url, storage=f"{folder}/lists", mailing_group=500)) as desk:
        return _sent(desk, address, mails, folder)


def _sent(desk: Desk, address: str, mails: int, folder: Path) -> float:
    from umavez.messaging import Message  # noqa: PLC0415  # of use here only
    from umavez_systems.mailing.providers.smtp import SmtpProvider  # noqa: PLC0415
    from umavez_systems.mailing.sending.worker import Worker  # noqa: PLC0415

    mailing = desk.mailing
    file = folder / "envio.csv"
    file.write_text("email\n" + "\n".join(f"u{one}@d.com" for one in range(mails)))
    with spooled(desk.settings.spool) as spool:
        spool_file(file, spool)
        row, _ = mailing.cases.upload("local", Upload(f"{secrets.token_hex(4)}.csv", {"texto": "x" * 400}), spool)
    number = str(row["id"])
    holding = mailing.holdings.acquire(number)
    assert holding is not None
    ingest(holding, mailing.cases.storage, time.monotonic() + 60, lambda _: None)
    holding.leave()

    async def run() -> float:
        provider = SmtpProvider(f"{address}?starttls=never", CONNECTIONS)
        worker = Worker(mailing, provider, asyncio.to_thread, asyncio.Event())
        began = time.perf_counter()
        while mailing.cases.mailing("local", number)["status"] != "SENT":
            await worker.handle(Message("x", json.dumps({"mailingId": number})))
        took = time.perf_counter() - began
        await provider.close()
        return took

    return asyncio.run(run())


if __name__ == "__main__":
    main()
