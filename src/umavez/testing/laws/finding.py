"""Laws of finding: each filter holds, exactly; the oldest come first; pages leave nothing out."""

from __future__ import annotations

from typing import Any

from umavez.core.key import Key
from umavez.core.protocol import Intent
from umavez.core.record import Query, Record, Settled, Status
from umavez.testing.harness import AnyBench
from umavez.testing.laws.law import Law


def a_found_record_is_the_one_that_was_written(bench: AnyBench) -> None:
    """Whole, with its key; the same as `read` gives."""
    intent = Intent(bench.key("nº 42 "), "1:aa", "instance", "activity")
    bench.drive(bench.claim(intent).settle(Settled(True, "")))
    found = _found(bench)
    assert found == [bench.record(intent.key)]
    assert found[0].key == intent.key


def finding_keeps_to_scope_operation_and_value(bench: AnyBench) -> None:
    """Text by text: another case, another accent or a trailing blank is another name."""
    for operation, value in (("pay", "1"), ("Pay", "1"), ("pay ", "1"), ("pay", "2"), ("pay", "2 ")):
        bench.claim(bench.key(value, operation))
    bench.claim(Key(bench.scope.upper(), "pay", "1"))
    bench.claim(Key(f"{bench.scope} ", "pay", "1"))
    assert len(_found(bench)) == 5, "a scope found another's records"
    assert _values(_found(bench, operation="pay")) == ["1", "2", "2 "]
    assert _values(_found(bench, value="2")) == ["2"]
    assert _values(_found(bench, operation="Pay", value="1")) == ["1"]
    assert _found(bench, operation="refund") == []
    assert bench.find(Query(scope=f"{bench.scope}-absent")) == []


def finding_keeps_to_the_process_instance(bench: AnyBench) -> None:
    """Seed 003's query by process instance."""
    for number in range(4):
        bench.claim(Intent(bench.key(str(number)), None, f"instance {number % 2}", "activity"))
    bench.claim(bench.key("no instance"))
    assert _values(_found(bench, process_instance="instance 1")) == ["1", "3"]
    assert _found(bench, process_instance="instance") == []


def finding_keeps_to_the_status(bench: AnyBench) -> None:
    """Each of the four."""
    for status in Status:
        _reach(bench, status)
    for status in Status:
        assert _values(_found(bench, status=status)) == [status.value]
    assert len(_found(bench)) == 4


def finding_keeps_to_the_age(bench: AnyBench) -> None:
    """`older_than` counts from creation, by the store's clock."""
    bench.claim(bench.key("old"))
    bench.clock.advance(3600)
    bench.claim(bench.key("young"))
    assert _values(_found(bench, older_than=1_800_000)) == ["old"]
    assert _found(bench, older_than=7_200_000) == []
    bench.clock.advance(3600)
    assert _values(_found(bench, older_than=1_800_000)) == ["old", "young"]


def finding_tells_the_lapsed_from_the_living(bench: AnyBench) -> None:
    """`lapsed` finds claims whose lease is over, and nothing that is finished."""
    _reach(bench, Status.SUCCESS)
    _reach(bench, Status.UNKNOWN)
    bench.claim(bench.key("lapsed"))
    assert _found(bench, lapsed=True) == []
    bench.lapse()
    bench.claim(bench.key("living"))
    assert _values(_found(bench, lapsed=True)) == ["lapsed"]


def finding_gives_the_oldest_first_and_no_more_than_asked(bench: AnyBench) -> None:
    """By creation, whatever was changed since."""
    first = bench.claim(bench.key("c"))
    for value in ("a", "d", "b"):
        bench.clock.advance(1)
        bench.claim(bench.key(value))
    bench.drive(first.settle(Settled(True, "1")))
    ordered = [record.key.value for record in bench.find(Query(scope=bench.scope))]
    assert ordered == ["c", "a", "d", "b"]
    limited = [record.key.value for record in bench.find(Query(scope=bench.scope, limit=2))]
    assert limited == ["c", "a"], "the limit keeps the oldest"


