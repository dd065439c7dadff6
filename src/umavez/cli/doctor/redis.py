"""What `umavez doctor` asks a Redis server."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import redis

from umavez.cli.doctor.findings import Examination, Finding, Level, Rule, clock_finding, judged
from umavez.cli.options import scrubbed, shown
from umavez.errors import StoreUnavailable
from umavez.stores.redis.connection import connect
from umavez.stores.redis.url import Address, address_of

PRODUCT = "Redis"

RULES = (
    Rule(
        "maxmemory-policy",
        ("noeviction",),
        Level.DANGER,
        "A full server throws records away, and their operations run again: set it to noeviction.",
    ),
    Rule(
        "appendonly",
        ("yes",),
        Level.DANGER,
        "A restart loses the records since the last snapshot, and their operations run again: set it to yes.",
    ),
    Rule(
        "appendfsync",
        ("always",),
        Level.WARNING,
        "A crash of the machine loses up to a second of records, or more with no: set it to always.",
    ),
)


def examine(url: str) -> Examination:
    """What the server at `url` says. Never raises for a server that is not there: `problem` tells."""
    try:
        with closing(connect(url)) as client:
            examination = _ask(client, shown(url))
    except (redis.RedisError, StoreUnavailable, OSError) as error:
        return Examination(shown(url), PRODUCT, problem=scrubbed(str(error), url))
    return replace(examination, findings=(*sentinel_findings(address_of(url)), *examination.findings))


def sentinel_findings(address: Address) -> list[Finding]:
    """What a failover by sentinels can lose."""
    if not address.sentinels:
        return []
    if not address.wait:
        advice = (
            "A failover loses what no replica has received, and those operations run again: add wait=1, which makes it"
            " rare, and use a SQL store for what must not."
        )
        return [Finding("sentinel", "no replica is waited for", Level.DANGER, advice)]
    advice = "It is best effort: replicas that received a record may lose it too. Use a SQL store for what must not."
    return [Finding("sentinel", f"{address.wait} waited for", Level.WARNING, advice)]


def _ask(client: Any, url: str) -> Examination:
    info = client.info()
    seconds, micros = client.time()
    findings = [
        *_settings(client, info),
        *role_findings(info),
        *write_findings(info),
        clock_finding(seconds * 1000 + micros // 1000, time.time_ns() // 1_000_000),
    ]
    return Examination(url, PRODUCT, str(info["redis_version"]), "none needed", tuple(findings))


def _settings(client: Any, info: dict[str, Any]) -> list[Finding]:
    try:
        facts = {name: str(value) for rule in RULES for name, value in client.config_get(rule.setting).items()}
    except redis.ResponseError:
        # Hosted servers often forbid CONFIG; INFO still tells two of the three.
        facts = {"appendonly": "yes" if info.get("aof_enabled") else "no"}
        if "maxmemory_policy" in info:
            facts["maxmemory-policy"] = str(info["maxmemory_policy"])
        hidden = Finding(
            "appendfsync", "not shown", Level.NOTE, "This user may not read CONFIG: ask whoever runs the server."
        )
        return [*judged(RULES, facts), hidden]
    return settings_findings(facts)


def settings_findings(facts: dict[str, str]) -> list[Finding]:
    """The findings on persistence; how often a log is flushed matters only where there is one."""
    if facts.get("appendonly") == "no":
        facts = {name: value for name, value in facts.items() if name != "appendfsync"}
    return judged(RULES, facts)


def role_findings(info: dict[str, Any]) -> list[Finding]:
    """Whether the server takes writes, and whether a failover can lose them."""
    if info.get("role") != "master":
        return [
            Finding(
                "role", str(info.get("role")), Level.DANGER, "It is a replica and takes no writes: name the master."
            )
        ]
    replicas = int(info.get("connected_slaves", 0))
    found = [Finding("role", "master")]
    if replicas:
        advice = (
            "A replica that is promoted lacks the newest records, whose operations then run again: "
            "detach it, or use a SQL store."
        )
        found.append(Finding("replicas", f"{replicas} connected", Level.WARNING, advice))
    if info.get("cluster_enabled"):
        found.append(
            Finding(
                "cluster",
                "on",
                Level.NOTE,
                "All records of one prefix live on one node, and failover may lose the newest.",
            )
        )
    return found


def write_findings(info: dict[str, Any]) -> list[Finding]:
    """Whether the server could write to its disk lately."""
    names = ("aof_last_write_status", "rdb_last_bgsave_status")
    advice = "The server cannot write to its disk: look at its log and at the free space."
    return [Finding(name, str(info[name]), Level.DANGER, advice) for name in names if info.get(name, "ok") != "ok"]
