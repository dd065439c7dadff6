"""Lost answers: what a store says about a swap whose conversation broke is compared with what stands there.

Three sentences can be wrong: "done" when it is not, "not done" (Stale, StoreUnavailable) when it is. "I do not know"
(StoreUncertain) is never wrong, but must be possible to find out: the same swap sent again is recognised.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from chaos import SERVERS, Report, Setting, Trial
from chaos.proxy import WAYS, Fault, Proxy
from umavez import Once
from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import StoreError, StoreUnavailable, StoreUncertain, UmavezError
from umavez.stores import open_async_store, open_store

SCOPE = "chaos"
NEAR = {"swallow": 2, "cut answer": 120, "cut request": 500, "delay": 2}
"""Within one life of a key on an open connection; now and then farther, to meet the greeting of a new one."""
Swapping = Callable[[str | None, Draft], Swapped | Stale]


def run(setting: Setting) -> Report:
    """Break a conversation at a chosen place, then compare the verdict with the truth; sync and async in turn."""
    report, chance = Report(), random.Random(setting.seed)
    direct = open_store(setting.url)
    direct.migrate()
    with Proxy(setting.url) as proxy, asyncio.Runner() as runner:
        store, tasks = open_store(proxy.url), open_async_store(proxy.url)
        swaps: list[Swapping] = [store.swap, lambda expected, draft: runner.run(_awaited(tasks.swap(expected, draft)))]
        while report.done < setting.count:
            fault = some_fault(chance)
            judge(direct, swaps[chance.randrange(2)], proxy, fault, report)
            report.done += fault.fired
            setting.advance(int(fault.fired))
        store.close()
        runner.run(_awaited(tasks.close()))
    direct.close()
    operations(setting, chance, report)
    return report


def some_fault(chance: random.Random) -> Fault:
    """A fault that will mostly happen within the next few messages."""
    way = chance.choice(WAYS)
    return Fault(way, chance.randint(1, NEAR[way] * (6 if chance.random() < 0.1 else 1)))


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def judge(direct: Any, swap: Swapping, proxy: Proxy, fault: Fault, report: Report) -> None:
    """One life of a key through the proxy: claimed and settled, with the fault wherever it falls."""
    key = Key(SCOPE, "swap", secrets.token_hex(8))
    claim = Draft(key, "claim", Status.PENDING, True, 1, 60_000, None, "print")
    settled = Draft(key, "done", Status.SUCCESS, False, 1, None, 60_000, "print", settled=Settled(True, '"value"'))
    proxy.arm(fault)
    for expected, draft in ((None, claim), ("claim", settled)):
        before = fault.fired
        said = verdict(swap, expected, draft)
        current = direct.read(key).current
        stands = current is not None and current.stamp == draft.stamp
        check(said, stands, fault, report)
        if fault.fired and not before and fault.way != "delay":
            report.sometimes[f"{fault.way}, write {'stands' if stands else 'does not stand'}"] += 1
        if not stands and isinstance(direct.swap(expected, draft), Stale):
            report.blame(f"{draft.stamp} could not be written after {said} ({fault})")
        elif stands and said == "uncertain":
            again = verdict(swap, expected, draft)
            proved = again == "stale, and mine" or again in ("unavailable", "uncertain")
            report.sometimes["found out by sending again"] += again == "stale, and mine"
            if not proved:
                report.blame(f"{draft.stamp} sent again was answered {again} ({fault})")
    proxy.arm(None)
    report.sometimes[fault.way] += fault.fired


def verdict(swap: Swapping, expected: str | None, draft: Draft) -> str:
    """What the store says about a swap, in a word."""
    try:
        reply = swap(expected, draft)
    except StoreUncertain:
        return "uncertain"
    except StoreUnavailable:
        return "unavailable"
    except StoreError as error:
        return type(error).__name__
    if isinstance(reply, Swapped):
        return "swapped"
    return "stale, and mine" if reply.current is not None and reply.current.stamp == draft.stamp else "stale"


def check(said: str, stands: bool, fault: Fault, report: Report) -> None:
    """Whether a verdict agrees with what stands in the store."""
    report.sometimes[f"said {said}, {'stands' if stands else 'stands not'}"] += 1
    wrong = {True: ("unavailable", "stale"), False: ("swapped", "stale, and mine")}[stands]
    if said in wrong or said not in ("swapped", "stale, and mine", "stale", "unavailable", "uncertain"):
        report.blame(f"the store said {said} of a write that {'stands' if stands else 'does not stand'} ({fault})")


def operations(setting: Setting, chance: random.Random, report: Report) -> None:
    """Whole operations through the proxy: an answer given is kept, and no key has two effects with unknown="hold"."""
    acted: dict[str, int] = {}

    def act(key: str) -> str:
        acted[key] = acted.get(key, 0) + 1
        return f"value of {key}"

    scope = setting.scope
    with Once(setting.url, scope=scope) as direct, Proxy(setting.url) as proxy, Once(proxy.url, scope=scope) as once:
        for number in range(setting.count // 2):
            key, fault = str(number), some_fault(chance)
            proxy.arm(fault)
            try:
                answered: Any = once.run("whole", key=key, call=lambda key=key: act(key), unknown="hold").value
            except UmavezError as error:
                answered = None
                report.sometimes[f"operation: {type(error).__name__}"] += 1
            proxy.arm(None)
            examine(direct, key, answered, acted.get(key, 0), fault, report)


def examine(direct: Once, key: str, answered: str | None, acted: int, fault: Fault, report: Report) -> None:
    """What an operation answered, against its record and its effects."""
    record = direct.get("whole", key)
    done = record is not None and record.status is Status.SUCCESS
    report.sometimes["operations under a fault"] += fault.fired
    if acted > 1:
        report.blame(f"operation {key} acted {acted} times ({fault})")
    if answered is not None and (not done or acted != 1):
        report.blame(f"operation {key} answered, but its record is {record and record.status} ({fault})")
    if done and not acted:
        report.blame(f"operation {key} is recorded as done and never ran ({fault})")


TRIALS = (
    Trial(
        "lost answers: the conversation breaks",
        run,
        SERVERS,
        short=120,
        long=10_000,
        sometimes=(*WAYS, "swallow, write stands", "cut answer, write stands", "operations under a fault"),
    ),
)
