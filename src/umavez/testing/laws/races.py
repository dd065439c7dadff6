"""Laws of races: what is done while something else is being done. Nothing is ever half, twice or gone."""

from __future__ import annotations

from umavez.core.key import Key
from umavez.core.protocol import Busy, Granted, Replay, Verdict
from umavez.core.record import Draft, Record, Settled, Status
from umavez.testing.harness import RERUN, AnyBench, Holder
from umavez.testing.laws.law import Law, outcome_of

RIVALS = 8
TURNS = 160
"""How often rivals come. Of a store in memory without a lock, about one time in twenty shows it."""
KEYS = 12
LOOKS = 200
"""How often a reader looks at each key before it gives up waiting for the end."""


def of_rivals_who_come_again_and_again_one_gets_each_key(bench: AnyBench) -> None:
    """Each key is granted once, with a fence of its own, and what was granted stands."""
    fences: set[int] = set()
    for turn in range(TURNS):
        key = bench.key(str(turn))
        granted = outcome_of(bench.together([bench.admission(key) for _ in range(RIVALS)]), Granted)
        assert len(granted) == 1, f"{len(granted)} of {RIVALS} rivals were granted one key"
        claim = granted[0].claim
        record = bench.record(key)
        assert (record.stamp, record.fence) == (claim.draft.stamp, claim.fence)
        fences.add(claim.fence)
    assert len(fences) == TURNS, "two claims share a fence"


def the_fence_rises_whoever_claims(bench: AnyBench) -> None:
    """Callers in turn, each from another thread or task: a store that hands out blocks of fences gives a lower one."""
    fences: list[int] = []
    for _ in range(3):
        fences.append(bench.claim(bench.key()).fence)
        bench.lapse()
        fences += [holder.fence for holder in bench.together([bench.claiming(bench.key(), RERUN)])]
        bench.lapse()
        bench.drive(bench.claim(bench.key("other")).settle(Settled(True, "1")))
        bench.expire()
        bench.sweep(10_000)
        bench.drive(_freed(bench))
    assert fences == sorted(set(fences)), f"the fence fell or repeated: {fences}"


async def _freed(bench: AnyBench) -> None:
    """Free the key, so that its retries are never used up."""
    current = (await bench.reading(bench.key())).current
    if current is not None:
        draft = Draft(bench.key(), bench.stamp(), Status.FAILED, False, 0, keep=RERUN.keep_ms)
        await bench.swapping(current.stamp, draft)


def a_claim_made_during_a_sweep_survives_it(bench: AnyBench) -> None:
    """A sweep that deletes what it saw a moment ago would delete what was claimed since."""
    for turn in range(4):
        keys = [bench.key(f"{turn}-{number}") for number in range(KEYS)]
        for key in keys:
            bench.drive(bench.claim(key).settle(Settled(True, "1")))
        bench.expire()
        jobs = [_sweeping(bench), *(_claiming(bench, key) for key in keys), _sweeping(bench)]
        stamps = [stamp for stamp in bench.together(jobs) if stamp]
        for key, stamp in zip(keys, stamps, strict=True):
            current = bench.read(key).current
            assert current is not None, "a sweep deleted a claim"
            assert current.stamp == stamp


async def _claiming(bench: AnyBench, key: Key) -> str:
    holder = await bench.claiming(key)
    return holder.draft.stamp


async def _sweeping(bench: AnyBench) -> str:
    for _ in range(3):
        await bench.sweeping(10_000)
    return ""


def nobody_sees_half_an_outcome(bench: AnyBench) -> None:
    """Status, outcome and the end of the lease are one write: for who reads, and for who asks for the right to run."""
    holders = [bench.claim(bench.key(str(number))) for number in range(KEYS)]
    jobs = [_watching(bench), *(_settling(holder) for holder in holders), _watching(bench), _asking(bench)]
    for seen in bench.together(jobs):
        for record in seen:
            settled = Settled(True, f'"{record.key.value}"') if record.status is Status.SUCCESS else None
            assert record.settled == settled, f"{record.status} was seen with the outcome {record.settled}"
            assert (record.lease_until is None) is (record.status is Status.SUCCESS), "a lease outlived its attempt"
            assert (record.expires_at is None) is (record.status is Status.PENDING), "it is kept for no time"


async def _settling(holder: Holder) -> list[Record]:
    await holder.settle(Settled(True, f'"{holder.draft.key.value}"'))
    return []


async def _watching(bench: AnyBench) -> list[Record]:
    """Every state in which a reader saw one of the records."""
    seen: set[Record] = set()
    for number in range(KEYS):
        for _ in range(LOOKS):
            record = (await bench.reading(bench.key(str(number)))).current
            assert record is not None
            seen.add(record)
            if record.status is not Status.PENDING:
                break
    return list(seen)


async def _asking(bench: AnyBench) -> list[Record]:
    """Every record that a caller was told to replay."""
    replayed: list[Record] = []
    for number in range(KEYS):
        for _ in range(LOOKS):
            verdict: Verdict = await bench.admission(bench.key(str(number)))
            if isinstance(verdict, Replay):
                replayed.append(verdict.record)
                break
            assert isinstance(verdict, Busy), f"while it was settled, a rival was told {verdict}"
    return replayed


def stamps_are_compared_whole(bench: AnyBench) -> None:
    """Those of one owner differ at their end only; a store that keeps the beginning takes one for another."""
    long = "f0" * 20
    bench.swap(None, _stamped(bench, f"{long}/1"))
    bench.swap(f"{long}/1", _stamped(bench, f"{long}/2"))
    before = bench.record(bench.key())
    assert before.stamp == f"{long}/2"
    bench.swap(f"{long}/1", _stamped(bench, f"{long}/3"))
    assert bench.record(bench.key()) == before, "a stamp was taken for another that begins alike"


def _stamped(bench: AnyBench, stamp: str) -> Draft:
    return Draft(bench.key(), stamp, Status.PENDING, True, 1, RERUN.lease_ms)


LAWS: tuple[Law, ...] = (
    of_rivals_who_come_again_and_again_one_gets_each_key,
    the_fence_rises_whoever_claims,
    a_claim_made_during_a_sweep_survives_it,
    nobody_sees_half_an_outcome,
    stamps_are_compared_whole,
)
