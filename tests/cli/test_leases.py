"""The leases commands, on every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Command
from umavez import ClaimLost, Key, Once, Status
from umavez.core.record import Draft
from umavez.leases import Leases

DECISION = ("--by", "ana", "--reason", "its host is off")
EVIL = "\x1b[31m\u202ered[bold]"


def lapse(once: Once, name: str) -> None:
    """A lease whose holder is gone."""
    draft = Draft(Key(once.scope, "lease", name), f"stamp-{once.scope}-{name}", Status.PENDING, claims=True, lease=0)
    once.store.swap(None, draft)


def listed(command: Command, url: str, once: Once, *words: str) -> list[tuple[str, str]]:
    answer = command("leases", "list", "--store", url, "--kind", once.scope, "--json", *words)
    return [(lease["name"], lease["state"]) for lease in json.loads(answer.stdout)["leases"]]


def shown(command: Command, url: str, once: Once, name: str) -> dict[str, Any]:
    lease: dict[str, Any] = json.loads(command("leases", "show", once.scope, name, "--store", url, "--json").stdout)
    return lease


def test_the_list_tells_held_lapsed_and_released_apart(command: Command, once: Once, store_url: str) -> None:
    leases = Leases(once)
    held = leases.acquire("a-held", lease=600)
    lapse(once, "b-lapsed")
    with leases.hold("c-released"):
        pass
    everything = [("a-held", "held"), ("b-lapsed", "lapsed"), ("c-released", "released")]
    assert sorted(listed(command, store_url, once)) == everything
    for name, state in everything:
        assert listed(command, store_url, once, "--state", state) == [(name, state)]
    table = command("leases", "list", "--store", store_url, "--kind", once.scope).stdout
    assert "10 min more" in table
    assert "3 leases" in table
    assert shown(command, store_url, once, "a-held")["fence"] == held.fence


def test_a_state_is_found_behind_more_of_another_than_the_limit(command: Command, once: Once, store_url: str) -> None:
    for number in range(5):
        lapse(once, f"lapsed-{number}")
    Leases(once).acquire("held", lease=600)
    assert listed(command, store_url, once, "--state", "held", "--limit", "1") == [("held", "held")]
    words = ("leases", "list", "--store", store_url, "--kind", once.scope, "--state", "lapsed", "--limit")
    assert "there are more" in command(*words, "4").stdout
    assert "there are more" not in command(*words, "5").stdout


def test_an_operation_that_is_called_lease_is_none(command: Command, once: Once, store_url: str) -> None:
    once.run("lease", key="a-flat", call=lambda: "signed", unknown="hold")
    assert listed(command, store_url, once) == []
    where = (once.scope, "a-flat", "--store", store_url)
    assert "Nothing is recorded" in command("leases", "show", *where, code=1).stderr
    assert "Nothing is recorded" in command("leases", "release", *where, "--force", *DECISION, code=1).stderr


def test_a_lapsed_lease_is_released_with_its_evidence(command: Command, once: Once, store_url: str) -> None:
    lapse(once, "report")
    before = shown(command, store_url, once, "report")["fence"]
    answer = command("leases", "release", once.scope, "report", "--store", store_url, *DECISION).stdout
    assert answer == f"lease 'report' of '{once.scope}' is free.\n"
    (entry,) = shown(command, store_url, once, "report")["evidence"]
    assert (entry["what"], entry["by"], entry["reason"]) == ("released", "ana", "its host is off")
    text = command("leases", "show", once.scope, "report", "--store", store_url).stdout
    assert "released by ana: its host is off" in text
    assert Leases(once).acquire("report").fence > before


def test_a_held_lease_is_not_released_without_force(command: Command, once: Once, store_url: str) -> None:
    held = Leases(once).acquire("report", lease=600)
    refused = command("leases", "release", once.scope, "report", "--store", store_url, *DECISION, code=1)
    assert "is held for 10 min more" in refused.stderr
    assert "--force" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    held.renew()


def test_a_forced_release_stops_the_holder_and_lets_the_next_in(command: Command, once: Once, store_url: str) -> None:
    leases = Leases(once)
    held = leases.acquire("report", lease=600)
    command("leases", "release", once.scope, "report", "--force", "--store", store_url, *DECISION)
    with pytest.raises(ClaimLost):
        held.renew()
    following = leases.acquire("report")
    assert following.fence > held.fence
    lease = shown(command, store_url, once, "report")
    assert (lease["state"], lease["note"]) == ("held", None)
    assert [entry["what"] for entry in lease["evidence"]] == ["taken away"]


def test_a_lease_that_is_free_stays_as_it_is(command: Command, once: Once, store_url: str) -> None:
    with Leases(once).hold("report"):
        pass
    for words in ((), ("--force",)):
        answer = command("leases", "release", once.scope, "report", *words, "--store", store_url, *DECISION)
        assert "is free already; nothing was changed" in answer.stdout
    assert shown(command, store_url, once, "report")["evidence"] == []


def test_a_lease_that_nobody_took_is_one_sentence(command: Command, once: Once, store_url: str) -> None:
    for words in (("show",), ("release", *DECISION), ("release", "--force", *DECISION)):
        verb, *options = words
        answer = command("leases", verb, once.scope, "nothing", "--store", store_url, *options, code=1)
        assert answer.stderr == f"umavez: Nothing is recorded for lease 'nothing' of '{once.scope}'.\n"


def test_a_strangers_name_cannot_steer_the_terminal(command: Command, once: Once, store_url: str) -> None:
    lapse(once, EVIL)
    where = (once.scope, EVIL, "--store", store_url)
    texts = (
        command("leases", "list", "--store", store_url, "--kind", once.scope).stdout,
        command("leases", "show", *where).stdout,
        command("leases", "release", *where, *DECISION).stdout,
    )
    for text in texts:
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[bold]" in texts[0]
