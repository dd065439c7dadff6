"""TISS messages as XML: written by hand, read within bounds. No document type, no entity, nothing is fetched.

Element names and their order follow the ANS's standard 4.03.00. The epilogue's hash is the standard's own: MD5 over the
texts of all leaves in document order. Payers do not agree on its bytes: some take UTF-8, some the ISO-8859-1 of the
files. Written here in UTF-8, read in either. It shows damage, not intent: it is no signature.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from xml.parsers import expat  # document types are refused, and without them there are no entities
from xml.sax.saxutils import escape  # writes text, reads nothing

NAMESPACE = "http://www.ans.gov.br/padroes/tiss/schemas"
STANDARD = "4.03.00"
BRASILIA = timezone(timedelta(hours=-3))
LARGEST = 2_000_000
"""Bytes of a message that is read."""
DEEPEST = 24
MOST = 50_000
"""Elements of a message that is read."""
_DECLARED = re.compile(rb"""(?:\xef\xbb\xbf)?<\?xml [^>]{0,99}encoding\s*=\s*["']utf8["']""", re.IGNORECASE)
"""The name that many writers have for UTF-8, and expat has not."""
Node = tuple[str, "str | Sequence[Node]"]
"""An element to be written: its name, and its text or what is in it."""


class InvalidMessage(ValueError):
    """What was sent is no TISS message that can be read; the text says why, and quotes nothing of it."""


@dataclass(slots=True)
class Element:
    """An element that was read; names without their namespace."""

    name: str
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, path: str) -> list[Element]:
        """Every element at a path such as "a/b"."""
        found = [self]
        for name in path.split("/"):
            found = [child for parent in found for child in parent.children if child.name == name]
        return found

    def one(self, path: str) -> Element:
        """The only element at `path`. Raises InvalidMessage where there is none, or more."""
        found = self.all(path)
        if len(found) != 1:
            raise InvalidMessage(f"A mensagem TISS deve ter um {path}, e tem {len(found)}.")
        return found[0]

    def leaf(self, path: str, longest: int = 70) -> str:
        """The text of the only element at `path`: 1 to `longest` characters that can be shown."""
        text = self.one(path).text.strip()
        if not 1 <= len(text) <= longest or not text.isprintable():
            raise InvalidMessage(f"{path} deve ter de 1 a {longest} caracteres.")
        return text


def message(transaction: str, number: str, when: datetime, ends: tuple[Node, Node], body: Node) -> bytes:
    """A whole message, in ISO-8859-1 as payers expect it. `ends` are its origem and destino.

    Its day and hour are written as they are in Brasília: the standard has no time zone, and a payer there would find
    the evening's messages in the future.
    """
    local = when.astimezone(BRASILIA)
    head: Node = (
        "cabecalho",
        [
            (
                "identificacaoTransacao",
                [
                    ("tipoTransacao", transaction),
                    ("sequencialTransacao", number),
                    ("dataRegistroTransacao", f"{local:%Y-%m-%d}"),
                    ("horaRegistroTransacao", f"{local:%H:%M:%S}"),
                ],
            ),
            ("origem", [ends[0]]),
            ("destino", [ends[1]]),
            ("Padrao", STANDARD),
        ],
    )
    digest = hash_of(text for node in (head, body) for text in _leaves(node))
    parts = "".join(_written(node) for node in (head, body, ("epilogo", [("hash", digest)])))
    start = f'<?xml version="1.0" encoding="ISO-8859-1"?>\n<ans:mensagemTISS xmlns:ans="{NAMESPACE}">'
    # What the encoding lacks goes as a numeric reference, which every reader knows.
    return f"{start}{parts}</ans:mensagemTISS>\n".encode("iso-8859-1", "xmlcharrefreplace")


def hash_of(texts: Iterable[str]) -> str:
    """The standard's hash of a message whose leaves have these texts."""
    return _md5("".join(texts).encode())


def hashes_of(texts: Iterable[str]) -> Iterator[str]:
    """Every hash that a payer may have written for these texts."""
    whole = "".join(texts)
    yield hash_of([whole])
    for encoding in ("iso-8859-1", "windows-1252"):
        try:
            data = whole.encode(encoding)
        except UnicodeEncodeError:
            continue
        # Texts whose bytes are UTF-8 were read by a declaration that is wrong: they say something else.
        if not _is_utf8(data):
            yield _md5(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _leaves(node: Node) -> Iterator[str]:
    content = node[1]
    if isinstance(content, str):
        yield content
    else:
        for child in content:
            yield from _leaves(child)


def _written(node: Node) -> str:
    name, content = node
    inside = escape(content) if isinstance(content, str) else "".join(_written(child) for child in content)
    return f"<ans:{name}>{inside}</ans:{name}>"


def parsed(data: bytes) -> Element:
    """The root of a message, its hash checked. Raises InvalidMessage."""
    if len(data) > LARGEST:
        raise InvalidMessage(f"A mensagem TISS tem mais de {LARGEST} bytes.")
    reader = _Reader()
    reader.read(data)
    root = reader.root
    if root is None or root.name != "mensagemTISS":
        raise InvalidMessage("O documento não é uma mensagemTISS.")
    if root.leaf("epilogo/hash").lower() not in hashes_of(reader.texts):
        why = "foi alterada, ou não está na codificação que declara"
        raise InvalidMessage(f"A mensagem TISS não confere com o seu hash ({why}); peça o arquivo de novo.")
    return root


class _Reader:
    """Builds elements out of expat's events, and stops at the first thing that is not to be there."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self.texts: list[str] = []
        """Of all leaves but the hash, in order."""
        self._open: list[tuple[Element, list[str]]] = []
        self._count = 0
        self._foreign = 0

    def read(self, data: bytes) -> None:
        parser = expat.ParserCreate("utf-8" if _DECLARED.match(data) else None, namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_document_type
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(data, True)
        except InvalidMessage:
            raise
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise InvalidMessage("O documento não é XML bem formado na codificação que declara.") from error

    def _start(self, name: str, _attributes: Any) -> None:
        self._count += 1
        if self._count > MOST or len(self._open) + self._foreign >= DEEPEST:
            raise InvalidMessage(f"A mensagem TISS tem mais de {MOST} elementos, ou mais de {DEEPEST} níveis.")
        space, _, plain = name.rpartition(" ")
        if self._foreign or space != NAMESPACE:
            # A signature, for instance: neither read nor part of the hash.
            self._foreign += 1
            return
        element = Element(plain)
        if self._open:
            self._open[-1][0].children.append(element)
        elif self.root is None:
            self.root = element
        self._open.append((element, []))

    def _end(self, _name: str) -> None:
        if self._foreign:
            self._foreign -= 1
            return
        element, parts = self._open.pop()
        if not element.children:
            element.text = "".join(parts)
            if element.name != "hash":
                self.texts.append(element.text)

    def _characters(self, text: str) -> None:
        if self._open and not self._foreign:
            self._open[-1][1].append(text)


def _refuse_document_type(*_: Any) -> None:
    raise InvalidMessage("A mensagem TISS não pode ter DOCTYPE nem entidades.")