def pages_neither_miss_nor_repeat_a_record(bench: AnyBench) -> None:
    """Also within one instant, in both directions, and while records come, change and go."""
    wanted = [bench.claim(bench.key(f"page {number}")) for number in range(7)]
    bench.clock.advance(1)
    wanted += [bench.claim(bench.key(f"page {number}")) for number in range(7, 10)]
    bench.drive(wanted[4].settle(Settled(True, "1")))
    every = sorted(f"page {number}" for number in range(10))
    for newest_first in (False, True):
        pages = _pages(bench, newest_first)
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        found = [record for page in pages for record in page]
        assert _values(found) == every, "a record was missed or came twice"
        assert found == sorted(found, key=lambda record: record.position, reverse=newest_first)
    first = _found(bench, limit=3)
    running = next(claim for claim in wanted if claim is not wanted[4] and claim.draft.key in {r.key for r in first})
    bench.drive(running.fail("no"))
    rest = _found(bench, after=first[-1].position)
    assert _values(first + rest) == every, "what a page begins with is no longer where it was"
    assert _found(bench, after=rest[-1].position) == []
    assert _found(bench, after=first[0].position, status=Status.UNKNOWN) == [], "a filter holds on every page"


def finding_keeps_to_the_first_digits_of_the_digest(bench: AnyBench) -> None:
    """As many digits as a log line has: an odd number of them, one, or all 64."""
    for number in range(40):
        bench.claim(bench.key(f"digest {number}"))
    every = {f"digest {number}": bench.key(f"digest {number}").digest.hex() for number in range(40)}
    wanted = every["digest 7"]
    for digits in (1, 2, 11, 12, 63, 64):
        found = _values(_found(bench, digest_prefix=wanted[:digits]))
        assert found == sorted(name for name, digest in every.items() if digest.startswith(wanted[:digits]))
    newest = [record.key.value for record in _found(bench, digest_prefix=wanted[:1], newest_first=True)]
    assert newest == [record.key.value for record in _found(bench, digest_prefix=wanted[:1])][::-1]
    other = wanted[:63] + ("0" if wanted[63] != "0" else "1")
    assert _found(bench, digest_prefix=other) == []
    assert _found(bench, digest_prefix=wanted, status=Status.UNKNOWN) == [], "other filters hold as well"


def finding_keeps_to_the_young(bench: AnyBench) -> None:
    """`newer_than` is older_than the other way round, by the store's clock; both make a window."""
    for value in ("old", "middle", "young"):
        bench.claim(bench.key(value))
        bench.clock.advance(60)
    assert _values(_found(bench, newer_than=150_000)) == ["middle", "young"]
    assert _values(_found(bench, newer_than=150_000, older_than=90_000)) == ["middle"]
    assert _values(_found(bench, newer_than=30_000)) == []


def _pages(bench: AnyBench, newest_first: bool) -> list[list[Record]]:
    pages = [_found(bench, limit=3, newest_first=newest_first)]
    while len(pages[-1]) == 3 and len(pages) < 9:
        pages.append(_found(bench, limit=3, newest_first=newest_first, after=pages[-1][-1].position))
    return pages


def _reach(bench: AnyBench, status: Status) -> None:
    claim = bench.claim(bench.key(status.value))
    if status is Status.SUCCESS:
        bench.drive(claim.settle(Settled(True, "1")))
    elif status is Status.FAILED:
        bench.drive(claim.fail("no"))
    elif status is Status.UNKNOWN:
        bench.drive(claim.doubt("no answer"))


def _found(bench: AnyBench, **filters: Any) -> list[Record]:
    return bench.find(Query(scope=bench.scope, **filters))


def _values(records: list[Record]) -> list[str]:
    return sorted(record.key.value for record in records)


LAWS: tuple[Law, ...] = (
    a_found_record_is_the_one_that_was_written,
    finding_keeps_to_scope_operation_and_value,
    finding_keeps_to_the_process_instance,
    finding_keeps_to_the_status,
    finding_keeps_to_the_age,
    finding_tells_the_lapsed_from_the_living,
    finding_gives_the_oldest_first_and_no_more_than_asked,
    pages_neither_miss_nor_repeat_a_record,
    finding_keeps_to_the_first_digits_of_the_digest,
    finding_keeps_to_the_young,
)
