"""The simulator's servers: the authorities' services over mutual TLS, and a control API in plain HTTP on loopback."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography import x509

from umavez import BoundedJson
from umavez_systems.fiscal.simulador.doors import Porta, PortaSefaz, Requisicao, Saida
from umavez_systems.fiscal.simulador.faults import TIPOS, Falha, Falhas
from umavez_systems.fiscal.simulador.ledger import Livros
from umavez_systems.fiscal.simulador.paulistana import MARKS, Paulistana
from umavez_systems.fiscal.simulador.sefaz import IRREGULAR, Sefaz
from umavez_systems.fiscal.simulador.sefin import Sefin
from umavez_systems.fiscal.wire.certificate import CNPJ_OID

LARGEST = 5_000_000
_BOUNDED = BoundedJson()
MARCAS = {"rps": tuple(MARKS), "destinatario": (IRREGULAR,)}
"""What can be marked over the control API: the RPS of a note by its id_idempotencia, a buyer by CPF or CNPJ."""
GARBAGE = b"\x00\xff<<<nem xml, nem nada&&&>"


class Mundo:
    """What both servers share."""

    def __init__(self, books: Livros, faults: Falhas) -> None:
        self.books = books
        self.faults = faults
        self.sefaz = PortaSefaz(Sefaz(books))
        self.portas: dict[str, Porta] = {"adn": Sefin(books), "sp": Paulistana(books)}
        """The authorities that have a part of the paths to themselves; the rest is SEFAZ."""
        self.atendendo = 0
        self.lock = threading.Lock()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], world: Mundo) -> None:
        self.world = world
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone, or came without a certificate, is no error here."""


class Autoridades(_Server):
    """The services, behind TLS that asks for a certificate of our CA."""

    def __init__(self, port: int, world: Mundo, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(port, Atendimento, world)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake happens in the connection's own thread: a slow client must not keep others waiting."""
        request.settimeout(30)
        with self._context.wrap_socket(request, server_side=True) as secured:
            secured.settimeout(120)
            super().finish_request(secured, client_address)


class _Answering(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        return self.rfile.read(min(int(length), LARGEST)) if re.match(r"^[0-9]{1,9}\Z", length) else b""

    def _say(self, status: int, content: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        content = b"" if self.command == "HEAD" else content
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Silent: requests name taxpayers and buyers."""


class Atendimento(_Answering):
    """One connection to the services."""

    def do_POST(self) -> None:
        """A call, through the faults."""
        body = self._body()
        parts = tuple(self.path.strip("/").split("/"))
        action = self.headers.get("SOAPAction", "").strip('"')
        call = Requisicao(self.command, parts, action, body, self._cnpj())
        self._porta = self.server.world.portas.get(parts[0], self.server.world.sefaz)
        service = self._porta.servico(call)
        if service is None:
            self._say(404, b"", "text/plain")
            return
        fault = self.server.world.faults.proxima(service)
        if fault is None:
            self._answer(self._porta.atender(call))
        elif fault.quando == "antes" and fault.tipo not in ("lento", "duplicada"):
            self._fail(fault, None)
        else:
            self._late_or_twice(fault, call)

    def do_GET(self) -> None:
        """The same."""
        self.do_POST()

    def do_HEAD(self) -> None:
        """The same; the body is left out."""
        self.do_POST()

    def _late_or_twice(self, fault: Falha, call: Requisicao) -> None:
        if fault.tipo == "lento" and fault.quando == "antes":
            time.sleep(fault.segundos)
        answer = self._porta.atender(call)
        if fault.tipo == "lento":
            if fault.quando == "depois":
                time.sleep(fault.segundos)
            self._answer(answer)
        elif fault.tipo == "duplicada":
            again = self._porta.atender(call)
            self._answer(answer if fault.quando == "antes" else again)
        else:
            self._fail(fault, answer)

    def _answer(self, answer: Saida) -> None:
        self._say(answer.status, answer.corpo, answer.tipo)

    def _fail(self, fault: Falha, answer: Saida | None) -> None:
        match fault.tipo:
            case "timeout":
                time.sleep(fault.segundos)
                self._drop()
            case "429":
                self._say(429, b"", "text/plain", {"Retry-After": str(max(0, int(fault.segundos)))})
            case "500":
                self._say(500, b"<erro/>", "text/xml")
            case "lixo":
                self._say(200, GARBAGE, "application/soap+xml")
            case "proxy":
                self._answer(self._porta.proxy)
            case "meia":
                self._half(b"<metade de uma resposta>" if answer is None else answer.corpo)
            case _:
                self._drop()

    def _half(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self._drop()

    def _drop(self) -> None:
        self.close_connection = True
        with_socket: Any = self.connection
        try:
            with_socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _cnpj(self) -> str | None:
        secured: Any = self.connection
        raw = secured.getpeercert(binary_form=True)
        if not raw:
            return None
        names = x509.load_der_x509_certificate(raw).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        for name in names.value.get_values_for_type(x509.OtherName):
            if name.type_id.dotted_string == CNPJ_OID:
                return name.value[-14:].decode()
        return None


class Controle(_Answering):
    """The control API: /_sim/falhas, /_sim/taxas, /_sim/livro, /_sim/saude."""

    def do_GET(self) -> None:
        """Look."""
        world = self.server.world
        match self.path:
            case "/_sim/livro":
                self._json(200, world.books.contents())
            case "/_sim/falhas":
                found = {"falhas": world.faults.na_fila(), "tipos": TIPOS, "acontecidas": world.faults.acontecidas}
                self._json(200, found)
            case "/_sim/saude":
                self._json(200, {"situacao": "ok"})
            case _:
                self._json(404, {"erro": "há /_sim/livro, /_sim/falhas, /_sim/taxas e /_sim/saude"})

    def do_POST(self) -> None:
        """Order faults."""
        faults = self.server.world.faults
        try:
            order = dict(_BOUNDED.parse(self._body() or b"{}"))
            if self.path == "/_sim/falhas":
                self._json(201, faults.pedir(order).shown())
            elif self.path == "/_sim/taxas":
                faults.taxas(order)
                self._json(200, {})
            elif self.path == "/_sim/marcas":
                self._json(201, self.server.world.books.mark(order, MARCAS))
            elif self.path == "/_sim/hora":
                self._json(200, self.server.world.books.shorten(order))
            else:
                self._json(404, {"erro": "há POST /_sim/falhas, /_sim/taxas, /_sim/marcas e /_sim/hora"})
        except (ValueError, TypeError) as error:
            self._json(422, {"erro": str(error)})

    def do_DELETE(self) -> None:
        """Forget the faults."""
        self.server.world.faults.limpar()
        self._json(200, {})

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self._say(status, json.dumps(body, ensure_ascii=False).encode(), "application/json")
