"""Seed 003's methods, under their Python names."""

from __future__ import annotations

from umavez.core.key import Key
from umavez.core.record import Record, Settled, Status

RECORD = Record(Key("shop", "charge", "42"), "s", 1, Status.PENDING, 1, 100, 100, lease_until=200, progress="p")


def test_s3_06_a_record_is_expired_once_its_time_has_passed() -> None:
    kept = RECORD._replace(expires_at=500)

    assert [kept.is_expired(now) for now in (0, 499, 500, 501)] == [False, False, True, True]


def test_s3_06_what_has_no_expiry_never_expires() -> None:
    assert not RECORD.is_expired(10**15)


def test_s3_06_can_retry_while_the_count_is_below_the_maximum() -> None:
    assert [RECORD._replace(attempt=attempt).can_retry(2) for attempt in (0, 1, 2, 3, 4)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert not RECORD.can_retry(0)


def test_s3_06_increment_retry_count_counts_one_more_and_touches_the_time() -> None:
    once = RECORD.increment_retry_count(150)

    assert (RECORD.retry_count, once.retry_count, once.updated_at) == (0, 1, 150)
    assert once._replace(attempt=1, updated_at=100) == RECORD


def test_s3_06_mark_success_keeps_the_result_and_clears_the_error() -> None:
    done = RECORD._replace(error="earlier").mark_success('{"id":1}', 160)

    assert (done.status, done.settled, done.error, done.updated_at) == (
        Status.SUCCESS,
        Settled(True, '{"id":1}'),
        None,
        160,
    )
    assert done.lease_until is None
    assert done.created_at == 100


def test_s3_06_mark_failed_keeps_the_error() -> None:
    failed = RECORD.mark_failed("timeout", 170)

    assert (failed.status, failed.error, failed.updated_at, failed.settled) == (Status.FAILED, "timeout", 170, None)
    assert failed.lease_until is None


def test_only_a_running_record_lapses() -> None:
    assert [RECORD.lapsed(now) for now in (199, 200, 201)] == [False, True, True]
    assert not any(RECORD._replace(status=status).lapsed(999) for status in Status if status is not Status.PENDING)


def test_a_freed_key_counts_no_retry() -> None:
    assert RECORD._replace(attempt=0).retry_count == 0
