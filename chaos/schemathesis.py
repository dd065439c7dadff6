"""Schemathesis over a real server: what the OpenAPI document allows, and what it does not, with every check on.

The server asks for API keys, so that asking without one is tried, too; a payer's portal and a tax authority run beside
it, so that what is right can succeed. Which answers are right is said in schemathesis.toml.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from chaos import Report, Setting, Trial

HERE = Path(__file__).parent
SECRET = "chaos-chaos-chaos-chaos"  # noqa: S105  # of a server that lives as long as the trial
SEEDS = 3
OPERATIONS = 90
"""About as many as the document has: only to share the cases out."""
QUICK = {
    "UMAVEZ_FISCAL_ENVIO_SECONDS": "2",
    "UMAVEZ_FISCAL_CONSULTA_SECONDS": "2",
    "UMAVEZ_FISCAL_PATIENCE_SECONDS": "2",
    "UMAVEZ_FISCAL_SETTLE_SECONDS": "0",
    "UMAVEZ_FISCAL_FIRST_SECONDS": "0.1",
    "UMAVEZ_PORTAL_TIMEOUT_SECONDS": "2",
}
"""Generated requests order faults of the simulator, too; nobody is to wait for them as long as people would."""


def run(setting: Setting) -> Report:
    """Send about `count` requests in three runs, each with a seed and a beginning of its own."""
    report = Report()
    with serving(setting) as address:
        for nth in range(SEEDS):
            examples = max(1, setting.count // SEEDS // OPERATIONS)
            fuzz(setting, report, address, setting.seed + nth, examples)
    return report


def short(setting: Setting) -> Report:
    """`count` requests to each operation, without the phase that walks through every boundary."""
    report = Report()
    with serving(setting) as address:
        fuzz(setting, report, address, setting.seed, setting.count, "--phases", "examples,fuzzing")
    return report


def fuzz(setting: Setting, report: Report, address: str, seed: int, examples: int, *more: str) -> None:
    """One run of schemathesis; what it found is told in its own words."""
    told = setting.folder / f"schemathesis-{seed}.json"
    options = {
        "--checks": "all",
        "--header": f"Authorization: Bearer {SECRET}",
        "--max-examples": str(examples),
        "--seed": str(seed),
        "--request-timeout": "30",
        "--warnings": "off",
        "--generation-database": "none",
        "--suppress-health-check": "too_slow",  # the machine's load is no fault of the document
        "--report-json-path": str(told),
    }
    command = [str(Path(sys.executable).parent / "st"), "--config-file", str(HERE / "schemathesis.toml"), "run"]
    given = [part for option in options.items() for part in option]
    done = subprocess.run(
        [*command, f"{address}/openapi.json", *given, "--report", "json", "--continue-on-failure", "--no-color", *more],
        cwd=setting.folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "chaos.schemathesis_kinds", "PYTHONPATH": _sources()},
        capture_output=True,
        text=True,
        check=False,
    )
    _judge(report, seed, done, json.loads(told.read_text()) if told.exists() else {})
    setting.advance(report.done)


def _judge(report: Report, seed: int, done: subprocess.CompletedProcess[str], told: dict[str, Any]) -> None:
    cases = told.get("test_cases", {}).get("generated", 0)
    report.done += cases
    report.sometimes["cases"] += cases
    report.sometimes["operations"] = told.get("operations", {}).get("tested", 0)
    if done.returncode == 0 and told.get("complete"):
        return
    _, _, failures = done.stdout.partition("= FAILURES =")
    report.blame(f"seed {seed}, {cases} cases:\n{(failures or done.stdout + done.stderr)[-20_000:]}")


@contextmanager
def serving(setting: Setting) -> Iterator[str]:
    """A server with a key, on the trial's database, with a payer's portal beside it."""
    port, portal = _free_ports(2)
    environment = {
        **os.environ,
        **QUICK,
        "PYTHONPATH": _sources(),
        "UMAVEZ_API_KEYS": f"chaos:{SECRET}",
        "UMAVEZ_PORTAL_URL": f"http://127.0.0.1:{portal}",
    }
    commands = (
        [
            sys.executable,
            "-m",
            "umavez_systems.processos.portal.simulator",
            "--database",
            "portal.db",
            "--port",
            str(portal),
        ],
        [str(Path(sys.executable).parent / "umavez"), "serve", "--port", str(port), "--database", setting.url],
    )
    with (setting.folder / "server.log").open("wb") as log:
        started = [
            subprocess.Popen(each, stdout=log, stderr=log, cwd=setting.folder, env=environment) for each in commands
        ]
        try:
            _await_ready(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            for process in reversed(started):
                _end(process)


def _await_ready(address: str) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/ready", timeout=5).status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not become ready; see server.log in the trial's folder")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(many: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _sources() -> str:
    """Where these sources are, before what is installed."""
    root = HERE.parent
    return os.pathsep.join(filter(None, (str(root / "src"), str(root), os.environ.get("PYTHONPATH"))))


TRIALS = (
    Trial(
        "schemathesis: generated requests over every operation",
        run,
        ("sqlite", "postgres"),
        short=600,
        long=27_000,
        sometimes=("cases", "operations"),
    ),
)
