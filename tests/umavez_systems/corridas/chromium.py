"""A headless Chromium, driven over its own debugging protocol: no browser library is needed."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0


class Page:
    """One tab: it evaluates, waits, and shows what it looks like; `requests` are the addresses it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; events that come before its answer are noted."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str, width: int, height: int) -> None:
        """Go to an address, on a screen of this size."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        mobile = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def look(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait for an expression to be true. Fails with what the page says."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.look(expression)
            if value:
                return value
            time.sleep(0.05)
        pytest.fail(f"{expression} never became true; the page says: {self.look('document.body.innerText')}")

    def shoot(self, path: Path) -> None:
        """Keep a picture."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


def browser() -> str:
    """The browser's program; without one the test is skipped, except under CI=true."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.environ.get("CI", "").lower() in {"true", "1"}:
        if os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium"], check=True)
        found = shutil.which("chromium")
        if found is None:
            pytest.fail("no Chromium here: install it (apt-get install chromium)", pytrace=False)
    if found is None:
        pytest.skip("no Chromium here: install it (apt-get install chromium) to test the page")
    return found


@contextlib.contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A fresh browser with one tab."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [browser(), *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with connect(_tab(folder), max_size=None, proxy=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait(30)


def _tab(folder: Path) -> str:
    """The debugging address of the first tab, once the browser has written where it listens."""
    import httpx

    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError, httpx.HTTPError, IndexError, StopIteration):
            port = (folder / "DevToolsActivePort").read_text().splitlines()[0]
            tabs = httpx.get(f"http://127.0.0.1:{port}/json", timeout=5, trust_env=False).json()
            return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        time.sleep(0.05)
    pytest.fail("Chromium did not start")
