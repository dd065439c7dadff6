"""Kill a relay and consumer at every single step of their work; nothing may be lost, no effect may happen twice.

python -m chaos.messaging_steps [--store URL]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from contextlib import closing
from itertools import count

from chaos.messaging_parts import TOPIC, connect, effects, prepare, work
from umavez.messaging import Message, Outbox

MESSAGES = 3


def main() -> None:
    """Run on `--store`, or on an SQLite file of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    url = parser.parse_args().store
    with tempfile.TemporaryDirectory() as folder:
        print(killed_at_every_step(url or f"sqlite:///{folder}/steps.db?journal=delete"))


def killed_at_every_step(url: str, first: int = 1, stride: int = 1) -> str:
    """Append, kill at the first step, go on; append, kill at the next; until a run ends before its step."""
    prepare(url)
    killed = appended = 0
    for fatal in count(first, stride):
        appended += append(url, MESSAGES)
        if not _died(url, fatal):
            break
        killed += 1
    total, distinct = effects(url)
    assert (total, distinct) == (appended, appended), f"{appended} messages, {total} effects of {distinct}"
    return f"killed at {killed} steps: {appended} messages, {total} effects, 0 lost, 0 twice"


def append(url: str, many: int) -> int:
    """Put messages into the outbox."""
    with closing(connect(url)) as connection:
        Outbox().append(connection, [Message(TOPIC, str(number)) for number in range(many)])
        connection.commit()
    return many


def _died(url: str, fatal: int) -> bool:
    """Whether a relay and consumer died at step `fatal`; False when they finished all there was before it."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work("both", url, None, fatal))
        except BaseException:  # noqa: BLE001 - a forked child must never return into its parent's code
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a worker failed by itself"
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    main()
