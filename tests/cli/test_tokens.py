"""The tokens commands, on every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Command
from umavez import Key, Once, Status
from umavez.core.record import Draft
from umavez.tokens import Issued, TokenCancelled, Tokens, TokenState

DECISION = ("--by", "ana", "--reason", "the phone was stolen")
SECRET = "to the lighthouse"


@pytest.fixture
def tokens(once: Once) -> Tokens:
    return Tokens(once, "confirm", unknown="hold")


def listed(command: Command, url: str, once: Once, *words: str) -> dict[str, str]:
    answer = command("tokens", "list", "--store", url, "--scope", once.scope, "--json", *words)
    return {token["digest"]: token["state"] for token in json.loads(answer.stdout)["tokens"]}


def where(once: Once, issued: Issued, url: str) -> tuple[str, ...]:
    return (once.scope, "confirm", issued.key.value, "--store", url)


def close(once: Once, issued: Issued, status: Status, **parts: Any) -> None:
    """Put the token into a state that takes a crash or patience to reach."""
    record = once.store.read(issued.key).current
    assert record is not None
    kept = {"process_instance": record.process_instance, "evidence": record.evidence}
    once.store.swap(record.stamp, Draft(issued.key, f"later-{record.stamp}", status, claims=True, **kept, **parts))


def test_every_state_is_listed_by_its_name(command: Command, once: Once, tokens: Tokens, store_url: str) -> None:
    issued = {state: tokens.issue(f"owner-{state}") for state in TokenState}
    tokens.redeem(issued[TokenState.USED].token, "owner-used", lambda _: "done")
    tokens.cancel(issued[TokenState.CANCELLED].token, "owner-cancelled")
    close(once, issued[TokenState.RUNNING], Status.PENDING, lease=600_000)
    close(once, issued[TokenState.UNKNOWN], Status.UNKNOWN)
    gone = json.dumps([{"at": None, "what": "issued", "by": "umavez", "reason": "", "ttl": 0}])
    record = once.store.read(issued[TokenState.EXPIRED].key).current
    assert record is not None
    past = Draft(record.key, "past", Status.FAILED, False, 0, process_instance="owner-expired", evidence=gone)
    once.store.swap(record.stamp, past._replace(stamp=f"past-{once.scope}"))
    assert listed(command, store_url, once, "--purpose", "confirm") == {
        token.key.value: state.value for state, token in issued.items()
    }
    for state, token in issued.items():
        only = {token.key.value: state.value}
        assert listed(command, store_url, once, "--purpose", "confirm", "--state", state.value) == only
        assert listed(command, store_url, once, "--owner", f"owner-{state}") == only


def test_other_records_of_the_owner_are_no_tokens(command: Command, once: Once, tokens: Tokens, store_url: str) -> None:
    issued = tokens.issue("ana")
    once.run("pay", key="1", call=lambda: 1, unknown="hold", process_instance="ana")
    odd = Draft(Key(once.scope, "confirm", "odd"), f"odd-{once.scope}", Status.FAILED, False, evidence='["moved"]')
    once.store.swap(None, odd._replace(process_instance="ana"))
    assert listed(command, store_url, once, "--owner", "ana") == {issued.key.value: "unused"}
    for record in (("pay", "1"), ("confirm", "odd")):
        answer = command("tokens", "show", once.scope, *record, "--store", store_url, code=1)
        assert "Nothing is recorded" in answer.stderr


def test_the_token_is_nowhere_and_its_payload_only_where_asked(
    command: Command, once: Once, tokens: Tokens, store_url: str
) -> None:
    issued = tokens.issue("ana", {"destination": SECRET})
    words = ("tokens", "show", *where(once, issued, store_url))
    quiet = [
        command("tokens", "list", "--store", store_url, "--owner", "ana").stdout,
        command("tokens", "list", "--store", store_url, "--owner", "ana", "--json").stdout,
        command(*words).stdout,
        command(*words, "--json").stdout,
    ]
    open_ = [command(*words, "--payload").stdout, command(*words, "--payload", "--json").stdout]
    assert not [text for text in quiet if SECRET in text]
    assert all(SECRET in text for text in open_)
    assert not [text for text in (*quiet, *open_) if issued.token in text]
    assert json.loads(open_[1])["payload"] == {"destination": SECRET}


def test_a_narrow_terminal_cuts_no_digest(
    command: Command, once: Once, tokens: Tokens, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = tokens.issue("ana")
    monkeypatch.setenv("COLUMNS", "60")
    text = command("tokens", "list", "--store", store_url, "--scope", once.scope, "--owner", "ana").stdout
    assert issued.key.value in text
    assert "in 5 min" in text


def test_a_cancelled_token_is_refused_and_says_who_did_it(
    command: Command, once: Once, tokens: Tokens, store_url: str
) -> None:
    issued = tokens.issue("ana")
    answer = command("tokens", "cancel", *where(once, issued, store_url), *DECISION)
    assert answer.stdout.endswith("is cancelled.\n")
    with pytest.raises(TokenCancelled):
        tokens.redeem(issued.token, "ana", pytest.fail)
    shown = json.loads(command("tokens", "show", *where(once, issued, store_url), "--json").stdout)
    assert (shown["state"], shown["owner"], shown["error_message"]) == ("cancelled", "ana", None)
    assert shown["evidence"][-1].items() >= {"by": "ana", "reason": "the phone was stolen"}.items()
    text = command("tokens", "show", *where(once, issued, store_url)).stdout
    assert "cancelled by ana: the phone was stolen" in text
    again = command("tokens", "cancel", *where(once, issued, store_url), *DECISION)
    assert "cancelled already; nothing was changed" in again.stdout


def test_a_tokens_issue_is_an_event_in_words(command: Command, once: Once, tokens: Tokens, store_url: str) -> None:
    issued = tokens.issue("ana")
    for group in ("tokens", "records"):
        text = command(group, "show", *where(once, issued, store_url)).stdout
        assert "issued by umavez" in text
        assert "ttl" not in text


def test_what_the_cancelling_keeps_is_what_the_application_would_keep(
    command: Command, once: Once, tokens: Tokens, store_url: str
) -> None:
    ours, theirs = tokens.issue("ana"), tokens.issue("ana")
    tokens.cancel(theirs.token, "ana", by="ana", reason="the phone was stolen")
    command("tokens", "cancel", *where(once, ours, store_url), *DECISION)
    one, other = (once.store.read(issued.key).current for issued in (ours, theirs))
    assert one is not None
    assert other is not None
    assert (one.settled, one.status, one.error) == (other.settled, other.status, other.error)


@pytest.mark.parametrize(
    ("status", "sentence"), [(Status.PENDING, "is in progress"), (Status.UNKNOWN, "Nobody knows whether")]
)
def test_a_token_in_use_cannot_be_cancelled(
    command: Command, once: Once, tokens: Tokens, store_url: str, status: Status, sentence: str
) -> None:
    issued = tokens.issue("ana")
    close(once, issued, status, lease=600_000 if status is Status.PENDING else None)
    refused = command("tokens", "cancel", *where(once, issued, store_url), *DECISION, code=1)
    assert sentence in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_used_token_cannot_be_cancelled(command: Command, once: Once, tokens: Tokens, store_url: str) -> None:
    issued = tokens.issue("ana")
    tokens.redeem(issued.token, "ana", lambda _: "done")
    refused = command("tokens", "cancel", *where(once, issued, store_url), *DECISION, code=1)
    assert "was used already" in refused.stderr
    assert tokens.redeem(issued.token, "ana", pytest.fail).value == "done"


def test_a_failed_redemption_shows_its_error(command: Command, once: Once, tokens: Tokens, store_url: str) -> None:
    issued = tokens.issue("ana")

    def fail(_: Any) -> None:
        raise ConnectionRefusedError("\x1b[31mno line")

    other = Tokens(once, "confirm", unknown="rerun", free=(ConnectionRefusedError,))
    with pytest.raises(ConnectionRefusedError):
        other.redeem(issued.token, "ana", fail)
    text = command("tokens", "show", *where(once, issued, store_url)).stdout
    assert "no line" in text
    assert "\x1b" not in text


def test_a_sealed_store_gets_a_sealed_refusal(
    command: Command, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = pytest.importorskip("umavez.encryption")
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", f"first:{seal.new_key()}")
    with Once(sqlite_url, scope="loja", codec=seal.SealedCodec.from_environment()) as once:
        tokens = Tokens(once, "confirm", unknown="hold")
        issued = tokens.issue("ana", {"destination": SECRET})
        command("tokens", "cancel", *where(once, issued, sqlite_url), *DECISION)
        record = once.store.read(issued.key).current
        assert record is not None
        assert record.settled is not None
        assert str(record.settled.body).startswith('{"$sealed":')
        with pytest.raises(TokenCancelled):
            tokens.redeem(issued.token, "ana", pytest.fail)
    shown = command("tokens", "show", *where(once, issued, sqlite_url), "--payload").stdout
    assert "$sealed" in shown
    assert SECRET not in shown
