"""Tables are upgraded while callers of the version before and of this one work on them, side by side.

The older code is the real one, taken out of this repository's history. Nobody may see an error, no key may have two
effects or two answers, and afterwards the table is the one that a new database gets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
import time
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import psycopg

from chaos import Report, Setting, Trial
from chaos.engine_board import lines
from chaos.upgrade_worker import FLEET
from umavez import Once
from umavez.migration import migrate

HOUSE = Path(__file__).resolve().parent.parent
BEFORE = "a364ef3"
"""The last commit whose tables are of version 1."""
WARM, AFTER = 2.0, 2.0
"""Seconds of load before the upgrade and after it."""
OLD_RECORDS = (
    "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status, attempt,"
    " created_at, updated_at, expires_at, outcome_kept, result_data)"
    " SELECT sha256(i::text::bytea), 'loja', 'pay', 'k' || i, 's' || i, nextval('umavez_fence'), 'SUCCESS', 1,"
    " now(), now(), now() + interval '1 day', true, repeat('\"x\"', 40) FROM generate_series(1, %s) i"
)
SOUND = (
    "SELECT count(*) FILTER (WHERE id IS NULL), count(*) - count(DISTINCT id),"
    " (SELECT value FROM umavez_meta WHERE name = 'schema') FROM idempotency_records"
)


def run(setting: Setting) -> Report:
    """Upgrade `count` records under the load of two old and two new callers."""
    report = Report()
    old = _older_code(setting.folder)
    if old is None:
        return Report(skipped=f"needs git and a history that reaches {BEFORE}")
    made = "import sys; from umavez import Once; once = Once(sys.argv[1], scope='fleet'); print(once.migrate())"
    subprocess.run([sys.executable, "-c", made, setting.url], env=_with(old), cwd=old, check=True, timeout=120)
    with psycopg.connect(setting.url) as connection:
        connection.execute(OLD_RECORDS, (setting.count,))
    history = setting.folder / "fleet"
    callers = [_caller(setting, number, history, old if number % 2 else HOUSE / "src") for number in range(FLEET)]
    try:
        time.sleep(WARM)
        began = time.monotonic()
        told = _migrated(setting)
        report.sometimes[f"seconds of upgrading: {time.monotonic() - began:.1f}"] = 1
        report.sometimes[told[0]] = 1
        time.sleep(AFTER)
    finally:
        (setting.folder / "stop").touch()
        ends = [caller.wait(60) for caller in callers]
    if any(ends):
        report.blame(f"callers ended with {ends}")
    _judge(setting, history, report)
    report.done = setting.count
    setting.advance(setting.count)
    return report


def _migrated(setting: Setting) -> list[str]:
    """Two hosts migrate at once, as they do when both are started anew."""
    second = threading.Thread(target=lambda: Once(setting.url, scope="fleet").migrate(), daemon=True)
    second.start()
    told = migrate(setting.url)
    second.join(600)
    return told


def _older_code(folder: Path) -> Path | None:
    """The older package, unpacked; None where the history does not reach it."""
    asked = ["git", "-C", str(HOUSE), "archive", BEFORE, "src/umavez"]
    try:
        packed = subprocess.run(asked, capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        return None
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder / "older", filter="data")
    return folder / "older" / "src"


def _with(package: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(package)}


def _caller(setting: Setting, number: int, history: Path, package: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HOUSE / "chaos" / "upgrade_worker.py"), setting.url, str(number), str(history)]
    return subprocess.Popen(command, env=_with(package), cwd=package)


def _judge(setting: Setting, history: Path, report: Report) -> None:
    effects, answers, slowest = defaultdict(list), defaultdict(set), 0.0
    for line in lines(history):
        match line.kind:
            case "effect":
                effects[line.key].append(line.value)
            case "answer":
                answers[line.key].add(line.value)
                report.sometimes["answers"] += 1
            case "took":
                slowest = max(slowest, float(line.value))
            case _:
                report.blame(f"{line.key}: {line.value}")
    for key, tokens in effects.items():
        if len(tokens) != 1 or answers[key] != set(tokens):
            report.blame(f"{key} has effects {tokens}, answers {sorted(answers[key])}")
    report.sometimes["keys"] = len(effects)
    report.sometimes[f"slowest answer {slowest:.2f} s"] = 1
    with psycopg.connect(setting.url) as connection:
        found = connection.execute(SOUND).fetchone()
    if found is None or found[:2] != (0, 0) or found[2] < 2:
        report.blame(f"without an id, with another's, version: {found}")


TRIALS = (Trial("upgrade: two versions side by side", run, ("postgres",), 5_000, 400_000, ("answers", "keys")),)
