"""Group commit: who leads, who follows, and that nobody is forgotten. Lanes here are simulated connections."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from umavez.concurrency.batching import SHUNNED_FOR
from umavez.concurrency.group_commit import MOST, AsyncGroupCommit, GroupCommit
from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Status
from umavez.errors import NotStorable, OperationInProgress, StoreUnavailable, StoreUncertain
from umavez.stores.memory import MemoryStore

PATIENCE = 20.0


def swap(value: str, stamp: str = "s", expected: str | None = None) -> Swap:
    return Swap(expected, Draft(Key("shop", "charge", value), stamp, Status.PENDING, True, 1, 1000))


class Connection:
    """A lane on a memory store: notes each batch, waits for `gate` if there is one, fails where told."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.batches: list[list[str]] = []
        self.entered = threading.Semaphore(0)
        self.gate: threading.Event | None = None
        self.poison: dict[str, BaseException] = {}
        self.closed = False

    def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        self.batches.append([one.draft.key.value for one in batch])
        self.entered.release()
        if self.gate is not None and not self.gate.wait(PATIENCE):
            raise AssertionError("the gate never opened")
        for one in batch:
            if one.draft.key.value in self.poison:
                raise self.poison[one.draft.key.value]
        return [self.store.swap(one.expected, one.draft) for one in batch]

    def close(self) -> None:
        self.closed = True


