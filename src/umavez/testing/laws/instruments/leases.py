"""The laws of named leases. Each is a function of an InstrumentBench that raises AssertionError when broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umavez.errors import ClaimLost, OperationInProgress
from umavez.leases import AsyncLeases, Leases
from umavez.testing.instruments import InstrumentBench

LEASE = 30.0
Law = Callable[[InstrumentBench], None]


def leases_of(bench: InstrumentBench) -> Any:
    """Leases on the bench's engine."""
    return bench.pick(Leases, AsyncLeases)(bench.once)


def _raises(bench: InstrumentBench, kind: type[BaseException], call: Callable[[], Any]) -> None:
    try:
        bench.do(call())
    except kind:
        return
    raise AssertionError(f"{kind.__name__} should have been raised")


def one_holder_at_a_time(bench: InstrumentBench) -> None:
    """Of many who come at once, one holds it; another name is another lease."""
    leases = leases_of(bench)
    came = [held for held in bench.together(16, lambda: leases.try_acquire("report")) if held is not None]
    assert len(came) == 1, f"{len(came)} hold the lease"
    assert bench.do(leases.try_acquire("other")) is not None
    _raises(bench, OperationInProgress, lambda: leases.acquire("report"))


def a_released_lease_is_free_at_once(bench: InstrumentBench) -> None:
    """Releasing twice is releasing once."""
    leases = leases_of(bench)
    held = bench.do(leases.acquire("report"))
    bench.do(leases.release(held))
    bench.do(leases.release(held))
    again = bench.do(leases.acquire("report"))
    assert again.fence > held.fence
    assert bench.kinds() == ["acquired", "released", "acquired"]


def a_released_lease_is_held_no_more(bench: InstrumentBench) -> None:
    """Work that goes on with it, in a thread that outlived its block, is told so."""
    leases = leases_of(bench)
    held = bench.do(leases.acquire("report"))
    bench.do(held.check())
    bench.do(leases.release(held))
    assert held.lost
    _raises(bench, ClaimLost, held.check)
    _raises(bench, ClaimLost, held.renew)
    assert bench.do(leases.try_acquire("report")) is not None, "a late renewal took it again"
    _raises(bench, ClaimLost, held.check)


def a_lapsed_lease_is_taken_over_and_its_holder_told(bench: InstrumentBench) -> None:
    """The store's clock decides; whoever held it can neither renew, check nor release."""
    leases = leases_of(bench)
    late = bench.do(leases.acquire("report", lease=LEASE))
    bench.clock.advance(LEASE - 1)
    assert bench.do(leases.try_acquire("report")) is None
    bench.clock.advance(2)
    held = bench.do(leases.acquire("report", lease=LEASE))
    assert held.fence > late.fence
    _raises(bench, ClaimLost, late.renew)
    _raises(bench, ClaimLost, late.check)
    _raises(bench, ClaimLost, lambda: leases.release(late))
    assert late.lost
    bench.do(held.check())
    assert bench.do(leases.try_acquire("report")) is None, "a late release freed somebody else's lease"


def a_renewed_lease_is_not_taken_over(bench: InstrumentBench) -> None:
    """Renewing counts from the moment of renewing."""
    leases = leases_of(bench)
    held = bench.do(leases.acquire("report", lease=LEASE))
    for _ in range(5):
        bench.clock.advance(LEASE - 5)
        bench.do(held.renew())
    assert bench.do(leases.try_acquire("report")) is None


def a_lapsed_lease_that_nobody_took_can_be_renewed(bench: InstrumentBench) -> None:
    """Late is not lost: until somebody takes over, the holder is the last one."""
    leases = leases_of(bench)
    held = bench.do(leases.acquire("report", lease=LEASE))
    bench.clock.advance(LEASE * 3)
    bench.do(held.renew())
    assert bench.do(leases.try_acquire("report")) is None


def fences_rise_over_every_change_of_holder_and_over_the_sweep(bench: InstrumentBench) -> None:
    """Released, lapsed or swept away meanwhile: a later holder has a higher fence."""
    leases = leases_of(bench)
    fences = []
    for turn in range(6):
        held = bench.do(leases.acquire("report", lease=LEASE))
        fences.append(held.fence)
        if turn % 2:
            bench.clock.advance(LEASE + 1)
        else:
            bench.do(leases.release(held))
            bench.clock.advance(2 * 86_400)
            bench.do(bench.once.sweep())
    assert fences == sorted(set(fences)), f"fences came as {fences}"


def a_held_lease_is_never_swept(bench: InstrumentBench) -> None:
    """However old."""
    leases = leases_of(bench)
    held = bench.do(leases.acquire("report", lease=LEASE))
    bench.clock.advance(400 * 86_400)
    bench.do(bench.once.sweep())
    bench.do(held.renew())


LAWS: tuple[Law, ...] = (
    one_holder_at_a_time,
    a_released_lease_is_free_at_once,
    a_released_lease_is_held_no_more,
    a_lapsed_lease_is_taken_over_and_its_holder_told,
    a_renewed_lease_is_not_taken_over,
    a_lapsed_lease_that_nobody_took_can_be_renewed,
    fences_rise_over_every_change_of_holder_and_over_the_sweep,
    a_held_lease_is_never_swept,
)
