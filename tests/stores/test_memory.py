"""What only the memory store has: a clock that is the process's own."""

from __future__ import annotations

import time

import pytest

from umavez.core.drafts import Intent
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Busy, Granted, Verdict, admit
from umavez.stores import open_store
from umavez.stores.memory import AsyncMemoryStore, MemoryStore


@pytest.mark.parametrize("hours", [1, -1])
def test_setting_the_hosts_clock_ends_no_lease_and_prolongs_none(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A step of it must not let a second caller in beside one that runs, nor keep a key of one that is gone."""
    store = open_store("memory:")
    walls, passed = time.time_ns, time.monotonic_ns
    assert isinstance(_asked(store, "first"), Granted)

    monkeypatch.setattr(time, "time_ns", lambda: walls() + hours * 3600 * 10**9)
    rival = _asked(store, "second")
    assert isinstance(rival, Busy)
    assert 29_000 < rival.retry_after <= 30_000

    monkeypatch.setattr(time, "monotonic_ns", lambda: passed() + 31 * 10**9)
    taken = _asked(store, "third")
    assert isinstance(taken, Granted)
    assert taken.taken_over is not None


def _asked(store: object, stamp: str) -> Verdict:
    """The verdict on a call that has a lease of 30 seconds."""
    flow = admit(Intent(Key("loja", "charge", "k")), Policy("rerun", lease=30), stamp)
    command = next(flow)
    while True:
        try:
            command = flow.send(store.swap(command.expected, command.draft))  # type: ignore[attr-defined]
        except StopIteration as over:
            return over.value


def test_its_instants_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_750_000_000_000_000_000)
    for store in (MemoryStore(), open_store("memory:"), AsyncMemoryStore()._memory):
        seen = store.read(Key("loja", "charge", "k"))
        assert 0 <= seen.now - 1_750_000_000_000 < 5_000
