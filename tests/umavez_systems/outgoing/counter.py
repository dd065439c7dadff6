"""A server of the tests' own, which answers as it is told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Counter:
    """A server that says what it is told to, one answer for each request; None hangs up instead."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.hang_up = False
        """After each answer, without having said so."""
        self.drops = b""
        """What follows each answer, byte by byte."""
        self.before: Callable[[], None] = lambda: None
        """Called before each answer."""
        self.connections = 0
        self.requests: list[bytes] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._door.getsockname()[1]}/servico?a=1"
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError):  # whoever asked may have left
            while asked := line.recv(1_000_000):
                self.requests.append(asked)
                self.before()
                answer = self.answers.pop(0) if self.answers else OK
                if answer is None:
                    return
                line.sendall(answer)
                for drop in self.drops:
                    time.sleep(0.05)
                    line.sendall(bytes((drop,)))
                if self.hang_up:
                    return

    def close(self) -> None:
        with suppress(OSError):  # closed before
            self._door.shutdown(socket.SHUT_RDWR)  # wakes whoever waits at it
        self._door.close()
