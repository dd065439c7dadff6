"""Templates: Jinja2 in its sandbox, and of that only what a mail needs: values, conditions and a few filters.

No loops, calls or arithmetic, few marks, and a longest mail: what a stranger writes is bounded before it is compiled,
and what it becomes with a stranger's values is bounded while it is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from umavez_systems.mailing.domain import header_text, invalid, is_unicode

LONGEST = 500_000
MOST_MARKS = 1_000
"""{{ }} and {% %} in one text."""
MOST_WORDS = 100
"""Names, signs and numbers between two marks: as deep as an expression can get."""
MOST_PARTS = 2_000
"""Parts of a text's tree: values, conditions, filters and what stands between them. Compiling costs 50 µs for each."""
DEEPEST = 40
"""Conditions inside each other; every elif is one inside the one before."""
DEEPEST_TREE = 100
SUBJECT_LONGEST = 998
RENDERED_LONGEST = 2_000_000
"""Characters of one text with one person's values."""
FILTERS = frozenset(("capitalize", "d", "default", "e", "escape", "length", "lower", "title", "trim", "upper"))
TESTS = frozenset(("defined", "undefined", "none", "eq", "equalto", "ne", "in", "lower", "upper", "string", "number"))
_ALLOWED = (
    *(nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If, nodes.CondExpr, nodes.Filter, nodes.Test),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Getattr, nodes.Getitem),
)
ALWAYS = ("email", "descadastro")
DEFAULT_TEXT = "Olá!\n\nEsta mensagem foi enviada a {{ email }}.\n\nPara não receber mais: {{ descadastro }}\n"


def _environment(autoescape: bool) -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=autoescape, keep_trailing_newline=True)
    made.globals.clear()  # nothing may be called, and every mail would carry them along
    return made


_PLAIN, _HTML = _environment(False), _environment(True)


class Unrenderable(Exception):
    """A text that cannot be made for one person; says why."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What is written to everybody: subject, text and HTML, with places for each one's values."""

    assunto: str
    texto: str | None
    html: str | None

    def checked(self, variables: tuple[str, ...]) -> Letter:
        """The letter, if it can be written with these variables. Raises 422 problems that name place and reason."""
        header_text(self.assunto, "O assunto")
        known = {*variables, *ALWAYS}
        for name in ("assunto", "texto", "html"):
            text = getattr(self, name)
            if text is not None:
                _check(name, text, known)
        if self.texto is None and self.html is None:
            raise invalid("Falta o conteúdo: envie 'texto', 'html' ou 'template'.")
        return self

    def rendered(self, values: Mapping[str, str]) -> tuple[str, str | None, str | None]:
        """Subject, text and HTML for one person. Raises Unrenderable: never a half mail."""
        try:
            subject = _rendered(_compiled(self.assunto, False), values)
            text = None if self.texto is None else _rendered(_compiled(self.texto, False), values)
            page = None if self.html is None else _rendered(_compiled(self.html, True), values)
        except Unrenderable:
            raise
        except TemplateError as error:
            raise Unrenderable("O texto não pôde ser montado: falta nesta linha um valor que ele usa.") from error
        except Exception as error:  # a stranger's text: 1 < 'a' is its mistake, whatever it raises
            raise Unrenderable("O texto não pôde ser montado: ele faz com um valor o que não se pode.") from error
        if _BREAK.search(subject):
            raise Unrenderable("O assunto, com os valores desta linha, teria uma quebra de linha ou controle.")
        if len(subject) > SUBJECT_LONGEST:
            raise Unrenderable(f"O assunto, com os valores desta linha, teria mais de {SUBJECT_LONGEST} caracteres.")
        return subject, text, page


_BREAK = re.compile(r"[\x00-\x1f\x7f]")


def _rendered(template: Template | str, values: Mapping[str, str]) -> str:
    """The text, piece by piece, so that one that grows without measure is given up early."""
    if isinstance(template, str):
        return template
    pieces: list[str] = []
    size = 0
    for piece in template.generate(values):
        size += len(piece)
        if size > RENDERED_LONGEST:
            raise Unrenderable(f"O texto, com os valores desta linha, teria mais de {RENDERED_LONGEST} caracteres.")
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=64)
def _compiled(text: str, escaping: bool) -> Template | str:
    """What makes a text of values, or the text itself where it has no mark at all."""
    if not any(mark in text for mark in ("{{", "{%", "{#")):
        return text
    return (_HTML if escaping else _PLAIN).from_string(text)


