"""The records commands, on every store."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.conftest import Command
from umavez import Key, Once, OutcomeUnknown, Status
from umavez.core.record import Draft
from umavez.leases import Leases
from umavez.tokens import Tokens

EVIL = "\x1b[31m\u202ered[bold]"
DECISION = ("--by", "ana", "--reason", "seen on the statement")


class Declined(Exception):
    pass


def run(once: Once, key: str, value: Any = None, **options: Any) -> None:
    once.run("charge", key=key, call=lambda: value, unknown="hold", **options)


def put(once: Once, key: str, status: Status, **parts: Any) -> None:
    draft = Draft(Key(once.scope, "charge", key), f"stamp-{once.scope}-{key}", status, claims=True, **parts)
    once.store.swap(None, draft)


def listed(command: Command, url: str, *words: str) -> list[str]:
    document = json.loads(command("records", "list", "--store", url, "--json", *words).stdout)
    return [record["idempotency_key"] for record in document["records"]]


def shown(command: Command, url: str, once: Once, key: str, *words: str) -> dict[str, Any]:
    found = command("records", "show", once.scope, "charge", key, "--store", url, "--json", *words)
    record: dict[str, Any] = json.loads(found.stdout)
    return record


def test_the_list_shows_status_key_and_what_matters(command: Command, once: Once, store_url: str) -> None:
    run(once, "order-1", {"id": 7})
    put(once, "order-2", Status.PENDING, lease=0)
    put(once, "order-3", Status.UNKNOWN)
    table = command("records", "list", "--store", store_url, "--scope", once.scope).stdout
    assert "SUCCESS" in table
    assert "replayed 24 h more" in table
    assert "holder gone" in table
    assert "did it happen? resolve it" in table
    assert f"3 records of {once.scope}" in table


def test_filters_narrow_the_list(command: Command, once: Once, store_url: str) -> None:
    run(once, "done", process_instance=f"process-{once.scope}")
    put(once, "lapsed", Status.PENDING, lease=0)
    put(once, "held", Status.PENDING, lease=60_000)
    mine = ("--scope", once.scope)
    assert sorted(listed(command, store_url, *mine)) == ["done", "held", "lapsed"]
    assert listed(command, store_url, *mine, "--lapsed") == ["lapsed"]
    assert listed(command, store_url, *mine, "--status", "success") == ["done"]
    assert listed(command, store_url, "--process-instance", f"process-{once.scope}") == ["done"]
    assert listed(command, store_url, *mine, "--key", "held", "--operation", "charge") == ["held"]
    assert listed(command, store_url, *mine, "--operation", "other") == []
    assert listed(command, store_url, *mine, "--older-than", "1h") == []


def test_a_list_that_was_cut_says_so(command: Command, once: Once, store_url: str) -> None:
    for number in range(3):
        run(once, f"order-{number}")
    words = ("records", "list", "--store", store_url, "--scope", once.scope, "--limit")
    assert "there are more" in command(*words, "2").stdout
    assert "there are more" not in command(*words, "3").stdout
    assert json.loads(command(*words, "2", "--json").stdout)["more"] is True


def test_a_list_goes_on_where_it_ended_in_both_directions(command: Command, once: Once, store_url: str) -> None:
    keys = [f"order-{number}" for number in range(5)]
    for key in keys:
        run(once, key)
    words = ("records", "list", "--store", store_url, "--scope", once.scope, "--limit", "2", "--json")
    for direction in ((), ("--oldest-first",)):
        found: list[str] = []
        following: tuple[str, ...] = ()
        for _ in range(3):
            page = json.loads(command(*words, *direction, *following).stdout)
            found += [record["idempotency_key"] for record in page["records"]]
            following = ("--after", page["next"] or "")
        assert page["next"] is None
        assert sorted(found) == keys
        assert (found[0] == found[-1]) is False
    text = command(*words[:-1]).stdout
    assert f"there are more: --after {json.loads(command(*words).stdout)['next']}\n" in text


def test_a_list_goes_on_only_where_a_list_ended(command: Command) -> None:
    answer = command("records", "list", "--store", "memory:", "--after", "yesterday", code=2)
    assert "it is not what `next` of a list says" in " ".join(answer.stderr.replace("│", " ").split())


def test_show_hides_the_result_unless_asked(command: Command, once: Once, store_url: str) -> None:
    run(once, "order-1", {"cpf": "not-for-all"})
    words = ("records", "show", once.scope, "charge", "order-1", "--store", store_url)
    assert "not-for-all" not in command(*words).stdout
    assert "not-for-all" in command(*words, "--result").stdout
    assert "result_data" not in shown(command, store_url, once, "order-1")
    assert shown(command, store_url, once, "order-1", "--result")["result_data"] == {"cpf": "not-for-all"}


def test_json_bears_the_names_of_the_columns(command: Command, once: Once, store_url: str) -> None:
    run(once, "order-1", process_instance="p", activity="a")
    record = shown(command, store_url, once, "order-1", "--result")
    seed = "idempotency_key process_instance_id activity_id operation_name status result_data error_message"
    assert set(f"{seed} retry_count created_at updated_at expires_at".split()) <= record.keys()
    assert (record["process_instance_id"], record["activity_id"]) == ("p", "a")
    assert record["created_at"].endswith("Z")


def test_a_resolved_record_is_replayed_with_its_type_and_evidence(command: Command, once: Once, store_url: str) -> None:
    put(once, "order-1", Status.UNKNOWN)
    with pytest.raises(OutcomeUnknown):
        run(once, "order-1")
    where = (once.scope, "charge", "order-1", "--store", store_url)
    command("records", "resolve", *where, "--happened", '{"$decimal": "9.90"}', *DECISION)
    outcome = once.run("charge", key="order-1", call=lambda: None, unknown="hold")
    assert (outcome.value, outcome.replayed) == (Decimal("9.90"), True)
    (entry,) = shown(command, store_url, once, "order-1")["evidence"]
    assert (entry["what"], entry["by"], entry["reason"]) == ("resolved", "ana", "seen on the statement")
    assert "resolved by ana: seen on the statement" in command("records", "show", *where).stdout


def test_a_result_may_name_a_class_that_only_the_application_has(command: Command, once: Once, store_url: str) -> None:
    put(once, "order-1", Status.UNKNOWN)
    text = '{"$data": ["shop.orders:Receipt", {"number": 7}]}'
    where = (once.scope, "charge", "order-1", "--store", store_url)
    command("records", "resolve", *where, "--happened", text, *DECISION)
    assert shown(command, store_url, once, "order-1", "--result")["result_data"] == json.loads(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '"\\ud800"', "1e999", "9" * 5000, "x"])
def test_a_result_that_could_not_be_replayed_is_refused(
    command: Command, once: Once, store_url: str, text: str
) -> None:
    put(once, "order-1", Status.UNKNOWN)
    where = (once.scope, "charge", "order-1", "--store", store_url)
    refused = command("records", "resolve", *where, "--happened", "-", *DECISION, stdin=text, code=2)
    assert "is not JSON in the form" in refused.stderr


def test_a_resolution_is_kept_as_long_as_asked(command: Command, once: Once, store_url: str) -> None:
    put(once, "order-1", Status.UNKNOWN)
    where = (once.scope, "charge", "order-1", "--store", store_url)
    command("records", "resolve", *where, "--happened", "-", "--keep", "90d", *DECISION, stdin="null")
    assert "replayed 90 d more" in command("records", "show", *where).stdout


@pytest.mark.parametrize("words", [("release",), ("resolve", "--not-happened")])
def test_a_freed_key_runs_again(command: Command, once: Once, store_url: str, words: tuple[str, ...]) -> None:
    put(once, "order-1", Status.UNKNOWN)
    verb, *options = words
    command("records", verb, once.scope, "charge", "order-1", "--store", store_url, *options, *DECISION)
    outcome = once.run("charge", key="order-1", call=lambda: "ran", unknown="hold")
    assert (outcome.value, outcome.replayed) == ("ran", False)


def test_a_settled_record_needs_override(command: Command, once: Once, store_url: str) -> None:
    run(once, "order-1", "first")
    words = ("records", "resolve", once.scope, "charge", "order-1", "--store", store_url, *DECISION)
    refused = command(*words, "--happened", '"second"', code=1)
    assert "pass --override" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    command(*words, "--happened", '"second"', "--override")
    assert shown(command, store_url, once, "order-1", "--result")["result_data"] == "second"


def test_what_runs_cannot_be_released(command: Command, once: Once, store_url: str) -> None:
    put(once, "order-1", Status.PENDING, lease=60_000)
    words = ("records", "release", once.scope, "charge", "order-1", "--store", store_url, *DECISION)
    assert "is in progress" in command(*words, "--override", code=1).stderr


def test_an_unknown_key_is_one_sentence(command: Command, once: Once, store_url: str) -> None:
    answer = command("records", "show", once.scope, "charge", "nobody", "--store", store_url, code=1)
    assert answer.stdout == ""
    assert answer.stderr == f"umavez: Nothing is recorded for charge 'nobody' of '{once.scope}'.\n"


def test_a_strangers_key_cannot_steer_the_terminal(command: Command, once: Once, store_url: str) -> None:
    def decline() -> None:
        raise Declined(EVIL)

    with pytest.raises(Declined):
        once.run("charge", key=EVIL, call=decline, unknown="hold", final=(Declined,))
    texts = (
        command("records", "list", "--store", store_url, "--scope", once.scope).stdout,
        command("records", "list", "--store", store_url, "--scope", once.scope, "--json").stdout,
        command("records", "show", once.scope, "charge", EVIL, "--store", store_url, "--result").stdout,
        command("records", "release", once.scope, "charge", EVIL, "--store", store_url, *DECISION, code=1).stderr,
    )
    for text in texts:
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[bold]" in texts[0], "square brackets are text, not markup"


def test_sweep_deletes_what_expired_and_counts_it(command: Command, sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        for number in range(5):
            put(once, f"old-{number}", Status.SUCCESS, keep=0)
        run(once, "new")
        put(once, "unknown", Status.UNKNOWN)
    words = ("sweep", "--store", sqlite_url)
    assert command(*words, "--older-than", "1h").stdout == "0 expired records deleted.\n"
    assert command(*words, "--limit", "1").stdout == "1 expired record deleted; reached its limit.\n"
    assert json.loads(command(*words, "--batch", "2", "--json").stdout)["deleted"] == 4
    assert sorted(listed(command, sqlite_url, "--scope", "loja")) == ["new", "unknown"]


def test_what_waits_or_was_given_back_is_not_called_failed(command: Command, once: Once, store_url: str) -> None:
    """Both are kept as FAILED without an outcome, so that the next who comes may take them."""
    Tokens(once, "confirm", unknown="hold").issue("ana")
    with Leases(once).hold("report"):
        pass
    listed = command("records", "list", "--store", store_url, "--scope", once.scope).stdout

    assert "UNUSED" in listed
    assert "RELEASED" in listed
    assert "FAILED" not in listed
    key = once.find(operation="confirm")[0].key.value
    shown = command("records", "show", once.scope, "confirm", key, "--store", store_url).stdout
    assert "failed" not in shown.lower()


def test_a_story_is_told_with_its_events(command: Command, once: Once, store_url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        once.run("charge", key="order-7", call=lambda: 1 / 0, unknown="rerun")
    once.run("charge", key="order-7", call=lambda: 1, unknown="rerun")
    where = (once.scope, "charge", "order-7", "--store", store_url)
    kept = json.loads(command("records", "show", *where, "--json").stdout)["events"]

    assert [(event["kind"], event["attempt"]) for event in kept] == [("failed", 1), ("retried", 2), ("succeeded", 2)]
    assert kept[0]["detail"] == "ZeroDivisionError: division by zero"
    assert [event.kind for event in once.history("charge", "order-7")] == ["failed", "retried", "succeeded"]
    told = " ".join(command("records", "show", *where).stdout.split())
    assert "retried by" in told
    assert "settled by" in told


def test_what_a_restored_database_has_forgotten_is_recorded_and_never_runs_again(
    command: Command, once: Once, store_url: str
) -> None:
    words = ("records", "resolve", once.scope, "charge", "order-1", "--store", store_url, *DECISION)
    assert "Nothing is recorded" in command(*words, "--happened", '"paid"', code=1).stderr
    assert "needs no decision" in command(*words, "--not-happened", "--forgotten", code=2).stderr

    command(*words, "--happened", '"paid"', "--forgotten")

    outcome = once.run("charge", key="order-1", call=lambda: "ran", unknown="hold")
    assert (outcome.value, outcome.replayed) == ("paid", True)
    (entry,) = shown(command, store_url, once, "order-1")["evidence"]
    assert (entry["what"], entry["by"], entry["reason"]) == ("resolved", "ana", "seen on the statement")
    assert "pass --override" in command(*words, "--happened", '"other"', "--forgotten", code=1).stderr
