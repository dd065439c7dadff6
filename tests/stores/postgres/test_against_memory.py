"""Batches of any mix against the memory store, which is the reference: same answers, same records."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Record, Settled, Status
from umavez.core.telling.events import EventDraft
from umavez.stores.memory import MemoryStore
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres import store as postgres
from umavez.stores.postgres.arrays import packed

TEXTS = (None, "", "x", "é\n", "\U0001f600" * 40, "long" * 60, "a" * 127, "b" * 128, "z" * 9000, '"\\', "NULL", "\x01")


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    store = postgres.PostgresStore(postgres_url)
    store.migrate()
    yield store
    store.close()


def drawn(rng: random.Random, key: Key, *, claim: bool, plain: float) -> Draft:
    """What may follow on anything; with the chance `plain` what nearly all are, and else perhaps nearly that."""

    def text(most: int = 9000) -> str | None:
        found = rng.choice(TEXTS)
        return found and found[:most]

    status = rng.choice(list(Status))
    draft = Draft(
        key,
        "s" + secrets.token_hex(rng.choice((4, 100))),
        status,
        claims=rng.random() < 0.5,
        attempt=rng.choice((0, 1, 2, 7)),
        lease=rng.choice((None, 0, 1, 30_000)),
        keep=rng.choice((None, 0, 60_000)),
        fingerprint=text(),
        process_instance=text(255),
        activity=text(255),
        settled=rng.choice((None, Settled(status is Status.SUCCESS, text()))),
        error=text(),
        progress=text(),
        evidence=text(),
        fresh=not claim and rng.random() < 0.3,
        event=EventDraft("lost", text(), None) if rng.random() < 0.05 else None,
        origin="far" if rng.random() < 0.05 else None,
    )
    usual = draft._replace(attempt=1, claims=claim, fresh=False, event=None, origin=None)
    if claim:
        usual = usual._replace(status=Status.PENDING, keep=None, settled=None, error=None, progress=None)
    if rng.random() < plain:
        return usual
    odd = rng.choice(("attempt", "claims", "fresh", "status", "keep", "settled", "error", "progress"))
    found = rng.choice((draft, usual._replace(**{odd: getattr(draft, odd)})))
    return found._replace(settled=found.settled and found.settled._replace(ok=found.status is Status.SUCCESS))


def shape(record: Record | None) -> tuple[Any, ...] | None:
    """A record without what no two stores have alike."""
    if record is None:
        return None
    lease, expiry = record.lease_until, record.expires_at
    bare = record._replace(fence=0, created_at=0, updated_at=0, lease_until=0, expires_at=0, origin=None)
    return bare, lease and lease - record.updated_at, expiry and expiry - record.updated_at


@pytest.mark.parametrize("seed", range(12))
def test_any_batch_is_answered_and_kept_as_by_the_memory_store(seed: int, store: Any) -> None:
    rng, reference = random.Random(seed), MemoryStore()
    plain = rng.choice((0.5, 0.9, 0.9, 1))
    keys = [Key("against", secrets.token_hex(4), str(number)) for number in range(rng.randrange(2, 30))]
    fences: dict[Key, int] = {}
    born: dict[Key, int] = {}
    for _ in range(8):
        swaps = []
        for key in rng.sample(keys, rng.randrange(2, len(keys) + 1)):
            current = reference.read(key).current
            stands = None if current is None else current.stamp
            expected = stands if rng.random() < 0.8 else rng.choice((None, "nobody's"))
            swaps.append(Swap(expected, drawn(rng, key, claim=expected is None, plain=plain)))
        highest = max(fences.values(), default=0)
        for swap, answer in zip(swaps, rng.choice(store._lanes).send(swaps), strict=True):
            key, wanted = swap.draft.key, reference.swap(*swap)
            assert type(answer) is type(wanted), swap
            if isinstance(answer, Stale) and isinstance(wanted, Stale):
                assert shape(answer.current) == shape(wanted.current)
                continue
            assert isinstance(answer, Swapped)
            if swap.expected is None or swap.draft.claims:
                assert answer.fence > highest
                fences[key] = answer.fence
            if swap.expected is None or swap.draft.fresh:
                born[key] = answer.now
            assert answer.fence == fences[key]
    for key in keys:
        record = store.read(key).current
        assert shape(record) == shape(reference.read(key).current)
        assert record is None or (record.fence, record.created_at) == (fences[key], born[key])


def test_the_mixes_are_of_every_form() -> None:
    rng = random.Random(0)
    made = []
    for plain in (0.5, 1) * 200:
        drafts = [drawn(rng, Key("s", "o", str(number)), claim=True, plain=plain) for number in range(4)]
        tells = any(draft.event or draft.origin for draft in drafts)
        made.append(packed([Swap(None, draft) for draft in drafts], 0, tells=tells)[0])
    assert set(made) == {sql.BATCH, sql.BATCH_PLAIN, sql.BATCH_TELLING}


class Tried(NamedTuple):
    """A swap, and what came of it: the stamp that stood there, or that it was done."""

    swap: Swap
    done: bool
    met: str | None


@pytest.mark.parametrize("seed", range(4))
def test_whatever_batches_meet_each_other_each_record_is_one_chain(seed: int, store: Any) -> None:
    """Few keys, a thread for each connection: what was answered as done is what was written, one after the other."""
    keys = [Key("chain", secrets.token_hex(4), str(number)) for number in range(6)]
    with ThreadPoolExecutor() as threads:
        lanes = enumerate(store._lanes)
        working = [threads.submit(busy, random.Random(seed * 100 + number), lane, keys) for number, lane in lanes]
    tried = [one for work in working for one in work.result()]

    assert len(working) > 1
    for key in keys:
        ours = [one for one in tried if one.swap.draft.key == key]
        done = {one.swap.draft.stamp: one.swap.expected for one in ours if one.done}
        chain, stamp = [], getattr(store.read(key).current, "stamp", None)
        while stamp is not None:
            chain.append(stamp)
            stamp = done[stamp]
        assert sorted(chain) == sorted(done)
        assert {one.met for one in ours if not one.done} <= {None, *chain}
        assert all(one.met != one.swap.expected for one in ours if not one.done)


def busy(rng: random.Random, lane: Any, keys: list[Key]) -> list[Tried]:
    """Swaps of what was seen last, in batches of any size."""
    seen: dict[Key, str | None] = {}
    tried: list[Tried] = []
    for _ in range(80):
        some = rng.sample(keys, rng.randrange(1, 5))
        claims = {key: seen.get(key) is None for key in some}
        swaps = [Swap(seen.get(key), drawn(rng, key, claim=claims[key], plain=0.9)) for key in some]
        for swap, answer in zip(swaps, lane.send(swaps), strict=True):
            stands = swap.draft if isinstance(answer, Swapped) else answer.current
            seen[swap.draft.key] = stands and stands.stamp
            tried.append(Tried(swap, isinstance(answer, Swapped), stands and stands.stamp))
    return tried