def _check(name: str, text: str, known: set[str]) -> None:
    tree = checked_syntax(name, text)
    missing = sorted(meta.find_undeclared_variables(tree) - known)
    if missing:
        raise invalid(
            f"{name} usa {', '.join(missing)}, que o arquivo não tem; há: {', '.join(sorted(known))}.",
            campo=name,
            faltam=missing,
        )


def checked_syntax(name: str, text: str) -> nodes.Template:
    """A text's tree, if it is short, well formed and holds nothing costly. Raises 422 problems."""
    if len(text) > LONGEST or "\0" in text or not is_unicode(text):
        raise invalid(f"{name}: no máximo {LONGEST} caracteres de Unicode válido, sem NUL.", campo=name)
    try:
        _refuse_large(name, text)
        tree = _PLAIN.parse(text)
    except ValueError as error:
        raise invalid(f"{name}: um número tem algarismos demais.", campo=name) from error
    except TemplateSyntaxError as error:
        told = "a marcação não está certa; confira cada {{ }} e {% if %}, e o que os fecha."
        raise invalid(f"{name}, linha {error.lineno}: {told}", campo=name) from error
    except RecursionError:
        raise invalid(f"{name}: aninhado demais.", campo=name) from None
    for node in _bounded(name, tree):
        _refuse_costly(name, node)
    return tree


def _refuse_large(name: str, text: str) -> None:
    """Raise a 422 problem, before anything is parsed, for more marks or words than a letter has."""
    marks = words = 0
    depths = [0]
    for _, kind, word in _PLAIN.lex(text):
        if kind in ("variable_begin", "block_begin"):
            marks, words = marks + 1, 0
        elif kind in ("variable_end", "block_end", "comment_end", "raw_end"):
            words = 0
        elif kind not in ("data", "whitespace"):
            words += 1
        if kind == "name" and words == 1 and word in ("if", "elif", "endif"):
            _nest(depths, word)
        if marks > MOST_MARKS:
            raise invalid(f"{name}: marcas demais; no máximo {MOST_MARKS}.", campo=name)
        if words > MOST_WORDS or depths[-1] > DEEPEST:
            most = f"{MOST_WORDS} termos em cada marca e {DEEPEST} condições uma dentro da outra"
            raise invalid(f"{name}: aninhado demais; no máximo {most}.", campo=name)


def _nest(depths: list[int], word: str) -> None:
    """Count a condition in: how deep each open one began, and how deep it is now."""
    if word == "if":
        depths.append(depths[-1] + 1)
    elif word == "elif":
        depths[-1] += 1
    elif len(depths) > 1:
        depths.pop()


def _bounded(name: str, tree: nodes.Template) -> Iterator[nodes.Node]:
    """Every node, without recursion of our own: a stranger's tree may be deeper than our stack. Raises 422 problems."""
    waiting: list[tuple[nodes.Node, int]] = [(node, 1) for node in tree.iter_child_nodes()]
    seen = 0
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if seen > MOST_PARTS:
            raise invalid(
                f"{name}: marcas demais; um texto tem no máximo {MOST_PARTS} valores e condições.", campo=name
            )
        if depth > DEEPEST_TREE:
            raise invalid(f"{name}: aninhado demais.", campo=name)
        yield node
        waiting += [(child, depth + 1) for child in node.iter_child_nodes()]


def _refuse_costly(name: str, node: Any) -> None:
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        raise invalid(f"{name}: o filtro '{node.name}' não é aceito; há: {', '.join(sorted(FILTERS))}.", campo=name)
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        raise invalid(f"{name}: o teste '{node.name}' não é aceito; há: {', '.join(sorted(TESTS))}.", campo=name)
    if isinstance(node, nodes.Const) and isinstance(node.value, str) and not is_unicode(node.value):
        raise invalid(f"{name}, linha {node.lineno}: um texto entre aspas não é Unicode válido.", campo=name)
    if not isinstance(node, _ALLOWED):
        kind = type(node).__name__.lower()
        raise invalid(
            f"{name}, linha {node.lineno}: '{kind}' não é aceito; use valores, condições e filtros.", campo=name
        )
