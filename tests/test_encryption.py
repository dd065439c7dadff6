"""Sealed results: nothing readable at rest, rotation, and refusal to open what was moved or changed."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from umavez import ConfigurationError, Key, NotStorable, Once
from umavez.cli.app import app
from umavez.encryption import VARIABLE, SealedCodec, new_key

KEY = Key("hospital", "submit_claim", "1")
OTHER = Key("hospital", "submit_claim", "2")


def test_s3_09_a_sealed_result_cannot_be_read_in_the_file_and_is_replayed(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="hospital", codec=SealedCodec({"a": os.urandom(32)}))
    call = {"key": "1", "call": lambda: {"patient": "Maria Canary"}, "unknown": "rerun"}

    once.run("submit_claim", **call)

    assert once.run("submit_claim", **call).value == {"patient": "Maria Canary"}
    once.close()
    assert not [file for file in tmp_path.iterdir() if b"Canary" in file.read_bytes()]
    stored = sqlite3.connect(tmp_path / "r.db").execute("SELECT result_data FROM idempotency_records").fetchone()[0]
    assert json.loads(stored)["$sealed"][0] == "a"


def test_a_result_resolved_by_hand_is_sealed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"a:{new_key()}")
    url = f"sqlite:///{tmp_path}/r.db"
    once = Once(url, scope="hospital", codec=SealedCodec.from_environment())
    with pytest.raises(TimeoutError), once.attempt("submit_claim", key="1", unknown="hold"):
        raise TimeoutError
    words = ["records", "resolve", "hospital", "submit_claim", "1", "--store", url, "--by", "ana", "--reason", "seen"]

    done = CliRunner().invoke(app, [*words, "--happened", '{"patient": "Maria Canary"}'])

    assert done.exit_code == 0, done.output
    assert once.run("submit_claim", key="1", call=lambda: None, unknown="hold").value == {"patient": "Maria Canary"}
    once.close()
    assert not [file for file in tmp_path.iterdir() if b"Canary" in file.read_bytes()]


def test_old_keys_open_and_the_newest_seals() -> None:
    old, new = os.urandom(32), os.urandom(32)
    text = SealedCodec({"2025": old}).encode("secret", KEY)
    rotated = SealedCodec({"2026": new, "2025": old})

    assert rotated.decode(text, KEY) == "secret"
    assert json.loads(rotated.encode("x", KEY))["$sealed"][0] == "2026"
    with pytest.raises(NotStorable, match="2025"):
        SealedCodec({"2026": new}).decode(text, KEY)


def test_plain_results_from_before_are_still_read() -> None:
    assert SealedCodec({"a": os.urandom(32)}).decode('{"a":1}', KEY) == {"a": 1}


def test_a_text_moved_to_another_record_does_not_open() -> None:
    codec = SealedCodec({"a": os.urandom(32)})

    with pytest.raises(NotStorable, match="does not open"):
        codec.decode(codec.encode("secret", KEY), OTHER)


def test_no_changed_byte_opens() -> None:
    codec = SealedCodec({"a": os.urandom(32)})
    raw = bytearray(base64.b64decode(json.loads(codec.encode("secret", KEY))["$sealed"][1]))

    for place in range(len(raw)):
        changed = bytes(raw[:place]) + bytes([raw[place] ^ 1]) + bytes(raw[place + 1 :])
        with pytest.raises(NotStorable):
            codec.decode(json.dumps({"$sealed": ["a", base64.b64encode(changed).decode()]}, separators=(",", ":")), KEY)


@pytest.mark.parametrize("text", ["", "a:", "a:c2hvcnQ=", "a:not base64!", ":" + "A" * 43 + "="])
def test_unusable_keys_are_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ConfigurationError) as caught:
        SealedCodec.from_environment()

    assert text.partition(":")[2] == "" or text.partition(":")[2] not in str(caught.value)


def test_keys_come_from_the_environment_and_never_show_in_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = new_key()
    monkeypatch.setenv(VARIABLE, f"2026:{secret}")
    codec = SealedCodec.from_environment()

    assert codec.decode(codec.encode([1, 2], KEY), KEY) == [1, 2]
    assert secret not in repr(codec)
