"""Batches of the PostgreSQL store: whatever the columns look like, a batch writes what single swaps write."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import NotStorable
from umavez.stores.postgres import store as postgres

TEXTS = {
    "the same": ["x", "x", "x"],
    "as long as each other": ["ab", "cd", "ef"],
    "as long in characters alone": ["é", "a", "b"],
    "empty": ["", "", "a"],
    "all empty": ["", "", ""],
    "of 127 and 128": ["a" * 127, "b" * 127, "c" * 128],
    "as long as each other and long": ["a" * 255, "b" * 255, "c" * 255],
    "absent between": ["a", None, "b"],
    "absent at the ends": [None, "a", None],
    "beyond the plane": ["\U0001f600", "ab", "cd"],
}


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    store = postgres.PostgresStore(postgres_url)
    store.migrate()
    yield store
    store.close()


def new_key(value: str | None = None) -> Key:
    return Key("batch", "charge", value or secrets.token_hex(8))


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_texts_arrive_as_they_were(texts: list[str | None], store: Any) -> None:
    claims = [
        Draft(new_key(), "s", Status.PENDING, True, 1, 5, None, text, text, text, None, text, text, text)
        for text in texts
    ]
    ends = [draft._replace(stamp="t", status=Status.SUCCESS, settled=Settled(True, draft.error)) for draft in claims]
    for expected, drafts in ((None, claims), ("s", ends)):
        replies = store._lanes[0].send([Swap(expected, draft) for draft in drafts])
        assert [type(reply) for reply in replies] == [Swapped] * 3
        for draft in drafts:
            record = store.read(draft.key).current
            given = (draft.stamp, draft.fingerprint, draft.process_instance, draft.activity, draft.settled)
            assert (record.stamp, *record[9:13]) == given
            assert record[13:16] == (draft.error, draft.progress, draft.evidence)


def test_keys_of_different_scopes_and_lengths_stand_beside_each_other(store: Any) -> None:
    salt = secrets.token_hex(4)
    keys = [Key("a", "charge", salt), Key("batch", "é", salt + "longer"), Key("batch", "x", salt + "\n")]
    store._lanes[0].send([Swap(None, Draft(key, "s", Status.PENDING, True)) for key in keys])
    texts = store._ask(
        "SELECT scope, operation_name, idempotency_key FROM idempotency_records WHERE digest IN ($1, $2, $3)",
        *(key.digest for key in keys),
    )
    shown = {("a", "charge", salt), ("batch", "é", salt + "longer"), ("batch", "x", salt + "\n")}
    assert set(texts) == shown


def test_fences_and_lives_are_told_apart_in_one_batch(store: Any) -> None:
    drafts = [Draft(new_key(), "s", Status.PENDING, True, number, number, None) for number in (1, 2, 3)]
    taken = Draft(new_key(), "s", Status.PENDING, True)
    before = store._lanes[0].send([Swap(None, draft) for draft in (*drafts, taken)])
    changes = [draft._replace(stamp="t", claims=draft.attempt == 2, keep=7 * draft.attempt) for draft in drafts]
    *after, stale = store._lanes[0].send([*(Swap("s", draft) for draft in changes), Swap(None, taken)])
    assert [new.fence > old.fence for new, old in zip(after, before, strict=False)] == [False, True, False]
    assert isinstance(stale, Stale)
    for draft, reply in zip(changes, after, strict=False):
        record = store.read(draft.key).current
        assert (record.attempt, record.fence) == (draft.attempt, reply.fence)
        assert (record.lease_until - reply.now, record.expires_at - reply.now) == (draft.lease, draft.keep)


def test_a_text_that_cannot_be_sent_fails_alone(postgres_url: str, store: Any) -> None:
    """A lone surrogate is noticed while the batch is packed, before anything is sent."""

    async def story() -> list[Any]:
        tasks = postgres.AsyncPostgresStore(f"{postgres_url}?lanes=1")
        drafts = [Draft(new_key(), "s", Status.PENDING, True) for _ in range(4)]
        drafts[2] = drafts[2]._replace(error="\ud800")
        answers = await asyncio.gather(*(tasks.swap(None, draft) for draft in drafts), return_exceptions=True)
        await tasks.close()
        return answers

    assert [type(answer) for answer in asyncio.run(story())] == [Swapped, Swapped, NotStorable, Swapped]