class Callers:
    """Threads that swap, and what each got."""

    def __init__(self, group: GroupCommit) -> None:
        self.group = group
        self.answers: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def call(self, name: str, what: Swap) -> None:
        thread = threading.Thread(target=self._run, args=(name, what), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self, name: str, what: Swap) -> None:
        try:
            self.answers[name] = self.group.swap(what)
        except BaseException as error:  # noqa: BLE001 (every answer is looked at)
            self.answers[name] = error

    def queued(self, count: int) -> None:
        """Wait until `count` callers stand in the queue."""
        for _ in range(int(PATIENCE * 1000)):
            if len(self.group._queue) >= count:
                return
            threading.Event().wait(0.001)
        raise AssertionError(f"only {len(self.group._queue)} of {count} came to the queue")

    def finish(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a caller sleeps for ever"


@pytest.fixture
def lane() -> Connection:
    return Connection(MemoryStore())


def _busy(lane: Connection, callers: Callers) -> threading.Event:
    """One caller occupies the lane until the event that is returned is set."""
    lane.gate = threading.Event()
    callers.call("first", swap("first"))
    assert lane.entered.acquire(timeout=PATIENCE)
    return lane.gate


def test_a_lone_caller_is_sent_at_once_and_alone(lane: Connection) -> None:
    group = GroupCommit([lane])

    assert isinstance(group.swap(swap("a")), Swapped)
    assert isinstance(group.swap(swap("b")), Swapped)
    assert lane.batches == [["a"], ["b"]]


def test_callers_who_wait_for_a_lane_go_together_on_the_next_one(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    for number in range(5):
        callers.call(f"c{number}", swap(f"k{number}"))
    callers.queued(5)

    gate.set()
    callers.finish()

    assert [len(batch) for batch in lane.batches] == [1, 5]
    assert all(isinstance(answer, Swapped) for answer in callers.answers.values())
    assert len({answer.fence for answer in callers.answers.values()}) == 6


def test_no_batch_holds_a_key_twice(lane: Connection) -> None:
    """Each swap of a key must see the one before it."""
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    for number in range(4):
        callers.call(f"c{number}", swap("same", f"s{number}"))
    callers.call("other", swap("other"))
    callers.queued(5)

    gate.set()
    callers.finish()

    assert all(len(set(batch)) == len(batch) for batch in lane.batches)
    told = [callers.answers[f"c{number}"] for number in range(4)]
    assert sum(isinstance(answer, Swapped) for answer in told) == 1


def test_a_batch_has_a_largest_size(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    for number in range(MOST + 10):
        callers.call(f"c{number}", swap(f"k{number}"))
    callers.queued(MOST + 10)

    gate.set()
    callers.finish()

    assert sorted(len(batch) for batch in lane.batches) == [1, 10, MOST]
    assert len(callers.answers) == MOST + 11


def test_one_bad_swap_does_not_fail_its_neighbours(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    lane.poison["bad"] = StoreUnavailable("bad")
    for name in ("a", "bad", "b"):
        callers.call(name, swap(name))
    callers.queued(3)

    gate.set()
    callers.finish()

    assert isinstance(callers.answers["a"], Swapped)
    assert isinstance(callers.answers["b"], Swapped)
    assert isinstance(callers.answers["bad"], StoreUnavailable)


FOREIGN = [
    TypeError("not text"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"),
    StopIteration(),
    KeyError(1),
]


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_a_swap_that_cannot_even_be_sent_fails_alone(lane: Connection, error: Exception) -> None:
    """Whatever a caller put into it: its neighbours are carried out, and the lane goes on."""
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    lane.poison["bad"] = error
    for name in ("a", "bad", "b", "c"):
        callers.call(name, swap(name))
    callers.queued(4)

    gate.set()
    callers.finish()

    assert [type(callers.answers[name]) for name in ("a", "bad", "b", "c")] == [Swapped, type(error), Swapped, Swapped]
    assert isinstance(callers.group.swap(swap("later")), Swapped)


def test_after_a_foreign_error_nobody_is_told_that_nothing_was_written(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    lane.poison["bad"] = TypeError()
    lane.poison["late"] = StoreUnavailable("away")
    for name in ("bad", "late"):
        callers.call(name, swap(name))
        callers.queued(len(callers.threads) - 1)

    gate.set()
    callers.finish()

    assert isinstance(callers.answers["late"], StoreUncertain)


def test_what_cannot_be_kept_leaves_no_doubt_about_its_neighbours(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    lane.poison["bad"] = NotStorable("too long")
    lane.poison["late"] = StoreUnavailable("away")
    for name in ("bad", "late", "well"):
        callers.call(name, swap(name))
        callers.queued(len(callers.threads) - 1)

    gate.set()
    callers.finish()

    assert [type(callers.answers[name]) for name in ("bad", "late", "well")] == [NotStorable, StoreUnavailable, Swapped]


class Held(Connection):
    """A lane on which the key "held" waits for a lock in vain, until `gate` opens."""

    def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        self.batches.append([one.draft.key.value for one in batch])
        if any(one.draft.key.value == "held" for one in batch):
            assert self.gate is not None
            self.entered.release()
            assert self.gate.wait(PATIENCE)
            raise OperationInProgress(batch[0].draft.key, 1.0) if len(batch) == 1 else StoreUnavailable("lock")
        return [self.store.swap(one.expected, one.draft) for one in batch]


def test_a_key_that_is_held_goes_alone_and_never_on_every_lane() -> None:
    """Two callers of a held key must not keep the neighbours waiting for its lock."""
    store = MemoryStore()
    lanes = [Held(store), Held(store)]
    group = GroupCommit(lanes)
    gate = threading.Event()
    for lane in lanes:
        lane.gate = gate
    gate.set()
    with pytest.raises(OperationInProgress):
        group.swap(swap("held"))

    gate.clear()
    callers = Callers(group)
    for number in range(3):
        callers.call(f"held{number}", swap("held", f"s{number}"))
    callers.queued(2)
    for number in range(20):
        assert isinstance(group.swap(swap(f"k{number}")), Swapped)
    gate.set()
    callers.finish()

    batches = [batch for lane in lanes for batch in lane.batches]
    assert all(batch == ["held"] for batch in batches if "held" in batch)
    assert all(isinstance(callers.answers[f"held{number}"], OperationInProgress) for number in range(3))


def test_a_key_is_no_longer_shunned_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Held(MemoryStore())
    lane.gate = threading.Event()
    lane.gate.set()
    group = GroupCommit([lane])
    with pytest.raises(OperationInProgress):
        group.swap(swap("held"))
    digest = swap("held").draft.key.digest
    assert digest in group._shunned
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + SHUNNED_FOR + 1)

    assert digest not in group._shunned


def test_an_interrupted_leader_leaves_nobody_asleep_and_the_lane_in_use(lane: Connection) -> None:
    """Whoever followed it is told that the answer is lost, not that it was interrupted itself."""
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    lane.poison["leader"] = KeyboardInterrupt()
    callers.call("leader", swap("leader"))
    callers.queued(1)
    callers.call("follower", swap("follower"))
    callers.queued(2)

    gate.set()
    callers.finish()

    assert isinstance(callers.answers["leader"], KeyboardInterrupt)
    assert isinstance(callers.answers["follower"], StoreUncertain)
    assert isinstance(callers.group.swap(swap("later")), Swapped)


def test_a_failed_lone_swap_gives_its_lane_back(lane: Connection) -> None:
    group = GroupCommit([lane])
    lane.poison["bad"] = StoreUnavailable("bad")

    with pytest.raises(StoreUnavailable):
        group.swap(swap("bad"))

    assert isinstance(group.swap(swap("good")), Swapped)


def test_closing_closes_every_lane() -> None:
    lanes = [Connection(MemoryStore()), Connection(MemoryStore())]

    GroupCommit(lanes).close()

    assert all(lane.closed for lane in lanes)


class AsyncConnection:
    """See Connection."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.batches: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self.poison: dict[str, Exception] = {}
        self.closed = self.forgotten = False

    async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        self.batches.append([one.draft.key.value for one in batch])
        if self.gate is not None:
            await asyncio.wait_for(self.gate.wait(), PATIENCE)
        for one in batch:
            if one.draft.key.value in self.poison:
                raise self.poison[one.draft.key.value]
        return [self.store.swap(one.expected, one.draft) for one in batch]

    def forget(self) -> None:
        self.forgotten = True

    async def close(self) -> None:
        self.closed = True


def test_a_loop_that_ended_in_the_middle_leaves_nothing_to_wait_for() -> None:
    lane = AsyncConnection(MemoryStore())
    group = AsyncGroupCommit([lane])
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        lane.gate = asyncio.Event()
        left.extend(asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(3))
        await asyncio.sleep(0)

    left: list[asyncio.Task[Any]] = []
    loop.run_until_complete(begin())

    async def again() -> Any:
        lane.gate = None
        try:
            return await asyncio.wait_for(group.swap(swap("later")), 5)
        finally:
            await asyncio.wait_for(group.close(), 5)

    assert isinstance(asyncio.run(again()), Swapped)
    assert lane.forgotten
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def test_a_loop_of_another_thread_amid_a_call_is_told_of_and_not_joined() -> None:
    """Both would send on one connection, and whoever waited in one of them would wait for ever."""
    sending, gate = threading.Event(), threading.Event()

    class Slow(AsyncConnection):
        async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
            sending.set()
            await asyncio.to_thread(gate.wait, 10)
            return await super().send(batch)

    lane = Slow(MemoryStore())
    group = AsyncGroupCommit([lane])
    told: list[Swapped | Stale] = []
    other = threading.Thread(target=lambda: told.append(asyncio.run(group.swap(swap("theirs")))))
    other.start()
    assert sending.wait(10)
    with pytest.raises(StoreUnavailable, match="another thread"):
        asyncio.run(group.swap(swap("ours")))
    gate.set()
    other.join(10)
    assert len(told) == 1
    assert asyncio.run(group.swap(swap("ours"))) is not None


def test_tasks_who_wait_for_a_lane_go_together_on_the_next_one() -> None:
    async def story() -> None:
        lane = AsyncConnection(MemoryStore())
        group = AsyncGroupCommit([lane])
        lane.gate = asyncio.Event()
        tasks = [asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(6)]
        twin = asyncio.create_task(group.swap(swap("k5", "twin")))
        await asyncio.sleep(0)
        lane.gate.set()

        answers = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

        assert all(isinstance(answer, Swapped) for answer in answers)
        assert isinstance(await twin, Stale)
        assert [len(batch) for batch in lane.batches] == [1, 5, 1]
        await group.close()
        assert lane.closed

    asyncio.run(story())


def test_lanes_share_those_who_wait() -> None:
    """One lane with everybody would leave the other idle, and the store with it while answers are read."""

    async def story() -> list[list[int]]:
        lanes = [AsyncConnection(MemoryStore()) for _ in range(2)]
        for lane in lanes:
            lane.gate = asyncio.Event()
        group = AsyncGroupCommit(lanes)
        tasks = [asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(22)]
        await asyncio.sleep(0)
        for lane in lanes:
            lane.gate.set()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        await group.close()
        return [[len(batch) for batch in lane.batches] for lane in lanes]

    assert asyncio.run(story()) == [[1, 10], [1, 10]]


def test_whoever_was_just_answered_rides_with_the_next_batch() -> None:
    async def story() -> list[int]:
        lane = AsyncConnection(MemoryStore())
        group = AsyncGroupCommit([lane])

        async def twice(number: int) -> None:
            await group.swap(swap(f"k{number}"))
            await group.swap(swap(f"again{number}"))

        lane.gate = asyncio.Event()
        tasks = [asyncio.create_task(twice(number)) for number in range(6)]
        await asyncio.sleep(0)
        lane.gate.set()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        return [len(batch) for batch in lane.batches]

    batches = asyncio.run(story())
    assert (sum(batches), len(batches)) == (12, 3)


def test_a_lane_that_is_stuck_keeps_nobody_waiting_for_ever() -> None:
    async def story() -> None:
        stuck, free = AsyncConnection(MemoryStore()), AsyncConnection(MemoryStore())
        stuck.gate = asyncio.Event()
        group = AsyncGroupCommit([free, stuck])  # idle lanes are taken from the end
        first = asyncio.create_task(group.swap(swap("stuck")))
        await asyncio.sleep(0)
        others = [asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(40)]
        answers = await asyncio.wait_for(asyncio.gather(*others), PATIENCE)
        assert all(isinstance(answer, Swapped) for answer in answers)
        assert not first.done()
        stuck.gate.set()
        assert isinstance(await first, Swapped)

    asyncio.run(story())


def test_a_cancelled_task_takes_nobody_with_it() -> None:
    async def story() -> None:
        lane = AsyncConnection(MemoryStore())
        group = AsyncGroupCommit([lane])
        lane.gate = asyncio.Event()
        first = asyncio.create_task(group.swap(swap("first")))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        waiting[0].cancel()
        lane.gate.set()

        answers = await asyncio.wait_for(asyncio.gather(first, *waiting, return_exceptions=True), PATIENCE)

        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, True, False, False]
        assert all(isinstance(answer, Swapped) for answer in answers[2:])
        assert isinstance(await group.swap(swap("later")), Swapped)

    asyncio.run(story())


def test_one_bad_swap_of_a_task_does_not_fail_its_neighbours() -> None:
    async def story() -> None:
        lane = AsyncConnection(MemoryStore())
        group = AsyncGroupCommit([lane])
        lane.poison["bad"] = StoreUnavailable("bad")
        lane.gate = asyncio.Event()
        tasks = [asyncio.create_task(group.swap(swap(name))) for name in ("first", "a", "bad", "b")]
        await asyncio.sleep(0)
        lane.gate.set()

        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)

        assert [type(answer) for answer in answers] == [Swapped, Swapped, StoreUnavailable, Swapped]

    asyncio.run(story())


@pytest.mark.parametrize("error", FOREIGN[:2], ids=lambda error: type(error).__name__)
def test_a_swap_of_a_task_that_cannot_even_be_sent_fails_alone(error: Exception) -> None:
    async def story() -> None:
        lane = AsyncConnection(MemoryStore())
        group = AsyncGroupCommit([lane])
        lane.poison["bad"] = error
        lane.gate = asyncio.Event()
        tasks = [asyncio.create_task(group.swap(swap(name))) for name in ("first", "a", "bad", "b")]
        await asyncio.sleep(0)
        lane.gate.set()

        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)

        assert [type(answer) for answer in answers] == [Swapped, Swapped, type(error), Swapped]
        assert isinstance(await group.swap(swap("later")), Swapped)

    asyncio.run(story())


def test_a_key_that_is_held_leaves_the_other_tasks_a_lane() -> None:
    async def story() -> None:
        gate = asyncio.Event()
        batches: list[list[str]] = []

        class Lane(AsyncConnection):
            async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
                batches.append([one.draft.key.value for one in batch])
                if any(one.draft.key.value == "held" for one in batch):
                    await asyncio.wait_for(gate.wait(), PATIENCE)
                    raise OperationInProgress(batch[0].draft.key, 1.0) if len(batch) == 1 else StoreUnavailable("lock")
                await asyncio.sleep(0)
                return [self.store.swap(one.expected, one.draft) for one in batch]

        store = MemoryStore()
        group = AsyncGroupCommit([Lane(store), Lane(store)])
        gate.set()
        with pytest.raises(OperationInProgress):
            await group.swap(swap("held"))
        gate.clear()
        held = [asyncio.create_task(group.swap(swap("held", f"s{number}"))) for number in range(3)]
        await asyncio.sleep(0)
        others = [asyncio.create_task(group.swap(swap(f"k{number}"))) for number in range(30)]

        answers = await asyncio.wait_for(asyncio.gather(*others), PATIENCE)

        assert all(isinstance(answer, Swapped) for answer in answers)
        assert not any(task.done() for task in held)
        gate.set()
        told = await asyncio.wait_for(asyncio.gather(*held, return_exceptions=True), PATIENCE)
        assert all(isinstance(answer, OperationInProgress) for answer in told)
        assert all(batch == ["held"] for batch in batches if "held" in batch)
        await group.close()

    asyncio.run(story())


def test_many_threads_on_few_lanes_lose_and_double_nothing() -> None:
    store = MemoryStore()
    group = GroupCommit([Connection(store), Connection(store)])
    done: list[int] = []

    def work(number: int) -> None:
        for turn in range(40):
            reply = group.swap(swap(f"k{turn}", f"s{number}"))
            done.append(isinstance(reply, Swapped))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()

    assert (len(done), sum(done)) == (480, 40)


class Interrupted(BaseException):
    """What the signal raises in the waiting main thread."""


def test_an_interrupted_waiter_leaves_the_queue_and_holds_up_nobody(lane: Connection) -> None:
    """Ctrl-C in a main thread that waits for its turn: those behind it are served all the same."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()

    def disturb() -> None:
        callers.queued(1)
        callers.call("behind", swap("behind"))
        callers.queued(2)
        signal.pthread_kill(main, signal.SIGUSR1)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with pytest.raises(Interrupted):
            callers.group.swap(swap("main"))
    finally:
        disturber.join(PATIENCE)
        signal.signal(signal.SIGUSR1, before)
    gate.set()
    callers.finish()

    assert isinstance(callers.answers["behind"], Swapped)
    assert ["main"] not in lane.batches


class Away(Connection):
    """A lane whose store says nothing until the gate opens, and then has been waited for in vain."""

    def send(self, batch: Any) -> Any:
        super().send(batch)
        raise StoreUncertain("silent", waited=True)


def test_a_caller_in_line_is_told_in_time_and_not_sent(lane: Connection) -> None:
    callers = Callers(GroupCommit([lane], patience=0.05))
    gate = _busy(lane, callers)
    callers.call("late", swap("late"))
    callers.threads[-1].join(PATIENCE)

    assert isinstance(callers.answers["late"], StoreUnavailable)
    gate.set()
    callers.finish()
    assert lane.batches == [["first"]]


def test_those_in_line_are_told_at_once_when_the_store_was_waited_for_in_vain() -> None:
    lane = Away(MemoryStore())
    callers = Callers(GroupCommit([lane]))
    gate = _busy(lane, callers)
    for number in range(3):
        callers.call(f"c{number}", swap(f"k{number}"))
    callers.queued(3)

    gate.set()
    callers.finish()

    assert isinstance(callers.answers.pop("first"), StoreUncertain)
    assert {type(answer) for answer in callers.answers.values()} == {StoreUnavailable}
    assert lane.batches == [["first"]]


def test_a_busy_lane_is_closed_by_its_user_and_an_idle_one_at_once(lane: Connection) -> None:
    other = Connection(MemoryStore())
    callers = Callers(GroupCommit([other, lane]))
    gate = _busy(lane, callers)

    callers.group.close()
    assert (other.closed, lane.closed) == (True, False)
    gate.set()
    callers.finish()

    assert lane.closed
    assert isinstance(callers.answers["first"], Swapped)
