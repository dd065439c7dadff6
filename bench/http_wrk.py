"""Requests per second behind uvicorn, measured with wrk: bare route, umavez, and peers that are installed.

    python -m bench.http_wrk --store redis://127.0.0.1:6379/9 [--seconds 5] [--subjects bare umavez snok]

"first": every request has a key of its own. "replay": a hundred keys, again and again. One uvicorn worker; the store,
wrk and the server share the machine. Peers are imported from PYTHONPATH; one that cannot be imported is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from umavez import Once

SCRIPT = """
local body = '{"order":"o-17","amount":1999,"currency":"BRL"}'
local count, threads, run = 0, 0, "%s"
function setup(thread) thread:set("number", threads); threads = threads + 1 end
function request()
  count = count + 1
  local n = run == "replay" and (count %% 100) or count
  local t = run == "replay" and 0 or number
  local key = string.format("%s-0000-4000-8000-%%04d%%08d", t, n)
  return wrk.format("POST", "/charges", {["Content-Type"]="application/json", ["Idempotency-Key"]=key}, body)
end
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def served(subject: str, store: str, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A uvicorn with `subject`, answering; raises RuntimeError if it does not start."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "bench.http_serve:app", "--port", str(port)]
    command += ["--log-level", "error", "--no-access-log", "--lifespan", "off"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env={**os.environ, "SUBJECT": subject, "STORE": store}, stdout=file, stderr=file
        )
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    raise RuntimeError(log.read_text().strip().splitlines()[-1:])


def wrk(port: int, run: str, options: argparse.Namespace, folder: Path) -> str:
    """One run of wrk: requests per second, and how many answers were no success."""
    script = folder / f"{run}.lua"
    script.write_text(SCRIPT % (run, f"{time.time_ns() % 2**32:08x}" if run == "first" else "aaaaaaaa"))
    command = ["wrk", "-t2", f"-c{options.connections}", f"-d{options.seconds}s", "-s", str(script), "--latency"]
    said = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    tail = re.search(r"99%\s+(\S+)", said)
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    assert rate is not None
    return f"{float(rate[1]):8.0f}/s  p99 {tail[1] if tail else '?':>8}  not 2xx {failed[1] if failed else 0}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="memory:")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--subjects", nargs="*", default=["bare", "umavez", "fastidempotent", "snok"])
    options = parser.parse_args()
    if options.store != "memory:":
        with Once(options.store, scope="bench") as once:
            once.migrate()
    print(f"{options.store.partition(':')[0]}, {options.connections} connections, {options.seconds} s each")
    with tempfile.TemporaryDirectory() as name:
        for subject in options.subjects:
            try:
                process, port = served(subject, options.store, Path(name) / "log")
            except RuntimeError as error:
                print(f"{subject:15} left out: {error}")
                continue
            try:
                for run in ("first", "replay"):
                    print(f"{subject:15} {run:7} {wrk(port, run, options, Path(name))}", flush=True)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()


if __name__ == "__main__":
    main()
