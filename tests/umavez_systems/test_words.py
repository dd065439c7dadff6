"""The catalogue of the systems: complete, and one key whatever it looks like on the wire."""

from __future__ import annotations

import json

import pytest

from umavez.http import Problem, problems
from umavez_systems.words import CATALOGUE, WORDS


def test_every_refusal_of_the_contract_has_words_of_its_own() -> None:
    assert set(WORDS) == set(problems.KINDS)
    for kind, word in WORDS.items():
        assert (word.status, word.retryable) == (kind.status, kind.retryable)
        assert word.title != kind.title


@pytest.mark.parametrize("kind", problems.KINDS, ids=lambda kind: kind.name)
def test_a_refusal_is_told_in_the_words_of_the_catalogue(kind: problems.Kind) -> None:
    answer = CATALOGUE.answer(Problem(kind, "English", retry_after=2.0 if kind.retryable else None))

    document = json.loads(answer.body)
    assert document["detail"] == WORDS[kind].detail
    assert document["type"].startswith("https://umavez.dev/problemas/")
    assert (b"retry-after" in dict(answer.headers)) == kind.retryable
