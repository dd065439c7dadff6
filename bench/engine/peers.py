"""The peers: which there are for each store, and their own virtualenv, made by plain package names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[1] / ".peers"
PYTHON = HOME / "bin" / "python"

PACKAGES = {
    "dbos": ["dbos", "psycopg[binary]"],
    "aws-lambda-powertools": ["aws-lambda-powertools", "boto3", "redis"],
    "fastidempotent": ["fastidempotent", "asyncpg", "aiosqlite", "redis", "sqlalchemy[asyncio]"],
    "fastapi-idempotency-key": ["fastapi-idempotency-key", "redis", "aiosqlite"],
    "pyidempotent": ["pyidempotent", "redis"],
    "idempotency": ["idempotency", "redis"],
    "ichido": ["ichido", "redis"],
}
"""What each peer needs."""

SHARED = ["uvloop", "starlette", "hiredis"]

ON = {
    "postgres": ["dbos", "fastidempotent"],
    "sqlite": ["fastapi-idempotency-key", "fastidempotent", "dbos"],
    "redis": [
        "aws-lambda-powertools",
        "fastidempotent",
        "fastapi-idempotency-key",
        "pyidempotent",
        "idempotency",
        "ichido",
    ],
}
"""Which peers are measured on which store; MariaDB has none."""


def installed() -> dict[str, str]:
    """Make the virtualenv if need be; returns the peers that cannot be had, each with the reason."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        (HOME / ".gitignore").write_text("*\n")
    _pip(SHARED)
    return {peer: problem for peer, words in PACKAGES.items() if (problem := _pip(words))}


def versions() -> dict[str, str]:
    """The installed version of each peer."""
    code = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\nfound = {}\n"
        "for name in sys.argv[1:]:\n    try: found[name] = version(name)\n    except PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([str(PYTHON), "-c", code, *PACKAGES], capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout or "{}"))


def _pip(words: list[str]) -> str:
    """Install packages; returns why not, or nothing. Those that are there already cost no network."""
    done = subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", *words], capture_output=True, text=True, check=False
    )
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else f"cannot be installed: {(errors or ['pip failed'])[0][:160]}"
