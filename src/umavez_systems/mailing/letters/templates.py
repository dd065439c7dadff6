"""Templates: Jinja2 in its sandbox, and of that only what a mail needs: values, conditions and a few filters.

No loops, calls or arithmetic: what a stranger writes costs no more than its own length to render.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from umavez_systems.mailing.domain import header_text, invalid

LONGEST = 500_000
FILTERS = frozenset(("capitalize", "d", "default", "e", "escape", "length", "lower", "title", "trim", "upper"))
_ALLOWED = (
    *(nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If, nodes.CondExpr, nodes.Filter, nodes.Test),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Getattr, nodes.Getitem),
)
ALWAYS = ("email", "descadastro")
DEFAULT_TEXT = "Olá!\n\nEsta mensagem foi enviada a {{ email }}.\n\nPara não receber mais: {{ descadastro }}\n"


def _environment(autoescape: bool) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=autoescape, keep_trailing_newline=True)


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
            subject = _compiled(self.assunto, False).render(values)
            text = None if self.texto is None else _compiled(self.texto, False).render(values)
            page = None if self.html is None else _compiled(self.html, True).render(values)
        except TemplateError as error:
            raise Unrenderable("O texto não pôde ser montado: falta nesta linha um valor que ele usa.") from error
        if _BREAK.search(subject):
            raise Unrenderable("O assunto, com os valores desta linha, teria uma quebra de linha ou controle.")
        return subject, text, page


_BREAK = re.compile(r"[\x00-\x1f\x7f]")


@lru_cache(maxsize=256)
def _compiled(text: str, escaping: bool) -> Template:
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
    if len(text) > LONGEST or "\0" in text:
        raise invalid(f"{name}: no máximo {LONGEST} caracteres, sem NUL.")
    try:
        tree = _PLAIN.parse(text)
    except TemplateSyntaxError as error:
        told = "a marcação não está certa; confira cada {{ }} e {% if %}, e o que os fecha."
        raise invalid(f"{name}, linha {error.lineno}: {told}", campo=name) from error
    except RecursionError:
        raise invalid(f"{name}: aninhado demais.", campo=name) from None
    for node in tree.find_all(nodes.Node):
        _refuse_costly(name, node)
    return tree


def _refuse_costly(name: str, node: Any) -> None:
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        raise invalid(f"{name}: o filtro '{node.name}' não é aceito; há: {', '.join(sorted(FILTERS))}.", campo=name)
    if not isinstance(node, _ALLOWED):
        kind = type(node).__name__.lower()
        raise invalid(
            f"{name}, linha {node.lineno}: '{kind}' não é aceito; use valores, condições e filtros.", campo=name
        )
