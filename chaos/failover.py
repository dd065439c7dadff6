"""A cluster loses its primary under load: killed, with its machine, handed over, frozen, cut off. Nothing is lost.

The trials of one server, unchanged, on three PostgreSQL under Patroni; and a control on a careless cluster, which must
lose something or the others show nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chaos import Report, Setting, Trial, engine_joined
from chaos.engine_board import Phase
from chaos.engine_servers import WORKERS, Harm, joined, outside
from chaos.engine_swarm import Job, Swarm
from tests.servers.wires import enter

LOAD = (0.5, 1.5)
"""Seconds of load before each harm."""
UNSENT = 0.3
"""Seconds in which the log reaches no standby before the primary is killed."""
BOTH_BELIEVE = 5.0
"""Seconds that a cut lasts after another has taken over: the old one may still think that it leads."""
NETWORKS = "networks"
"""The file that names the nodes' networks to workers."""
UNTOLD = ("failovers", "errors", "answers dropped", "held and decided")
"""What must be met where effects are outside: some unknown, which is said, and decided from the far side's books."""
PAST_THE_TERM = 26.0
"""Seconds that a primary stands frozen: longer than Patroni's `ttl`, so that another is chosen meanwhile."""


class Silence:
    """Watches how long nobody is answered."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._answered = time.monotonic()
        self._ended = threading.Event()
        self.longest = 0.0
        self._watch = threading.Thread(target=self._watching, daemon=True)
        self._watch.start()

    def _watching(self) -> None:
        with self._history.open("rb") as lines:
            lines.seek(0, 2)
            while not self._ended.wait(0.02):
                now = time.monotonic()
                if b"answer\t" in lines.read():
                    self._answered = now
                self.longest = max(self.longest, now - self._answered)

    def end(self) -> float:
        """The longest time without an answer."""
        self._ended.set()
        self._watch.join(10)
        return self.longest


def harm(doing: Callable[[Setting], None], gaps: list[float]) -> Harm:
    """Do something to the primary under load, over and over, and let the cluster become whole again each time."""

    def harmed(setting: Setting, chance: random.Random, swarm: Swarm) -> Iterator[list[Phase]]:
        while True:
            time.sleep(chance.uniform(*LOAD))
            setting.server.await_whole()
            stood = swarm.phases()
            before, silence = setting.server.primary(), Silence(setting.folder / "history")
            doing(setting)
            setting.server.await_another(before)
            setting.server.restart()
            gaps.append(silence.end())
            yield stood

    return harmed


def killed(setting: Setting) -> None:
    """kill -9 for the primary's PostgreSQL."""
    setting.server.kill()


def killed_unsent(setting: Setting) -> None:
    """The same after a moment in which no standby heard of it: who does not wait for them has answered meanwhile."""
    setting.server.kill_unsent(UNSENT)


def node_killed(setting: Setting) -> None:
    """kill -9 for all of its machine."""
    setting.server.kill_node()


def handed_over(setting: Setting) -> None:
    """A planned switch."""
    setting.server.switch()


def frozen(setting: Setting) -> None:
    """SIGSTOP for all of its machine, until another leads; then it wakes and finds out."""
    setting.server.freeze()
    time.sleep(PAST_THE_TERM)


def cut_off(setting: Setting) -> None:
    """The wire of its machine is cut, with callers on both sides; it is mended when another has led for a while."""
    before = setting.server.primary()
    setting.server.cut()
    setting.server.await_another(before)
    time.sleep(BOTH_BELIEVE)


def on_both_sides(harm: Harm) -> Callable[[Setting], Report]:
    """The trial in joined mode with one worker inside every node and four outside."""

    def run(setting: Setting) -> Report:
        names = setting.server.wires.names
        (setting.folder / NETWORKS).write_text(" ".join(names))
        return joined(harm, inside, len(names) + WORKERS)(setting)

    return run


def inside(job: Job, slot: int, seed: int) -> None:
    """Work where the worker's slot says: the first ones inside a node each, the others outside."""
    names = (job.folder / NETWORKS).read_text().split()
    if slot < len(names):
        enter(names[slot])
    engine_joined.work(job, slot, seed)


def on_a_cluster(
    trial: Callable[[Harm], Callable[[Setting], Report]], doing: Callable[[Setting], None]
) -> Callable[[Setting], Report]:
    """`trial` with this harm; the report says how long callers were without an answer."""

    def run(setting: Setting) -> Report:
        gaps: list[float] = []
        report = trial(harm(doing, gaps))(replace(setting, backend="postgres"))
        told = " ".join(f"{gap:.1f}" for gap in sorted(gaps))
        report.sometimes[f"failovers (seconds without an answer: {told})"] = len(gaps)
        report.sometimes["failovers"] = len(gaps)
        return report

    return run


def careless(setting: Setting) -> Report:
    """The control: with synchronous_commit = local an acknowledged record must be lost sooner or later."""
    report = Report()
    with _until_something_is_lost(replace(setting, backend="postgres"), report) as lost:
        if not lost:
            report.blame(f"{report.done} failovers lost nothing: the trials beside this one cannot fail")
    return report


@contextmanager
def _until_something_is_lost(setting: Setting, report: Report) -> Iterator[bool]:
    chance, found = random.Random(setting.seed), Report()
    job = engine_joined.prepared(setting)
    for _ in range(setting.count):
        with Swarm(job, engine_joined.work, 24, chance) as swarm:
            next(harm(killed_unsent, [])(setting, chance, swarm))
        report.done += 1
        setting.advance(1)
        # What was only begun comes to its end first; what was answered and is gone is booked a second time then.
        engine_joined.finish(job)
        engine_joined.examine(job, found)
        if found.violations:
            break
    report.sometimes["lost or repeated"] = found.sometimes["violations"]
    yield bool(found.violations)


TRIALS = (
    Trial("failover: joined, killed", on_a_cluster(joined, killed), ("cluster",), 2, 50, ("failovers", "keys")),
    Trial("failover: joined, killed unsent", on_a_cluster(joined, killed_unsent), ("cluster",), 1, 10, ("failovers",)),
    Trial("failover: joined, switched over", on_a_cluster(joined, handed_over), ("cluster",), 1, 10, ("failovers",)),
    Trial("failover: joined, node lost", on_a_cluster(joined, node_killed), ("cluster",), 1, 5, ("failovers",)),
    Trial("failover: joined, frozen", on_a_cluster(joined, frozen), ("cluster",), 1, 3, ("failovers",)),
    Trial(
        "failover: joined, cut off",
        on_a_cluster(on_both_sides, cut_off),
        ("wired cluster",),
        1,
        5,
        ("failovers", "errors", "replayed"),
    ),
    Trial("failover: outside, killed", on_a_cluster(outside, killed), ("cluster",), 2, 50, UNTOLD),
    Trial("failover: outside, node lost", on_a_cluster(outside, node_killed), ("cluster",), 1, 5, UNTOLD),
    Trial(
        "failover: control, commits that do not wait", careless, ("careless cluster",), 10, 40, ("lost or repeated",)
    ),
)
