"""Proof, shipped: the laws of stores, broken stores, faults, crashes, schedules and a manual clock.

To prove a store of your own, give each law a bench:

    @pytest.mark.parametrize("law", laws.ALL, ids=laws.name)
    def test_my_store_obeys(law):
        clock = ManualClock()
        law(Bench(MyStore(clock), clock))

For an async store use `AsyncBench(store, clock, runner)` with an `asyncio.Runner`.
"""

from umavez.testing.clock import ManualClock
from umavez.testing.harness import AnyBench, AsyncBench, Bench

__all__ = ["AnyBench", "AsyncBench", "Bench", "ManualClock"]
