"""Laws of finding: each filter holds, exactly; the oldest come first."""

from __future__ import annotations

from typing import Any

from umavez.core.key import Key
from umavez.core.protocol import Intent, doubt, fail, settle
from umavez.core.record import Query, Record, Settled, Status
from umavez.testing.bench import RERUN, AnyBench
from umavez.testing.laws.law import Law


def a_found_record_is_the_one_that_was_written(bench: AnyBench) -> None:
    """Whole, with its key; the same as `read` gives."""
    intent = Intent(bench.key("nº 42 "), "1:aa", "instance", "activity")
    bench.drive(settle(bench.claim(intent), Settled(True, ""), RERUN.keep_ms, bench.stamp()))
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
    bench.drive(settle(first, Settled(True, "1"), RERUN.keep_ms, bench.stamp()))
    ordered = [record.key.value for record in bench.find(Query(scope=bench.scope))]
    assert ordered == ["c", "a", "d", "b"]
    limited = [record.key.value for record in bench.find(Query(scope=bench.scope, limit=2))]
    assert limited == ["c", "a"], "the limit keeps the oldest"


def _reach(bench: AnyBench, status: Status) -> None:
    claim = bench.claim(bench.key(status.value))
    if status is Status.SUCCESS:
        bench.drive(settle(claim, Settled(True, "1"), RERUN.keep_ms, bench.stamp()))
    elif status is Status.FAILED:
        bench.drive(fail(claim, "no", RERUN.keep_ms, bench.stamp()))
    elif status is Status.UNKNOWN:
        bench.drive(doubt(claim, "no answer", bench.stamp()))


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
)
