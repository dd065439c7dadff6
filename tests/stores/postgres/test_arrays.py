"""Batches of the PostgreSQL store: whatever the columns look like, a batch writes what single swaps write."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from umavez.concurrency.batching import Shunned
from umavez.concurrency.lanes import sent
from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import NotStorable, StoreUnavailable
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres import store as postgres
from umavez.stores.postgres.arrays import packed, replies
from umavez.stores.postgres.values import adapt

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


def first(**changes: Any) -> Swap:
    """A first claim."""
    return Swap(None, Draft(new_key(), "s", Status.PENDING, True, 1, 30_000)._replace(**changes))


def outcome(**changes: Any) -> Swap:
    """What follows it."""
    body = Settled(True, "{}")
    return Swap("s", Draft(new_key(), "t", Status.SUCCESS, False, 1, None, 60_000, settled=body)._replace(**changes))


NOT_PLAIN = {
    "a later attempt": first(attempt=2),
    "a claim that keeps an outcome": first(settled=Settled(True, "{}")),
    "a claim that expires": first(keep=5),
    "a claim with progress": first(progress="{}"),
    "a claim that tells of an error": first(error="no"),
    "a record that was never claimed": first(status=Status.UNKNOWN),
    "the outcome of a later attempt": outcome(attempt=2),
    "a takeover": outcome(claims=True),
    "a new life": outcome(fresh=True),
}


@pytest.mark.parametrize("other", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_a_batch_is_plain_where_each_of_its_swaps_is(other: Swap) -> None:
    plain = [first(), outcome(), first(evidence="two people", process_instance="p"), outcome(error="no", progress="{}")]
    for swaps in (plain, plain[:1], plain[1:2]):
        assert packed(swaps, 0)[0] is sql.BATCH_PLAIN
    assert packed([*plain, other], 0)[0] is sql.BATCH
    assert packed([other], 0)[0] is sql.BATCH


def text(rng: random.Random) -> str | None:
    return rng.choice((None, "", "x", "é\n", "\U0001f600" * 40, "long" * 60))


def claiming(rng: random.Random) -> Draft:
    lease = rng.choice((None, 1, 30_000))
    names = [text(rng) for _ in range(3)]
    return Draft(new_key(), "s", Status.PENDING, True, 1, lease, None, *names, evidence=text(rng))


def changing(rng: random.Random, draft: Draft) -> Draft:
    return draft._replace(
        stamp="t",
        status=rng.choice(list(Status)),
        claims=False,
        lease=rng.choice((None, 7)),
        keep=rng.choice((None, 60_000)),
        settled=rng.choice((None, Settled(True, text(rng)), Settled(False, "no"))),
        error=text(rng),
        progress=text(rng),
        evidence=text(rng),
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_plain_batch_leaves_what_single_swaps_leave(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    lane = store._lanes[0]
    claims = [claiming(rng) for _ in range(rng.randrange(2, 12))]
    twins = [draft._replace(key=new_key()) for draft in claims]
    half = len(claims) // 2
    changes = [changing(rng, draft) for draft in claims[:half]]

    began = lane.send([Swap(None, draft) for draft in claims[: half + 1]])
    mixed = [*(Swap(None, draft) for draft in claims[half + 1 :]), *(Swap("s", draft) for draft in changes)]
    rng.shuffle(mixed)
    went_on = lane.send(mixed)
    for draft in twins:
        store.swap(None, draft)
    for draft, twin in zip(changes, twins, strict=False):
        store.swap("s", draft._replace(key=twin.key))

    assert {type(reply) for reply in (*began, *went_on)} == {Swapped}
    assert len({reply.fence for reply in began}) == half + 1
    for draft, twin in zip(claims, twins, strict=True):
        assert shape(store, draft.key) == shape(store, twin.key)
    fences = {swap.draft.key: reply.fence for swap, reply in zip(mixed, went_on, strict=True)}
    assert fences == {key: store.read(key).current.fence for key in fences}


def shape(store: Any, key: Key) -> tuple[Any, ...]:
    """A record without what differs between two that were written alike."""
    record = store.read(key).current
    lease, expiry = record.lease_until, record.expires_at
    return (
        record._replace(key=None, fence=0, created_at=0, updated_at=0, lease_until=0, expires_at=0),
        lease and lease - record.updated_at,
        expiry and expiry - record.updated_at,
    )


def test_a_plain_batch_shows_what_stands_where_it_came_too_late(store: Any) -> None:
    taken, settled, overtaken, gone = first(), first(), first(), outcome()
    store._lanes[0].send([taken, settled, overtaken])
    end = outcome(key=settled.draft.key, settled=Settled(True, "done"))
    store._lanes[0].send([end, first()])
    late = outcome(key=overtaken.draft.key)._replace(expected="somebody else's")
    swaps = [Swap(None, taken.draft), Swap(None, settled.draft), late, gone, first()]

    answers = store._lanes[0].send(swaps)

    assert packed(swaps, 0)[0] is sql.BATCH_PLAIN
    assert [type(answer) for answer in answers] == [Stale, Stale, Stale, Stale, Swapped]
    assert [answer.current and answer.current.settled for answer in answers[:4]] == [
        None,
        end.draft.settled,
        None,
        None,
    ]
    assert [answer.current and answer.current.stamp for answer in answers[:4]] == ["s", "t", "s", None]
    assert store.read(overtaken.draft.key).current.stamp == "s"


def test_a_claim_in_a_batch_that_meets_a_rivals_commit_learns_who_stands_there(postgres_url: str, store: Any) -> None:
    """The rival's record is not in the statement's snapshot, and stands there when it comes to write."""
    contested, mine = first(stamp="mine"), first()
    text, parameters = packed([Swap(None, contested.draft._replace(stamp="rival"))], 0)
    found: list[Any] = []
    with psycopg.connect(postgres_url) as rival:
        adapt(rival)
        psycopg.RawCursor(rival).execute(text, parameters)
        waiting = threading.Thread(target=lambda: found.extend(store._lanes[0].send([contested, mine])))
        waiting.start()
        with psycopg.connect(postgres_url, autocommit=True) as looker:
            blocked = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            while not looker.execute(blocked, [rival.info.backend_pid]).fetchall():
                assert waiting.is_alive()
        rival.commit()
    waiting.join(10)

    assert [type(answer) for answer in found] == [Stale, Swapped]
    assert found[0].current.stamp == "rival"


def test_an_attempt_that_is_given_back_in_a_plain_batch_is_given_back(store: Any) -> None:
    """The plain form leaves the number of the attempt as it is, so it must leave such a record to the others."""
    second = first(attempt=2)
    (began,) = store._lanes[0].send([second])
    swaps = [Swap("s", second.draft._replace(stamp="t", attempt=1, claims=False, lease=None)), first()]

    answers = store._lanes[0].send(swaps)

    assert packed(swaps, 0)[0] is sql.BATCH_PLAIN
    assert [type(answer) for answer in answers] == [Swapped, Swapped]
    record = store.read(second.draft.key).current
    assert (record.stamp, record.attempt, record.fence) == ("t", 1, began.fence)


def test_what_a_batch_does_not_answer_is_sent_again() -> None:
    late, done = outcome(), first()
    written = (7, [3], [done.draft.key.digest], *[None] * 17)

    assert replies([late, done], [written]) == [None, Swapped(3, 7)]
    assert replies([late], [(7, None, None, *[None] * 17)]) == [None]


def test_who_was_written_never_hears_that_nothing_was(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the batch, and nothing more: neither the question who overtook its neighbour nor the resends."""
    written, overtaken = first(), first()
    store._lanes[0].send([overtaken])
    late = outcome(key=overtaken.draft.key)._replace(expected="somebody else's")
    lane, rows = store._lanes[0], store._lanes[0].connection.rows

    def only_batches(text: str, *words: Any) -> Any:
        if text is not sql.BATCH_PLAIN:
            raise StoreUnavailable("This PostgreSQL is a standby; nothing was written.")
        return rows(text, *words)

    monkeypatch.setattr(lane.connection, "rows", only_batches)
    answers = sent(lane, [written, late], Shunned(1))
    monkeypatch.undo()

    assert store.read(written.draft.key).current.stamp == "s"
    assert [getattr(answer, "may_have_happened", None) for answer in answers] == [True, True]


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
