"""Installing a server's Debian package, without starting the system's own service."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
TIMEOUT = 900


def may_install() -> bool:
    """True as root on Debian, unless UMAVEZ_TEST_INSTALL=0 forbids it."""
    if os.environ.get("UMAVEZ_TEST_INSTALL") == "0":
        return False
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(package: str) -> str | None:
    """Install the package; None when it is there, or the reason why it is not."""
    with _services_held():
        _apt("update")
        return _apt("install", "--yes", "--no-install-recommends", package)


def _apt(*arguments: str) -> str | None:
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"apt-get {arguments[0]} took longer than {TIMEOUT} s"
    if done.returncode == 0:
        return None
    return f"apt-get {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}"


@contextmanager
def _services_held() -> Iterator[None]:
    """A package asks policy-rc.d before it starts its service; 101 means no. One that is there stays."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
