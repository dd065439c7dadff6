"""Writing: a document of nfelib's bindings as an lxml tree.

xsdata's own serializer decides anew for every element what it could be (a union, a wildcard, a type of its own) and
takes ten times as long. The layouts of NF-e have none of that: elements in order, attributes, texts. What they have is
read from the bindings once; anything else is refused, and never written by guessing.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from lxml import etree  # type: ignore[import-untyped]  # ships no type information
from xsdata.formats.converter import converter
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.models.elements import XmlVar

_CONTEXT = XmlContext()
_Child = etree.SubElement


class _Field(NamedTuple):
    """One field of a binding: its name in Python and in the document, and how a value that is no text is written."""

    name: str
    tag: str
    form: str | None


class _Kind(NamedTuple):
    """A binding's fields in the order of the layout."""

    tag: str
    attributes: tuple[_Field, ...]
    elements: tuple[_Field, ...]


def arvore(document: Any, namespace: str) -> Any:
    """The document's root, with `namespace` as the default one. Raises TypeError for a binding that is not plain."""
    kind = _kind_of(document)
    return _filled(etree.Element(kind.tag, nsmap={None: namespace}), kind, document)


def _filled(element: Any, kind: _Kind, value: Any) -> Any:
    # By the object's own dictionary: a note has some 350 fields, of which a quarter are given.
    held = value.__dict__
    for name, tag, form in kind.attributes:
        given = held[name]
        if given is not None:
            element.set(tag, _text(given, form))
    for name, tag, form in kind.elements:
        given = held[name]
        if given is None:
            continue
        for one in given if type(given) is list else (given,):
            child = _Child(element, tag)
            if type(one) is str:
                child.text = one or None
            elif (inner := _inner_of(one)) is not None:
                _filled(child, inner, one)
            else:
                child.text = _text(one, form) or None
    return element


def _text(value: Any, form: str | None) -> str:
    if type(value) is str:
        return value
    if isinstance(value, Enum):
        return _member(value, form)
    return str(converter.serialize(value, format=form))


@cache
def _member(value: Enum, form: str | None) -> str:
    return _text(value.value, form)


def _kind_of(value: Any) -> _Kind:
    binding: Any = type(value)
    return _kind(binding)


def _inner_of(value: Any) -> _Kind | None:
    binding: Any = type(value)
    return _inner(binding)


@cache
def _inner(binding: Any) -> _Kind | None:
    """The fields of a binding; None for whatever is a text in the end."""
    plain: Any = binding if is_dataclass(binding) else None
    return None if plain is None else _kind(plain)


@cache
def _kind(binding: Any) -> _Kind:
    meta = _CONTEXT.build(binding)
    attributes, elements = meta.get_attribute_vars(), meta.get_element_vars()
    if meta.nillable or not all(map(_plain, (*attributes, *elements))):
        raise TypeError(f"{binding.__qualname__} is no plain sequence of elements; write it with xsdata's serializer.")
    return _Kind(meta.qname, tuple(map(_field, attributes)), tuple(map(_field, elements)))


def _field(found: XmlVar) -> _Field:
    return _Field(found.name, found.qname, found.format)


def _plain(field: XmlVar) -> bool:
    odd = field.sequence is not None or field.nillable or field.tokens or field.any_type or field.wrapper
    return (field.is_attribute or field.is_element) and not odd
