"""Spool: a request body on its way in, held up to a limit and hashed while it comes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterable, Iterator
from hashlib import sha256
from typing import IO

from umavez.http.contract.problem import BODY_INCOMPLETE, BODY_TOO_LARGE, Problem

PIECE = 64 * 1024


class Spool:
    """Collects a body: small ones in memory, larger ones in a temporary file, none above `limit` (413)."""

    def __init__(self, limit: int, memory: int) -> None:
        self._limit = limit
        self._memory = memory
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self._digest = sha256()
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Take one more chunk. Raises Problem above the limit."""
        self.size += len(chunk)
        if self.size > self._limit:
            self.close()
            raise Problem(BODY_TOO_LARGE, f"The body may have at most {self._limit} bytes.")
        if self._file is None and self.size > self._memory:
            self._spill()
        if self._file is None:
            self._held += chunk
            return
        self._digest.update(chunk)
        self._file.write(chunk)

    def _spill(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="umavez-")  # noqa: SIM115 - closed by close(), later than this block
        self._digest.update(self._held)
        self._file.write(self._held)
        self._held = bytearray()

    @property
    def whole(self) -> bytes | None:
        """The body, where it is in memory; else None."""
        return bytes(self._held) if self._file is None else None

    @property
    def digest(self) -> bytes:
        """SHA-256 of a body that is not in memory."""
        return self._digest.digest()

    def pieces(self) -> Iterator[bytes]:
        """The body from its beginning."""
        if self._file is None:
            yield bytes(self._held)
            return
        self._file.seek(0)
        while piece := self._file.read(PIECE):
            yield piece

    def file(self) -> IO[bytes] | None:
        """The temporary file at its beginning, or None for a body in memory."""
        if self._file is not None:
            self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Let go of the temporary file. Safe to repeat."""
        if self._file is not None:
            self._file.close()


def declared_length(text: str | bytes | None) -> int | None:
    """The number in a Content-Length field; None where there is none, or something else.

    More than 18 digits are one number, above every limit: how many digits are converted is not left to int().
    """
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return int(text) if len(text) <= 18 else 10**18


def refuse_declared(length: str | bytes | None, limit: int) -> None:
    """Refuse a body by its declared length, before any of it is read. Raises Problem (413)."""
    declared = declared_length(length)
    if declared is not None and declared > limit:
        raise Problem(BODY_TOO_LARGE, f"The body may have at most {limit} bytes.")


def refuse_incomplete(length: str | bytes | None, size: int) -> None:
    """Refuse a body that ended before its declared length: its sender left. Raises Problem (400)."""
    declared = declared_length(length)
    if declared is not None and size < declared:
        raise Problem(BODY_INCOMPLETE)


async def collect_body(stream: AsyncIterable[bytes], limit: int) -> bytes:
    """The whole body of a request that comes in chunks. Raises Problem (413) above the limit, without the rest."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit:
            raise Problem(BODY_TOO_LARGE, f"The body may have at most {limit} bytes.", limit=limit)
        chunks.append(chunk)
    return b"".join(chunks)
