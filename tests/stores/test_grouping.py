"""Group commit: who leads, who follows, and that nobody is forgotten. Lanes here are simulated connections."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Status
from umavez.errors import StoreUnavailable, StoreUncertain
from umavez.stores.grouping import MOST, TaskGroup, ThreadGroup
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

    def __init__(self, group: ThreadGroup) -> None:
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
    group = ThreadGroup([lane])

    assert isinstance(group.swap(swap("a")), Swapped)
    assert isinstance(group.swap(swap("b")), Swapped)
    assert lane.batches == [["a"], ["b"]]


def test_callers_who_wait_for_a_lane_go_together_on_the_next_one(lane: Connection) -> None:
    callers = Callers(ThreadGroup([lane]))
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
    callers = Callers(ThreadGroup([lane]))
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
    callers = Callers(ThreadGroup([lane]))
    gate = _busy(lane, callers)
    for number in range(MOST + 10):
        callers.call(f"c{number}", swap(f"k{number}"))
    callers.queued(MOST + 10)

    gate.set()
    callers.finish()

    assert sorted(len(batch) for batch in lane.batches) == [1, 10, MOST]
    assert len(callers.answers) == MOST + 11


def test_one_bad_swap_does_not_fail_its_neighbours(lane: Connection) -> None:
    callers = Callers(ThreadGroup([lane]))
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


def test_an_interrupted_leader_leaves_nobody_asleep_and_the_lane_in_use(lane: Connection) -> None:
    """Whoever followed it is told that the answer is lost, not that it was interrupted itself."""
    callers = Callers(ThreadGroup([lane]))
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
    group = ThreadGroup([lane])
    lane.poison["bad"] = StoreUnavailable("bad")

    with pytest.raises(StoreUnavailable):
        group.swap(swap("bad"))

    assert isinstance(group.swap(swap("good")), Swapped)


def test_closing_closes_every_lane() -> None:
    lanes = [Connection(MemoryStore()), Connection(MemoryStore())]

    ThreadGroup(lanes).close()

    assert all(lane.closed for lane in lanes)


class AsyncConnection:
    """See Connection."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.batches: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self.poison: dict[str, Exception] = {}
        self.closed = False

    async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        self.batches.append([one.draft.key.value for one in batch])
        if self.gate is not None:
            await asyncio.wait_for(self.gate.wait(), PATIENCE)
        for one in batch:
            if one.draft.key.value in self.poison:
                raise self.poison[one.draft.key.value]
        return [self.store.swap(one.expected, one.draft) for one in batch]

    async def close(self) -> None:
        self.closed = True


def test_tasks_who_wait_for_a_lane_go_together_on_the_next_one() -> None:
    async def story() -> None:
        lane = AsyncConnection(MemoryStore())
        group = TaskGroup([lane])
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
        group = TaskGroup(lanes)
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
        group = TaskGroup([lane])

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
        group = TaskGroup([free, stuck])  # idle lanes are taken from the end
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
        group = TaskGroup([lane])
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
        group = TaskGroup([lane])
        lane.poison["bad"] = StoreUnavailable("bad")
        lane.gate = asyncio.Event()
        tasks = [asyncio.create_task(group.swap(swap(name))) for name in ("first", "a", "bad", "b")]
        await asyncio.sleep(0)
        lane.gate.set()

        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)

        assert [type(answer) for answer in answers] == [Swapped, Swapped, StoreUnavailable, Swapped]

    asyncio.run(story())


def test_many_threads_on_few_lanes_lose_and_double_nothing() -> None:
    store = MemoryStore()
    group = ThreadGroup([Connection(store), Connection(store)])
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

    callers = Callers(ThreadGroup([lane]))
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
