"""What `umavez doctor` asks a MariaDB server."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pymysql

from umavez.cli.doctor.findings import Examination, Finding, Level, Rule, clock_finding, judged, schema_finding
from umavez.cli.options import scrubbed, shown
from umavez.errors import StoreUnavailable
from umavez.stores.mariadb.connection import connect
from umavez.stores.mariadb.schema import NEWEST, PRESENT, VERSION

PRODUCT = "MariaDB"
_LOST = "A crash loses commits that were acknowledged, and their operations run again: "

RULES = (
    Rule("innodb_flush_log_at_trx_commit", ("1",), Level.DANGER, f"{_LOST}set it to 1."),
    Rule("innodb_doublewrite", ("on", "1"), Level.DANGER, "A crash can leave half-written pages: turn it on."),
    Rule(
        "wsrep_on",
        ("off", "0"),
        Level.DANGER,
        "In a Galera cluster keys are safe, and fences are not: with several writers numbers were given twice. Send all"
        " writes to one node, by the order of the hosts in the URL or by a proxy with one active server.",
    ),
    Rule("read_only", ("off", "0"), Level.DANGER, "Nothing can be recorded here: name the primary."),
    Rule(
        "tx_isolation",
        ("read-committed", "repeatable-read"),
        Level.WARNING,
        "Inside joined() readers then block each other: use READ-COMMITTED or REPEATABLE-READ there.",
    ),
    Rule(
        "default_storage_engine",
        ("innodb",),
        Level.NOTE,
        "umavez's own tables are InnoDB all the same; yours should be, or joined() cannot roll them back.",
    ),
)
_NAMES = (*(rule.setting for rule in RULES), "log_bin", "sync_binlog", "sql_mode", "wsrep_provider")


def examine(url: str) -> Examination:
    """What the server at `url` says. Never raises for a server that is not there: `problem` tells."""
    try:
        with closing(connect(url, bare=True)) as connection, connection.cursor() as cursor:
            return _ask(cursor, shown(url))
    except (pymysql.MySQLError, StoreUnavailable, ValueError, OSError) as error:
        return Examination(shown(url), PRODUCT, problem=scrubbed(_sentence(error), url))


def _sentence(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__


def _ask(cursor: Any, url: str) -> Examination:
    marks = ", ".join(["%s"] * len(_NAMES))
    cursor.execute(f"SHOW VARIABLES WHERE variable_name IN ({marks})", _NAMES)
    facts = {str(name): str(value) for name, value in cursor.fetchall()}
    cursor.execute("SELECT version(), CAST(unix_timestamp(now(3)) * 1000 AS INTEGER), database()")
    version, now, database = cursor.fetchone()
    schema = _schema(cursor)
    findings = [
        database_finding() if database is None else schema_finding(schema, NEWEST),
        version_finding(version),
        *judged(RULES, facts),
        *binary_log_findings(facts),
        strict_finding(facts.get("sql_mode", "")),
        clock_finding(int(now), time.time_ns() // 1_000_000),
    ]
    return Examination(
        url,
        PRODUCT,
        version.partition("-")[0],
        "none" if database is None else str(schema or "missing"),
        tuple(findings),
    )


def _schema(cursor: Any) -> int | None:
    cursor.execute(PRESENT.text)
    if not cursor.fetchone()[0]:
        return None
    cursor.execute(VERSION.text)
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def database_finding() -> Finding:
    """What a URL that names only the server lacks."""
    return Finding("schema", "no database named", Level.NOTE, "Name one, as in mariadb://user@host/database.")


def version_finding(version: str) -> Finding:
    """Whether it is a MariaDB that umavez's statements run on."""
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
    if "mariadb" not in version.lower():
        return Finding(
            "version",
            version,
            Level.DANGER,
            "This is not MariaDB, whose statements umavez uses: use MariaDB 10.6 or newer.",
        )
    if numbers < (10, 6):
        return Finding("version", version, Level.DANGER, "It is too old: use MariaDB 10.6 or newer.")
    return Finding("version", version)


def binary_log_findings(facts: dict[str, str]) -> list[Finding]:
    """What a binary log needs, where there is one."""
    if facts.get("log_bin", "OFF").lower() in ("off", "0"):
        return []
    if facts.get("sync_binlog") == "1":
        return [Finding("sync_binlog", "1")]
    advice = "After a crash replicas may have records that the primary lost, or lack some: set it to 1."
    return [Finding("sync_binlog", facts.get("sync_binlog", "?"), Level.WARNING, advice)]


def strict_finding(mode: str) -> Finding:
    """Whether a value that does not fit is refused."""
    if "STRICT_TRANS_TABLES" in mode or "STRICT_ALL_TABLES" in mode:
        return Finding("sql_mode", "strict")
    advice = "Text that does not fit is cut in silence in your tables: add STRICT_TRANS_TABLES."
    return Finding("sql_mode", mode or "empty", Level.WARNING, advice)
