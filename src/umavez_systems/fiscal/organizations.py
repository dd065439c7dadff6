"""Organisations: who emits, with which certificate, against which authority. Certificates are kept sealed."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from umavez import Key
from umavez.encryption import SealedCodec, new_key
from umavez_systems.database import Connection, Database, Duplicate, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.domain import Endereco, Tipo
from umavez_systems.fiscal.ports import Autoridade
from umavez_systems.fiscal.rules.identifiers import cnpj_limpo, invalid
from umavez_systems.fiscal.rules.orders import endereco_de, texto
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import Emitente
from umavez_systems.problems import Problem

MOST_REMEMBERED = 1000
"""Organisations whose rows are kept in memory; only a new certificate ever changes one."""
MOST_OPEN = 500
"""Accesses to authorities that are open at a time, each with a TLS context and its connections."""
SEALED = "fiscal_certificado"
"""What the sealed certificate is, in the name that its seal is bound to."""
INSERT = (
    "INSERT INTO fiscal_organizacoes (id, principal, nome, cnpj, uf, ambiente, emitente, certificado,"
    " certificado_vence_em, criado_em) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
PAGE = "SELECT * FROM fiscal_organizacoes WHERE principal = ? AND id > ? ORDER BY id LIMIT ?"
"""By id, which has an index and begins with the principal: a page reads itself and little more."""
RENEW = (
    "UPDATE fiscal_organizacoes SET certificado = ?, certificado_vence_em = ? WHERE id = ? AND certificado_vence_em < ?"
    " RETURNING id"
)
"""A later certificate takes the place of an earlier one, and never the other way round: a repeat may come late."""


@dataclass(frozen=True, slots=True)
class Organizacao:
    """An organisation as the system uses it."""

    id: str
    nome: str
    principal: str
    ambiente: str
    emitente: Emitente
    certificado: Certificado

    @property
    def tp_amb(self) -> str:
        """1 production, 2 everything else."""
        return "1" if self.ambiente == "producao" else "2"


Abrir = Callable[[Organizacao, str], Autoridade]
"""Opens an organisation's access to the authority of this name."""


def sealing(folder: Path) -> SealedCodec:
    """What certificates are sealed with: UMAVEZ_SEAL_KEYS, or a key of this folder, made on first use."""
    if os.environ.get("UMAVEZ_SEAL_KEYS"):
        return SealedCodec.from_environment()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "selo.chave"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_key())
    except FileExistsError:
        pass
    return SealedCodec({"local": base64.b64decode(path.read_text())})


class Organizacoes:
    """Keeps organisations and opens their authorities, each once."""

    def __init__(self, database: Database, folder: Path, abrir: Abrir) -> None:
        self._database = database
        self._dialect = tables.Dialect(database)
        self._folder = folder
        self._abrir = abrir
        self._opened: dict[tuple[str, str], tuple[Autoridade, float]] = {}
        """By organisation and authority, each with the moment until which its certificate is good; the last used last.

        One that is closed while somebody is sending through it lets that call end.
        """
        self._rows: dict[str, Row] = {}
        self._lock = threading.Lock()

    @cached_property
    def _codec(self) -> SealedCodec:
        # Only when a certificate is sealed or opened: a server that emits nothing must leave no folder behind.
        return sealing(self._folder)

    def criar(self, principal: str, data: dict[str, Any], pfx: bytes, senha: str, ambiente: str) -> tuple[Row, bool]:
        """A new organisation, or the one that is there with the same data; a certificate that ends later is taken over.

        Raises 409 and 422 problems.
        """
        cert = Certificado.lido(pfx, senha)
        nome = texto(data, "id", 1, 60)
        emitente = emitente_de(data)
        if not cert.valido():
            raise Problem(422, "certificado-invalido", "Certificado inválido", "O certificado está fora da validade.")
        if cert.cnpj is None or cert.cnpj[:8] != emitente.cnpj[:8]:
            raise Problem(422, "certificado-invalido", "Certificado inválido", "O certificado é de outro CNPJ.")
        org_id = identidade(principal, nome)
        secret = self._codec.encode(
            {"pfx": base64.b64encode(pfx).decode(), "senha": senha}, Key(org_id, SEALED, emitente.cnpj)
        )
        written = json.dumps(asdict(emitente), ensure_ascii=False, sort_keys=True)
        ends = int(cert.vence_em.timestamp() * 1000)
        try:
            with self._database.transaction() as connection:
                now = self._dialect.now(connection)
                place = (org_id, principal, nome, emitente.cnpj, emitente.uf, ambiente)
                connection.rows(INSERT, (*place, written, secret, ends, now))
            return self.linha(principal, nome), True
        except Duplicate:
            row = self.linha(principal, nome)
        if _stored(row) != emitente:
            raise Problem(409, "organizacao-existe", "Organização já existe", f"{nome} já existe com outros dados.")
        with self._database.statements() as connection:
            renewed = connection.rows(RENEW, (secret, ends, org_id, ends))
        if renewed:
            with self._lock:
                self._rows.pop(org_id, None)
            self.esquecer(org_id)
        return self.linha(principal, nome), False

    def linha(self, principal: str, nome: str) -> Row:
        """An organisation's row. Raises a 404 problem."""
        org_id = identidade(principal, nome)
        row = self._rows.get(org_id)
        if row is None or row["certificado_vence_em"] <= time.time() * 1000:
            with self._database.statements() as connection:
                row = connection.row(tables.ORGANISATION, (org_id,))
            if row is None:
                raise Problem(404, "nao-encontrado", "Organização não encontrada", f"Não há organização {nome[:60]}.")
            if len(self._rows) < MOST_REMEMBERED:
                self._rows[org_id] = row
        return row

    def apta(self, principal: str, nome: str) -> Row:
        """An organisation's row, if it may sign. Raises 404 and 409 problems; no number has been taken yet."""
        row = self.linha(principal, nome)
        if row["certificado_vence_em"] <= time.time() * 1000:
            detail = "O certificado venceu; envie outro com POST /api/v1/fiscal/organizacoes e os mesmos dados."
            raise Problem(409, "certificado-vencido", "Certificado vencido", detail)
        return row

    def pagina(self, principal: str, depois: str, limite: int) -> list[Row]:
        """A page of the principal's organisations, by name; `depois` is the last name of the page before."""
        with self._database.statements() as connection:
            return connection.rows(PAGE, (principal, identidade(principal, depois), limite))

    def tem(self, principal: str, nome: str) -> bool:
        """Whether the principal has an organisation of this name."""
        with self._database.statements() as connection:
            return connection.row(tables.ORGANISATION, (identidade(principal, nome),)) is not None

    def autoridade(self, org_id: str, tipo: Tipo = Tipo.NFE) -> Autoridade:
        """The organisation's access to the authority of a kind, opened once. Raises 404 and 422 problems."""
        place = (org_id, tipo.autoridade)
        with self._lock:
            found = self._opened.pop(place, None)
            if found is None or found[1] <= time.time():
                if found is not None:
                    found[0].close()
                read = self._read(org_id)
                opened = self._abrir(read, tipo.autoridade)
                found = (opened, read.certificado.vence_em.timestamp())
            self._opened[place] = found  # at the end: the first ones are those that nobody has asked for since
            while len(self._opened) > MOST_OPEN:
                self._opened.pop(next(iter(self._opened)))[0].close()
            return found[0]

    def _read(self, org_id: str) -> Organizacao:
        with self._database.statements() as connection:
            row = connection.row(tables.ORGANISATION, (org_id,))
        if row is None:
            raise Problem(404, "nao-encontrado", "Organização não encontrada", "Não há organização com este nome.")
        secret = self._codec.decode(row["certificado"], Key(org_id, SEALED, row["cnpj"]))
        cert = Certificado.lido(base64.b64decode(secret["pfx"]), secret["senha"])
        return Organizacao(org_id, row["nome"], row["principal"], row["ambiente"], _stored(row), cert)

    def esquecer(self, org_id: str) -> None:
        """Close its accesses, so that the next use opens them anew (the simulator moved, the certificate changed)."""
        with self._lock:
            found = [self._opened.pop(place) for place in list(self._opened) if place[0] == org_id]
        for access, _ in found:
            access.close()

    def close(self) -> None:
        """Give every connection back."""
        for org_id in {place[0] for place in self._opened}:
            self.esquecer(org_id)


