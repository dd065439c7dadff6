"""Templates: what a stranger writes is bounded before it is compiled, and what it becomes while it is rendered."""

from __future__ import annotations

import random
import time

import pytest

from umavez_systems.mailing.letters.templates import (
    MOST_MARKS,
    RENDERED_LONGEST,
    SUBJECT_LONGEST,
    Letter,
    Unrenderable,
)
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
        ("{% if x %}a" + "{% elif x %}b" * 3_000 + "{% endif %}", "aninhado demais"),
        ("{{ " + "not " * 3_000 + "x }}", "aninhado demais"),
        ("{{ x" + "[0]" * 3_000 + " }}", "aninhado demais"),
        ("{{ x and x and x and x and x }}" * 900, "marcas demais"),
        ("{{ x is nosuch }}", "o teste 'nosuch' não é aceito"),
        ("{{ x is divisibleby 0 }}", "não é aceito"),
        ("{{ x }}" * 60_000, "marcas demais"),
        ("{{ 9" + "9" * 10_000 + " }}", "algarismos demais"),
        (r"{{ '\ud800' }}", "Unicode"),
        ("\ud800", "Unicode"),
    ],
    ids=lambda given: str(given)[:24].encode("ascii", "replace").decode(),
)
def test_what_would_cost_too_much_is_refused_before_it_is_compiled(text: str, words: str) -> None:
    began = time.perf_counter()
    with pytest.raises(Problem, match=words) as refused:
        Letter("oi", text, None).checked(("x",))
    assert (refused.value.status, time.perf_counter() - began < 2.0) == (422, True)


@pytest.mark.parametrize("text", ["{{ 5 < 'a' }}", "{{ 5 in 5 }}", "{{ 5|length }}", "{{ x|title(1) }}", "{{ x.a.b }}"])
def test_what_cannot_be_done_with_a_value_fails_for_that_person(text: str) -> None:
    letter = Letter("oi", text, None).checked(("x",))
    with pytest.raises(Unrenderable):
        letter.rendered(VALUES)


def test_the_longest_letter_is_still_a_letter() -> None:
    nested = "{% if x %}" * 40 + "x" + "{% endif %}" * 40
    marks = "{{ x }}" * (MOST_MARKS - 80)
    letter = Letter("oi", nested + marks + "{# a #}" * 5_000 + "texto " * 50_000, None).checked(("x",))
    subject, text, _ = letter.rendered(VALUES)
    assert (subject, text is not None and text.startswith("xyy")) == ("oi", True)


PIECES = (
    *("{{ ", " }}", "{% if ", "{% elif ", "{% else %}", "{% endif %}", " %}", "{#", "#}", "{% raw %}", "{% endraw %}"),
    *("x", "1", "'a'", '"\\ud800"', "none", "not ", " and ", " or ", " in ", " is ", "defined", "eq", "(", ")", "[0]"),
    *("|upper", "|default", "|length", ".a", " < ", " == ", ", ", " if ", " else ", "y", "\n"),
)


def test_whatever_is_put_together_is_refused_rendered_or_fails_alone() -> None:
    seed = random.randrange(2**32)
    choose = random.Random(seed)
    for turn in range(4000):
        text = "".join(choose.choice(PIECES) for _ in range(choose.randrange(1, 14)))
        try:
            Letter("oi", text, text).checked(("x",)).rendered(VALUES)
        except (Problem, Unrenderable):
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}: {text!r}") from error


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
