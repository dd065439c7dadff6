"""Uploads: a multipart body streamed to a spool file, hashed on the way; nothing is held in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser, parse_options_header

from umavez_systems.mailing.domain import invalid
from umavez_systems.mailing.ingest.dialect import SAMPLE, dialect_of
from umavez_systems.mailing.ingest.sweeping import SPOOL
from umavez_systems.problems import Problem

FIELD_LONGEST = 1_000_000
FIELDS = ("assunto", "texto", "html", "template", "remetente", "identidade", "reingestao", "duvida")


@dataclass(slots=True)
class Spool:
    """A file on its way to the storage: written beside what is kept, removed whatever happens."""

    stream: BinaryIO
    path: Path
    digest: Any = field(default_factory=hashlib.sha256)
    size: int = 0
    sample: bytes = b""

    def write(self, block: bytes | bytearray) -> None:
        """Append a block."""
        self.stream.write(block)
        self.digest.update(block)
        if self.size < SAMPLE:
            self.sample += bytes(block[: SAMPLE - self.size])
        self.size += len(block)

    def close(self) -> None:
        """Make it durable."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()

    @property
    def content_hash(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        text: str = self.digest.hexdigest()
        return text


@contextlib.contextmanager
def spooled(folder: Path | None = None) -> Iterator[Spool]:
    """A spool that is gone afterwards, unless the storage took the file."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=SPOOL[0], suffix=SPOOL[1], dir=folder)
    spool = Spool(os.fdopen(handle, "wb"), Path(name))
    try:
        yield spool
    finally:
        spool.stream.close()
        spool.path.unlink(missing_ok=True)


def spool_file(path: Path, spool: Spool) -> None:
    """Copy a local file into the spool."""
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            spool.write(block)
    spool.close()


async def receive(
    content_type: str | None, body: AsyncIterator[bytes], spool: Spool, limit: int
) -> tuple[str, dict[str, str]]:
    """The file's name and the other fields of a form. Raises 4xx problems; a body that was cut off is one of them."""
    kind, options = parse_options_header(content_type or "")
    if kind != "multipart/form-data" or not options.get("boundary"):
        raise Problem(415, "formato", "Formato não aceito", "Envie multipart/form-data com o campo 'file'.")
    form = _Form(spool, limit)
    try:
        with PushMultipartParser(options["boundary"], max_segment_count=50, max_header_size=4096) as parser:
            async for block in body:
                if block:
                    for event in parser.parse(block):
                        form.take(event)
    except ParserLimitReached as error:
        raise Problem(
            413, "corpo-grande", "Corpo grande demais", "O formulário tem partes ou cabeçalhos demais."
        ) from error
    except (MultipartError, ValueError) as error:
        raise Problem(
            400,
            "formulario",
            "Formulário inválido",
            "O corpo não é um formulário completo; confira o boundary e o fim.",
        ) from error
    await asyncio.to_thread(spool.close)  # a disk that takes its time must not keep the loop from everybody else
    if form.filename is None:
        raise invalid("Falta o arquivo: envie-o no campo 'file'.")
    return form.filename, form.fields()


class _Form:
    """What the parts of a form become."""

    def __init__(self, spool: Spool, limit: int) -> None:
        self._spool = spool
        self._limit = limit
        self._current: MultipartSegment | None = None
        self._texts: dict[str, bytearray] = {}
        self.filename: str | None = None

    def take(self, event: MultipartSegment | bytearray | bytes | None) -> None:
        """One event of the parser: a part begins, goes on, or ends."""
        if isinstance(event, MultipartSegment):
            self._begin(event)
        elif event is None:
            self._current = None
        elif self._current is not None and self._current.name == "file":
            self._write(event)
        elif self._current is not None:
            self._add(self._texts[self._current.name], event)

    def _write(self, block: bytes | bytearray) -> None:
        """Spool a block. What its beginning shows to be no list is refused there, and not after two gigabytes."""
        before = self._spool.size
        self._spool.write(block)
        if before < SAMPLE <= self._spool.size:
            dialect_of(self._spool.sample, whole=False)
        if self._spool.size > self._limit:
            raise Problem(413, "arquivo-grande", "Arquivo grande demais", f"O limite é de {self._limit} bytes.")

    def _begin(self, part: MultipartSegment) -> None:
        self._current = part
        if part.name == "file":
            if self.filename is not None:
                raise invalid("Envie um só arquivo no campo 'file'.")
            self.filename = part.filename or ""
            return
        if part.name not in FIELDS:
            raise invalid(f"O campo {part.name[:60]!r} não é conhecido; os campos são file, {', '.join(FIELDS)}.")
        self._texts[part.name] = bytearray()

    def _add(self, text: bytearray, block: bytes | bytearray) -> None:
        if len(text) + len(block) > FIELD_LONGEST:
            raise Problem(413, "campo-grande", "Campo grande demais", f"Um campo tem no máximo {FIELD_LONGEST} bytes.")
        text += block

    def fields(self) -> dict[str, str]:
        """The texts that were sent. Raises 422 problems for what is no text that a database can hold."""
        if any(0 in text for text in self._texts.values()):
            raise invalid("Os campos do formulário não podem conter o caractere NUL.")
        try:
            return {name: text.decode() for name, text in self._texts.items()}
        except UnicodeDecodeError:
            raise invalid("Os campos do formulário devem estar em UTF-8.") from None