def _stored(row: Row) -> Emitente:
    stored = json.loads(row["emitente"])
    return Emitente(**{**stored, "endereco": Endereco(**stored["endereco"])})


def identidade(principal: str, nome: str) -> str:
    """An organisation's id: whose it is stands in it."""
    return f"{principal}/{nome[:60]}"


def emitente_de(data: dict[str, Any]) -> Emitente:
    """The emitter in a request's body. Raises 422 problems."""
    where = endereco_de(data.get("endereco"), "endereco")
    crt = str(data.get("crt", "1"))
    if crt not in ("1", "2", "3", "4"):
        raise invalid("crt: 1, 2, 3 ou 4.")
    csc = data.get("csc")
    return Emitente(
        cnpj_limpo(str(data.get("cnpj", ""))[:30]),
        texto(data, "nome", 2, 60),
        texto(data, "ie", 2, 14),
        where.uf,
        where,
        crt,
        None if csc is None else texto(data, "csc", 1, 36),
        None if csc is None else texto(data, "csc_id", 1, 6),
        *_city(data),
    )


def _city(data: dict[str, Any]) -> tuple[str | None, str | None, str, bool]:
    """What service invoices need: municipal registration, São Paulo's CCM and layout, who issues in the city."""
    layout, nacional = str(data.get("layout_sp", "1")), data.get("emissor_nacional", True)
    if layout not in ("1", "2") or not isinstance(nacional, bool):
        raise invalid("layout_sp: 1 ou 2; emissor_nacional: true ou false.")
    ccm = None if data.get("ccm") is None else texto(data, "ccm", 1, 12 if layout == "2" else 8)
    if ccm is not None and not re.match(r"^[0-9]+\Z", ccm, re.ASCII):
        raise invalid("ccm: só dígitos.")
    im = None if data.get("im") is None else texto(data, "im", 1, 15)
    return im, None if ccm is None else ccm.lstrip("0"), layout, nacional


def cnpj_demo(principal: str) -> str:
    """A CNPJ for a principal's demonstration: the same every time, another for everybody else."""
    from umavez_systems.documentos import valid_document  # noqa: PLC0415  # only here

    letters = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
    seed = sha256(principal.encode()).digest()
    body = "".join(letters[byte % len(letters)] for byte in seed[:8]) + "0001"
    found = next(f"{body}{digits:02d}" for digits in range(100) if valid_document(f"{body}{digits:02d}"))
    return found if principal != "local" else "11222333000181"


def ccm_demo(cnpj: str) -> str:
    """A São Paulo registration for whoever has told none, against the simulator only: the same every time."""
    return str(10_000_000 + int.from_bytes(sha256(cnpj.encode()).digest()[:6]) % 89_999_999)


def bloquear(connection: Connection, org_id: str, modelo: str, serie: int, bloqueado: bool) -> None:
    """Block or unblock a series: no number is given while it is blocked."""
    sql = "UPDATE faixas_numeracao SET bloqueado = ? WHERE org_id = ? AND modelo = ? AND serie = ?"
    connection.rows(sql, (bloqueado, org_id, modelo, serie))
