"""Runs one private server and stops it when told, or when the test run that owns it is gone.

A test run can end by kill -9, which no cleanup of its own survives; the keeper is apart and watches.
It reads the plan that `private.py` makes from its standard input and uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE = 15.0
PULSE = 0.2


def main() -> int:
    plan = json.load(sys.stdin)
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: told.append(got))
    child = _spawn(plan)
    Path(plan["pid_file"]).write_text(str(child.pid))
    while child.poll() is None and not told and _alive(plan["owner"]):
        with suppress(subprocess.TimeoutExpired):
            child.wait(PULSE)
    if child.poll() is not None and not told:
        _end_group(child)
        return child.returncode
    _stop(child, plan["stop_signal"])
    shutil.rmtree(plan["directory"], ignore_errors=True)
    return 0


def _spawn(plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the server in a group of its own, as the plan's user where it names one."""
    as_user = {"user": plan["uid"], "group": plan["gid"], "extra_groups": []} if plan["uid"] is not None else {}
    with Path(plan["log_file"]).open("ab") as log:
        return subprocess.Popen(
            plan["command"],
            cwd=plan["directory"],
            env=plan["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **as_user,
        )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stop(child: subprocess.Popen[bytes], number: int) -> None:
    """Ask first, so that the server leaves no shared memory behind; then end what is left of the group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGCONT)  # a test may have left it frozen
        os.kill(child.pid, number)
    deadline = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            child.wait(PULSE)
    _end_group(child)
    child.wait()


def _end_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
