"""Scraping: the text that Prometheus reads, right also where several processes share a port. Needs umavez[metrics]."""

from __future__ import annotations

import os
import re
from pathlib import Path

from umavez.errors import needs

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector


FOLDER = "PROMETHEUS_MULTIPROC_DIR"

_LIVE = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


def scraped(counted: CollectorRegistry, asked: CollectorRegistry) -> bytes:
    """What a scrape of this process answers: what was counted, and what `asked` collects at this moment.

    With PROMETHEUS_MULTIPROC_DIR the counters are the sums over all processes that share the folder.
    """
    folder = os.environ.get(FOLDER)
    if folder is not None:
        forget_dead(Path(folder))
        counted = CollectorRegistry()
        MultiProcessCollector(counted)  # type: ignore[no-untyped-call]  # the library leaves it untyped
    return generate_latest(counted) + generate_latest(asked)


def forget_dead(folder: Path) -> None:
    """Drop what processes that are gone said was running: a worker that was killed has nothing running any more.

    What they counted stays; see decision 0013.
    """
    for file in folder.glob("gauge_live*.db"):
        found = _LIVE.fullmatch(file.name)
        if found and not _lives(int(found[1])):
            # By hand: another worker may be scraped at this moment, and the library minds a file that is gone already.
            file.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
