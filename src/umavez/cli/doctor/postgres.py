"""What `umavez doctor` asks a PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg

from umavez.cli.doctor.findings import Examination, Finding, Level, Rule, clock_finding, judged, schema_finding
from umavez.cli.options import scrubbed, shown
from umavez.errors import StoreUnavailable
from umavez.stores.postgres import statements as postgres_sql
from umavez.stores.postgres.connection import connect

PRODUCT = "PostgreSQL"
OLDEST = 130000
"""The oldest server that is asked without a note, as server_version_num."""

RULES = (
    Rule("fsync", ("on",), Level.DANGER, "A crash can destroy the database: set fsync = on."),
    Rule(
        "synchronous_commit",
        ("on", "remote_apply", "remote_write", "local"),
        Level.DANGER,
        "A crash loses commits that were acknowledged, and their operations run again: set synchronous_commit = on.",
    ),
    Rule(
        "full_page_writes",
        ("on",),
        Level.DANGER,
        "A crash can leave half-written pages: set full_page_writes = on.",
    ),
    Rule(
        "default_transaction_isolation",
        ("read committed",),
        Level.WARNING,
        "Inside joined() a rival then gets a serialization error instead of the outcome: use read committed there.",
    ),
    Rule(
        "default_transaction_read_only",
        ("off",),
        Level.DANGER,
        "Nothing can be recorded: set default_transaction_read_only = off for this user.",
    ),
)
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_SERVER = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(),
       pg_backend_pid(), current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       current_setting('lock_timeout'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
"""
_REPLICAS = "SELECT sync_state FROM pg_stat_replication"
"""NULL for an account that may not see it; pg_monitor may."""


def examine(url: str) -> Examination:
    """What the server at `url` says. Never raises for a server that is not there: `problem` tells."""
    try:
        # The server's own defaults are of interest, not those that the store sets for its sessions.
        with closing(connect(url, bare=True)) as connection:
            return _ask(connection, shown(url))
    except (psycopg.Error, StoreUnavailable) as error:
        return Examination(shown(url), PRODUCT, problem=scrubbed(str(error), url))


def _ask(connection: psycopg.Connection[Any], url: str) -> Examination:
    (row,) = connection.execute(_SERVER).fetchall()
    version, number, standby, process, synchronous, commit, lock_timeout, now = row
    replicas = [state for (state,) in connection.execute(_REPLICAS).fetchall()]
    names = [rule.setting for rule in RULES]
    facts = dict(connection.execute(_SETTINGS, (names,)).fetchall())
    schema = _schema(connection)
    findings = [
        schema_finding(schema, postgres_sql.VERSION),
        *judged(RULES, facts),
        version_finding(version, number),
        standby_finding(standby=standby),
        replica_finding(replicas, synchronous),
        *([commit_finding(commit)] if replicas or synchronous else []),
        # A pooler answers the start of the connection itself, with a number that is no process of the server.
        pooler_finding(pooled=process != connection.info.backend_pid, lock_timeout=lock_timeout),
        clock_finding(now, time.time_ns() // 1_000_000),
    ]
    return Examination(url, PRODUCT, version.partition(" ")[0], str(schema or "missing"), tuple(findings))


def _schema(connection: psycopg.Connection[Any]) -> int | None:
    known = connection.execute(postgres_sql.META).fetchone()
    if known is None or not known[0]:
        return None
    row = connection.execute(postgres_sql.INSTALLED).fetchone()
    return None if row is None else int(row[0])


def version_finding(version: str, number: int) -> Finding:
    """Whether the server still gets repairs."""
    if number >= OLDEST:
        return Finding("server_version", version)
    return Finding("server_version", version, Level.WARNING, "It gets no repairs any more: upgrade the server.")


def standby_finding(*, standby: bool) -> Finding:
    """Whether the server takes writes."""
    if not standby:
        return Finding("role", "primary")
    return Finding(
        "role",
        "hot standby",
        Level.DANGER,
        "It takes no writes: name the primary, or add target_session_attrs=read-write.",
    )


def replica_finding(states: Sequence[str | None], synchronous: str) -> Finding:
    """Whether a failover can lose what was acknowledged, or nothing can be acknowledged at all."""
    waiting = [state for state in states if state in ("sync", "quorum")]
    if synchronous and not states:
        advice = "No standby is connected, so commits wait for one without an end: look at the standbys."
        return Finding("replicas", "none connected, one is waited for", Level.DANGER, advice)
    if not states or waiting:
        return Finding("replicas", f"{len(states)} connected" + (f", {len(waiting)} synchronous" if waiting else ""))
    if None in states:
        advice = "This account may not see whether they are synchronous: GRANT pg_monitor to it, or ask as another."
        return Finding("replicas", f"{len(states)} connected", Level.WARNING, advice)
    advice = (
        "A replica that is promoted lacks the newest records, and their operations run again: set "
        "synchronous_standby_names (with Patroni: synchronous_mode)."
    )
    return Finding("replicas", f"{len(states)} asynchronous", Level.DANGER, advice)


def commit_finding(commit: str) -> Finding:
    """What a commit waits for where there are standbys; `off` is told by the rules, with or without them."""
    lost = "Commits do not wait for a standby, so a failover loses acknowledged records: set synchronous_commit = on."
    unflushed = "A standby confirms before it has flushed, and can lose power too: set synchronous_commit = on."
    advice = {"local": (Level.DANGER, lost), "remote_write": (Level.WARNING, unflushed)}
    if commit not in advice:
        return Finding("replicated commit", commit)
    return Finding("replicated commit", commit, *advice[commit])


def pooler_finding(*, pooled: bool, lock_timeout: str = "0") -> Finding:
    """Whether something like PgBouncer stands between, and what it keeps from the server."""
    if not pooled:
        return Finding("pooler", "none")
    if lock_timeout == "0":
        advice = (
            "It drops lock_timeout, without which the store refuses to work: run ALTER ROLE name SET lock_timeout ="
            " '800ms' for its account, or connect to the server itself."
        )
        return Finding("pooler", "in between, lock_timeout 0", Level.DANGER, advice)
    advice = (
        "The store works behind it; relays, consumers, serve and migrate need sessions of their own: use session"
        " pooling for them, or connect to the server itself."
    )
    return Finding("pooler", "in between", Level.WARNING, advice)
