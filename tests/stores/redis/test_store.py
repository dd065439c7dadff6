"""What only the Redis store has: scripts, indexes, TTLs and counted commands."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.stores.redis.redis_drafts import claim, done, opened
from umavez.clock import Clock
from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Query, Settled, Status
from umavez.core.telling.events import EventDraft
from umavez.errors import ConfigurationError, StoreUnavailable, StoreUncertain
from umavez.stores.redis.dialogue import PAGE
from umavez.stores.redis.index import SWEEPABLE, WIDTH, place_of

DAY = 86_400_000


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, redis_url: str, prefix: str, clock: Clock) -> Iterator[Any]:
    with opened(request.param, f"{redis_url}?prefix={prefix}", clock) as opened_store:
        yield opened_store


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as opened_client:
        yield opened_client


def key_of(prefix: str, value: str) -> str:
    return f"{{{prefix}}}:{Key('shop', 'charge', value).digest.hex()}"


def entries(client: redis.Redis, prefix: str, index: str) -> list[str]:
    return list(client.zrange(f"{{{prefix}}}:{index}", 0, -1))


def test_a_record_comes_back_as_it_was_written(store: Any) -> None:
    texts = ['"', '\\"', "\\", "a,b\n", "\0", "é€😀", "\ud800", "", "null", "}{%d"]
    for number, text in enumerate(texts):
        draft = claim(f"k{number}", f"s{number}", process_instance=text, activity=text, fingerprint=text)
        swapped = store.swap(None, draft)
        final = done(draft, f'"{text}"', body=text)._replace(error=text, progress=text, evidence=text)
        assert store.swap(f"s{number}", final) == Swapped(swapped.fence, store.read(draft.key).current.updated_at)
        record = store.read(draft.key).current
        assert record.key is draft.key
        assert record.stamp == f'"{text}"'
        assert record.settled == Settled(True, text)
        written = (record.process_instance, record.activity, record.fingerprint, record.error)
        assert (*written, record.progress, record.evidence) == (text,) * 6
        assert store.find(Query(process_instance=text)) == [record]


def test_a_failure_without_outcome_is_not_a_refusal(store: Any) -> None:
    draft = claim("k", "s")
    store.swap(None, draft)
    store.swap("s", draft._replace(stamp="t", claims=False, status=Status.FAILED, lease=None, keep=1, error="no"))
    assert store.read(draft.key).current.settled is None
    store.swap("t", draft._replace(stamp="u", status=Status.FAILED, lease=None, settled=Settled(False, "")))
    assert store.read(draft.key).current.settled == Settled(False, "")


def test_only_a_record_that_may_be_swept_has_a_ttl_and_it_ends_a_day_after_expiry(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    draft = claim("k", "s")
    key = key_of(prefix, "k")
    store.swap(None, draft)
    assert client.pttl(key) == -1
    store.swap("s", done(draft, "t", keep=5000))
    record = store.read(draft.key).current
    # Redis counts the TTL from its own reading of the clock, later in the same script.
    assert 0 <= client.pexpiretime(key) - (record.expires_at + DAY) <= 1000
    store.swap("t", draft._replace(stamp="u", status=Status.UNKNOWN, claims=False, lease=None))
    assert client.pttl(key) == -1
    assert store.read(draft.key).current.expires_at is None


def test_the_ttl_follows_the_real_clock_when_a_test_moves_its_own(
    store: Any, client: redis.Redis, prefix: str, clock: Clock
) -> None:
    clock.offset = -10 * DAY
    draft = claim("k", "s")
    store.swap(None, draft)
    store.swap("s", done(draft, "t", keep=5000))
    assert client.pttl(key_of(prefix, "k")) > DAY


def test_a_forgotten_script_is_loaded_again(store: Any, client: redis.Redis) -> None:
    draft = claim("k", "s")
    client.script_flush()
    assert isinstance(store.swap(None, draft), Swapped)
    client.script_flush()
    assert store.find(Query(status=Status.PENDING))[0].key == draft.key
    client.script_flush()
    assert store.sweep(10) == 0


def test_an_expired_record_still_stands_until_it_is_swept(store: Any, clock: Clock) -> None:
    draft = claim("k", "s", process_instance="p")
    store.swap(None, draft)
    store.swap("s", done(draft, "t", keep=20_000))
    clock.offset = 5000
    assert store.sweep(10) == 0
    clock.offset = 60_000
    assert store.sweep(10, 120_000) == 0
    seen = store.read(draft.key)
    assert seen.current.is_expired(seen.now)
    assert store.sweep(10) == 1
    assert store.read(draft.key).current is None
    assert store.find(Query()) == store.find(Query(process_instance="p")) == []


def test_sweeping_leaves_no_trace_but_the_fence(store: Any, client: redis.Redis, prefix: str, clock: Clock) -> None:
    for number in range(250):
        draft = claim(f"k{number}", "s", process_instance=f"p{number % 7}")
        store.swap(None, draft)
        store.swap("s", done(draft, "t", keep=1))
    clock.offset = 1000
    assert store.sweep(240) == 240
    assert store.sweep(240) == 10
    assert client.keys(f"{{{prefix}}}:*") == [f"{{{prefix}}}:fence"]


def test_sweeping_spares_a_key_that_lives_again(store: Any, client: redis.Redis, prefix: str, clock: Clock) -> None:
    draft = claim("k", "s", process_instance="p")
    store.swap(None, draft)
    store.swap("s", done(draft, "t", keep=1))
    client.delete(key_of(prefix, "k"))  # as Redis's TTL does: the value goes, the index entries stay
    store.swap(None, claim("k", "u"))
    clock.offset = 1000
    assert store.sweep(10) == 0
    assert store.read(draft.key).current.stamp == "u"
    assert entries(client, prefix, "records") == [draft.key.digest.hex()]
    assert store.find(Query(process_instance="p")) == []


def test_a_value_that_redis_removed_answers_like_no_record(
    store: Any, client: redis.Redis, prefix: str, clock: Clock
) -> None:
    draft = claim("k", "s", process_instance="p")
    first = store.swap(None, draft)
    store.swap("s", done(draft, "t", keep=1))
    client.pexpire(key_of(prefix, "k"), 1)
    while client.exists(key_of(prefix, "k")):
        time.sleep(0.001)
    assert store.read(draft.key).current is None
    assert isinstance(store.swap("t", done(draft, "u")), Stale)
    assert store.find(Query(process_instance="p")) == []
    assert entries(client, prefix, "instance:p") == []
    clock.offset = 1000
    assert store.sweep(10) == 1
    assert store.find(Query(status=Status.SUCCESS)) == entries(client, prefix, "records") == []
    again = store.swap(None, draft._replace(stamp="v"))
    assert again.fence > first.fence


def test_fences_rise_even_when_the_counter_is_lost_or_ahead_of_the_clock(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    fences = [store.swap(None, claim("a", "s")).fence]
    client.delete(f"{{{prefix}}}:fence")
    fences.append(store.swap(None, claim("b", "s")).fence)
    ahead = fences[-1] + 10**12
    client.set(f"{{{prefix}}}:fence", ahead)
    fences += [store.swap(None, claim(name, "s")).fence for name in "cd"]
    assert fences[2:] == [ahead + 1, ahead + 2]
    assert fences == sorted(set(fences))


def test_a_record_stands_in_the_index_once_in_the_place_of_its_status(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    draft = claim("k", "s", process_instance="p")
    store.swap(None, draft)
    for number, (status, keep) in enumerate(itertools.product(Status, (None, 1000))):
        before = store.read(draft.key).current.stamp
        store.swap(before, draft._replace(stamp=f"s{number}", status=status, keep=keep, claims=False))
        record = store.read(draft.key).current
        instant = record.created_at if keep is None else record.expires_at
        place = place_of(status, sweepable=keep is not None)
        held = client.zrange(f"{{{prefix}}}:records", 0, -1, withscores=True)
        assert held == [(f"{draft.key.digest.hex()}:p", place * WIDTH + instant)]
        assert [other for other in Status if store.find(Query(status=other))] == [status]


def test_every_place_has_a_range_of_its_own() -> None:
    places = [place_of(status, sweepable=sweepable) for status in Status for sweepable in (True, False)]
    assert sorted(places) == list(range(8))
    assert sorted(SWEEPABLE) == sorted(str(place_of(status, sweepable=True)) for status in Status)


def test_a_record_that_changes_its_process_instance_is_found_under_the_new_one_only(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    draft = claim("k", "s", process_instance="old")
    store.swap(None, draft)
    store.swap("s", done(draft, "t"))
    store.swap("t", done(draft, "u")._replace(process_instance="new"))
    assert entries(client, prefix, "instance:old") == []
    assert entries(client, prefix, "records") == [f"{draft.key.digest.hex()}:new"]
    assert [record.stamp for record in store.find(Query(process_instance="new"))] == ["u"]


def test_finding_goes_on_behind_a_page_of_entries_that_do_not_match(store: Any, clock: Clock) -> None:
    for number in range(130):
        clock.offset = number
        store.swap(None, claim(f"k{number}", "s"))
    clock.offset = 1000
    store.swap(None, claim("wanted", "s")._replace(key=Key("shop", "refund", "wanted")))
    assert [record.key.value for record in store.find(Query(operation="refund"))] == ["wanted"]
    assert [record.key.value for record in store.find(Query(limit=2))] == ["k0", "k1"]
    assert len(store.find(Query(older_than=500, limit=1000))) == 130
    assert store.find(Query(status=Status.SUCCESS)) == []


def test_finding_lapsed_ones_asks_the_lease(store: Any, clock: Clock) -> None:
    store.swap(None, claim("short", "s", lease=10))
    store.swap(None, claim("long", "s"))
    clock.offset = 1000
    assert [record.key.value for record in store.find(Query(lapsed=True))] == ["short"]
    assert store.find(Query(lapsed=True, status=Status.SUCCESS)) == []


def test_a_whole_key_is_looked_up_directly(store: Any) -> None:
    store.swap(None, claim("k", "s"))
    whole = Query(scope="shop", operation="charge", value="k")
    assert [record.stamp for record in store.find(whole)] == ["s"]
    assert store.find(Query(scope="shop", operation="charge", value="k", status=Status.FAILED)) == []


def test_a_value_that_is_no_record_is_never_overwritten(store: Any, client: redis.Redis, prefix: str) -> None:
    draft = claim("k", "s")
    for foreign in ("hello", '"s"', "[1]"):
        client.set(key_of(prefix, "k"), foreign)
        with pytest.raises(StoreUnavailable, match="is no record; use another prefix"):
            store.swap(None, draft)
        with pytest.raises(StoreUnavailable):
            store.swap("s", draft)
        assert client.get(key_of(prefix, "k")) == foreign
    client.delete(key_of(prefix, "k"))
    client.hset(key_of(prefix, "k"), "a", "b")
    with pytest.raises(StoreUncertain):
        store.swap(None, draft)
    assert client.hgetall(key_of(prefix, "k")) == {"a": "b"}


def test_the_record_of_another_key_is_never_believed(store: Any, client: redis.Redis, prefix: str) -> None:
    store.swap(None, claim("mine", "s"))
    client.rename(key_of(prefix, "mine"), key_of(prefix, "other"))
    with pytest.raises(StoreUnavailable, match="another command"):
        store.read(claim("other", "s").key)
    with pytest.raises(StoreUncertain, match="another command"):
        store.swap(None, claim("other", "t"))
    assert isinstance(store.swap(None, claim("fine", "t")), Swapped)


def test_it_joins_no_transaction(store: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot join"):
        store.joined(None)


def test_migrating_loads_the_scripts_and_says_so(store: Any, client: redis.Redis) -> None:
    client.script_flush()
    assert store.migrate() == store.migrate()
    assert store.migrate().startswith(f"Redis {client.info('server')['redis_version']} at ")
    assert client.info("memory")["number_of_cached_scripts"] >= 3


def test_a_closed_store_opens_again_at_the_next_use(store: Any) -> None:
    store.swap(None, claim("k", "s"))
    store.close()
    store.close()
    assert store.read(claim("k", "s").key).current.stamp == "s"


def test_a_clock_that_is_off_by_centuries_is_refused_before_anything_is_written(store: Any, clock: Clock) -> None:
    draft = claim("k", "s")
    for years in (-40, 300):
        clock.offset = years * 365 * DAY
        with pytest.raises(StoreUnavailable, match="CLOCK"):
            store.swap(None, draft)
    clock.offset = 0
    assert store.read(draft.key).current is None


def test_a_key_that_lives_again_is_found_once_in_spite_of_old_entries(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    draft = claim("k", "s")
    store.swap(None, draft)
    store.swap("s", done(draft, "t"))
    client.delete(key_of(prefix, "k"))
    store.swap(None, claim("k", "u"))
    assert [record.stamp for record in store.find(Query())] == ["u"]
    assert entries(client, prefix, "records") == [draft.key.digest.hex()]


def test_finding_removes_the_entry_of_an_earlier_life_in_passing(store: Any, client: redis.Redis, prefix: str) -> None:
    draft = claim("k", "s", process_instance="p")
    store.swap(None, draft)
    client.delete(key_of(prefix, "k"))
    store.swap(None, claim("k", "u"))
    assert len(entries(client, prefix, "records")) == 2
    assert [record.stamp for record in store.find(Query())] == ["u"]
    assert entries(client, prefix, "records") == [draft.key.digest.hex()]


def test_settled_records_are_found_oldest_first_though_they_are_indexed_by_expiry(store: Any, clock: Clock) -> None:
    names = [f"k{number}" for number in range(PAGE + 30)]
    for number, name in enumerate(names):
        clock.offset = number
        draft = claim(name, "s")
        store.swap(None, draft)
        store.swap("s", done(draft, "t", keep=60_000 - 10 * number))  # the oldest expires last
    clock.offset = 1000
    assert [record.key.value for record in store.find(Query(status=Status.SUCCESS, limit=3))] == names[:3]
    assert [record.key.value for record in store.find(Query(limit=1000))] == names
    assert len(store.find(Query(status=Status.SUCCESS, older_than=900, limit=1000))) in range(100, len(names) + 1)


def test_finding_passes_a_page_of_records_with_one_score(store: Any) -> None:
    for number in range(2 * PAGE + 1):
        draft = claim(f"k{number}", "s")
        store.swap(None, draft)
        store.swap("s", done(draft, "t", keep=10**15))
    assert len({record.key for record in store.find(Query(status=Status.SUCCESS, limit=1000))}) == 2 * PAGE + 1


def test_a_lease_or_a_keep_of_ages_ends_with_the_last_instant(store: Any, client: redis.Redis, prefix: str) -> None:
    draft = claim("k", "s", lease=10**17)
    store.swap(None, draft)
    assert store.read(draft.key).current.lease_until == 9_999_999_999_999
    assert isinstance(store.swap("s", done(draft, "t", keep=10**17)), Swapped)
    assert store.read(draft.key).current.expires_at == 9_999_999_999_999
    assert client.pttl(key_of(prefix, "k")) > 200 * 365 * DAY
    assert isinstance(store.swap("t", done(draft, "u")), Swapped)


def test_a_record_of_the_layout_before_is_refused_by_name_and_left_alone(
    store: Any, client: redis.Redis, prefix: str
) -> None:
    draft = claim("k", "s")
    old = (
        '[1763000000000000,1763000000000,1763000000000,         null,         null,"PENDING","s",null,'
        '1,false,null,null,null,null,null,null,"shop","charge","k"]'
    )
    client.set(key_of(prefix, "k"), old)
    for ask in (lambda: store.swap(None, draft), lambda: store.swap("s", draft), lambda: store.read(draft.key)):
        with pytest.raises(StoreUnavailable, match="by an earlier umavez"):
            ask()
    assert client.get(key_of(prefix, "k")) == old


def test_people_can_read_a_value(store: Any, client: redis.Redis, prefix: str) -> None:
    draft = claim("k", "s")
    fence = store.swap(None, draft).fence
    store.swap("s", done(draft, "t", body='{"paid": true}'))
    value = client.get(key_of(prefix, "k"))
    assert value.startswith(f"[2,{fence},")
    assert value.endswith(',"t",null,"SUCCESS",1,true,null,null,null,null,null,"shop","charge","k"]{"paid": true}')


def test_events_live_as_long_as_their_record(store: Any, client: redis.Redis, prefix: str) -> None:
    place = f"{{{prefix}}}:events:{Key('shop', 'charge', 'k').digest.hex()}"
    store.swap(None, claim("k", "a"))
    assert not client.exists(place), "the clean path keeps none"
    failed = claim("k", "a/1", status=Status.FAILED, lease=None, keep=DAY, claims=False, event=EventDraft("failed"))
    store.swap("a", failed)
    assert 0 < client.pttl(place) <= 2 * DAY
    store.swap("a/1", claim("k", "b", event=EventDraft("retried", 'a "quoted" é€😀 detail')))

    assert client.pttl(place) == -1, "it runs, and so its events stay"
    assert [(event.kind, event.detail) for event in store.history(Key("shop", "charge", "k"))] == [
        ("failed", None),
        ("retried", 'a "quoted" é€😀 detail'),
    ]
