"""Templates: what a stranger writes is bounded before it is compiled, and what it becomes while it is rendered."""

from __future__ import annotations

import pytest

from umavez_systems.mailing.letters.templates import RENDERED_LONGEST, SUBJECT_LONGEST, Letter, Unrenderable
from umavez_systems.problems import Problem

VALUES = {"x": "y", "email": "a@b.com", "descadastro": "link"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{% for a in range(10**9) %}a{% endfor %}", "não é aceito"),
        ("{{ 'a' * 10**9 }}", "não é aceito"),
        ("{{ range(10**9)|list }}", "não é aceito"),
        ("{{ x.__class__.__mro__() }}", "não é aceito"),
        ("{% include '/etc/passwd' %}", "não é aceito"),
        ("{% set a = x %}{{ a }}", "não é aceito"),
        ("{{ x" + "|upper" * 5_000 + " }}", "aninhado demais"),
        ("{{ x" + ".a" * 5_000 + " }}", "aninhado demais"),
        ("{{ x" + " and x" * 20_000 + " }}", "aninhado demais"),
        ("{{ " + "(" * 20_000 + "x" + ")" * 20_000 + " }}", "aninhado demais"),
        ("{% if x %}" * 300 + "{% endif %}" * 300, "aninhado demais"),
        ("{% if x %}a" + "{% elif x %}b" * 3_000 + "{% endif %}", "marcas demais"),
        ("{{ x }}" * 60_000, "marcas demais"),
        ("{{ 9" + "9" * 10_000 + " }}", "algarismos demais"),
        (r"{{ '\ud800' }}", "Unicode"),
        ("\ud800", "Unicode"),
    ],
    ids=lambda given: str(given)[:24].encode("ascii", "replace").decode(),
)
def test_what_would_cost_too_much_is_refused_before_it_is_compiled(text: str, words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        Letter("oi", text, None).checked(("x",))
    assert refused.value.status == 422


def test_a_text_that_grows_without_measure_is_given_up_early() -> None:
    letter = Letter("oi", "{{ x }}" * 900, None).checked(("x",))
    with pytest.raises(Unrenderable, match=str(RENDERED_LONGEST)):
        letter.rendered({**VALUES, "x": "y" * 60_000})
    page = Letter("oi", None, "{{ x|e }}" * 300).checked(("x",))
    with pytest.raises(Unrenderable, match=str(RENDERED_LONGEST)):
        page.rendered({**VALUES, "x": "&" * 60_000})


def test_a_subject_stays_a_subject_with_everybodys_values() -> None:
    letter = Letter("Oi {{ x }}", "t", None).checked(("x",))
    assert letter.rendered(VALUES)[0] == "Oi y"
    with pytest.raises(Unrenderable, match=str(SUBJECT_LONGEST)):
        letter.rendered({**VALUES, "x": "y" * SUBJECT_LONGEST})
    for mark in "\r\n\0\x1b":
        with pytest.raises(Unrenderable, match="quebra de linha"):
            letter.rendered({**VALUES, "x": f"a{mark}Bcc: b@b.com"})
