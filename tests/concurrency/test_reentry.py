"""A signal handler makes a call of its own: it must not wait for the one that it interrupts, for it would for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

RINGING = """
import signal, sys, time

def ring(call, number=signal.SIGALRM, seconds=0.5):
    rung = 0

    def handler(*_):
        nonlocal rung
        rung += 1
        call()
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    signal.signal(number, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
    ends = time.monotonic() + seconds
    made = 0
    while time.monotonic() < ends:
        call()
        made += 1
    signal.signal(number, signal.SIG_IGN)
    return made + rung
"""

CALLS = {
    "minutes": """
from itertools import count
from umavez import Event, Key
from umavez.observe.minutes import MINUTE, Minutes
from umavez.stores.memory import MemoryStore

store, numbers = MemoryStore(), count()
minutes = Minutes(store)

def call():
    minutes(Event("succeeded", Key("shop", f"pay {next(numbers) % 300}", "1"), 1, 0.1))

made = ring(call)
minutes.close()
assert sum(tally.count for tally in store.tallied(MINUTE, 600_000)) == made
""",
    "tracing": """
from itertools import count
from opentelemetry.sdk.trace import TracerProvider
from umavez import Key
from umavez.observe.tracing import Tracing

numbers = count()
tracing = Tracing(TracerProvider())
key = lambda: Key("shop", "pay", str(next(numbers)))
ring(lambda: tracing.ended(tracing.started(key(), 1, 1), "succeeded", ""))
""",
    "budget": """
from umavez.retry import Budget

budget = Budget(size=10**9, ratio=2)

def call():
    budget.earn()
    budget.spend()

ring(call)
""",
    "memory": """
from itertools import count
from umavez import Once, StoreUnavailable

numbers, calls, refused = count(), count(), count()
once = Once("memory:", scope="shop")

def call():
    try:
        once.run("pay", key=next(numbers), call=lambda: next(calls), unknown="rerun")
        once.sweep()
    except StoreUnavailable as error:
        assert "signal handler" in str(error)
        next(refused)

ring(call)
made = next(calls)
assert len(once.find(limit=1000, status="SUCCESS")) >= min(made, 1000)
assert next(numbers) >= made > 0
""",
    "metrics": """
from itertools import count
from prometheus_client import CollectorRegistry
from umavez import Event, Key
from umavez.observe.metrics import Metrics

numbers, registry = count(), CollectorRegistry()
metrics = Metrics(registry)

def call():
    operation = f"pay {next(numbers) % 150}"
    metrics(Event(f"kind {next(numbers)}", Key("shop", operation, "1"), 1, 0.1))
    metrics.ended(metrics.started(Key("shop", operation, "1"), 1, 1), "succeeded", "")

made = ring(call)
found = [sample for family in registry.collect() for sample in family.samples]
assert sum(sample.value for sample in found if sample.name == "umavez_events_total") == made
assert sum(sample.value for sample in found if sample.name == "umavez_attempt_seconds_count") == made
assert {sample.value for sample in found if sample.name == "umavez_attempts_running"} == {0}
""",
    "sqlite": """
import tempfile
from itertools import count
from umavez import Once

numbers = count()
with tempfile.TemporaryDirectory() as folder:
    once = Once(f"sqlite:///{folder}/a.db?timeout=2", scope="shop")

    def call():
        once.run("pay", key=next(numbers), call=int, unknown="rerun")
        once.get("pay", 1)
        once.history("pay", 1)

    ring(call, seconds=2)
    once.close()
""",
}


@pytest.mark.parametrize("what", CALLS)
def test_a_signal_handler_s_call_does_not_wait_for_the_one_that_it_interrupted(what: str) -> None:
    code = RINGING + CALLS[what]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
