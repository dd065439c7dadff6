"""Texts for people, in a form that every store keeps."""

from __future__ import annotations

import json

from umavez.core.encoding.texts import LONGEST, legible
from umavez.core.resolution import MOST_EVIDENCE, noted
from umavez.engine.declaration import message


class Unspeakable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("code")


def test_what_a_store_cannot_keep_is_replaced_and_what_is_long_is_cut() -> None:
    assert legible("a\0b\ud800c é 🚕") == "a\u2400b?c é 🚕"
    assert len(legible("x" * 10_000_000)) == LONGEST
    assert legible(json.loads('"\\udfff"')) == "?"


def test_an_error_that_cannot_be_shown_is_named_all_the_same() -> None:
    assert message(Unspeakable()).startswith("Unspeakable: a Unspeakable that cannot be shown (AttributeError)")
    assert message(ValueError("\ud800")) == "ValueError: ?"
    assert message(ValueError()) == "ValueError"


def test_evidence_is_legible_and_keeps_its_first_and_latest_entries() -> None:
    evidence = noted(None, 1, "issued", "umavez", "first")
    for number in range(MOST_EVIDENCE + 50):
        evidence = noted(evidence, number, "cannot tell", "far side", f"no\ud800 answer {number}" + "x" * 5000)

    entries = json.loads(evidence)
    assert len(entries) == MOST_EVIDENCE + 1
    assert entries[0]["reason"] == "first"
    assert entries[-1]["at"] == MOST_EVIDENCE + 49
    evidence.encode()
    assert max(len(entry["reason"]) for entry in entries) == LONGEST
