"""The Redis store over TLS, against a server with a certificate made for the test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import KINDS
from tests.servers.private import free_port
from tests.stores.redis.redis_drafts import claim, opened
from umavez.core.flow import Swapped
from umavez.errors import ConfigurationError, StoreUncertain

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, int]]:
    """A server's rediss:// URL, the certificate it can be trusted by, and its process."""
    programs = KINDS["redis"].locate()
    if not programs or not shutil.which("openssl"):
        pytest.skip("needs redis-server and openssl: apt-get install redis-server openssl")
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    making = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2"
    words = [*making.split(), "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    options = f"--port 0 --tls-port {port} --tls-cert-file cert.pem --tls-key-file key.pem --tls-auth-clients no"
    command = [str(programs["redis-server"]), *options.split(), "--save", ""]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        _await(port, server)
        yield f"rediss://127.0.0.1:{port}", folder / "cert.pem", server.pid
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def secure(secured: tuple[str, Path, int]) -> tuple[str, Path]:
    """The same without the process."""
    return secured[:2]


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.skip("this redis-server was built without TLS")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    pytest.fail("the TLS server did not come up")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_records_travel_over_tls_large_ones_too(kind: str, secure: tuple[str, Path]) -> None:
    url, authority = secure
    large = claim(f"large {kind}", "s", progress="x" * 1_000_000)
    with opened(kind, f"{url}?ca={authority}") as store:
        assert isinstance(store.swap(None, large), Swapped)
        assert store.read(large.key).current.progress == large.progress


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_certificate_that_is_not_trusted_is_refused_with_advice(kind: str, secure: tuple[str, Path]) -> None:
    with opened(kind, secure[0]) as store, pytest.raises(ConfigurationError, match="is not trusted; name its"):
        store.read(claim("k", "s").key)


def test_a_server_that_falls_silent_behind_tls_holds_nobody(secured: tuple[str, Path, int]) -> None:
    """OpenSSL takes a time-out of the kernel's for "try again", so this socket must be bound in another way."""
    url, authority, server = secured
    with opened("sync", f"{url}?ca={authority}&timeout=0.4") as store:
        store.swap(None, claim("before silence", "s"))
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(StoreUncertain):
                store.swap(None, claim("in silence", "s"))
            assert time.monotonic() - began < 5
        finally:
            os.kill(server, signal.SIGCONT)
