"""Sweep: deletes what is past its time, on a schedule, by one process at a time.

    Sweeper(once).run()               # one pass
    Sweeper(once).serve(stop)         # a pass an hour, until `stop` is set

Nothing here decides what may go: a record carries its own end, set when it was settled (`keep=`, 24 hours unless
said otherwise; say keep=KEEP_30_DAYS where clients may come back for a month). What runs or is unknown has no end
and stays. AsyncSweeper has the same methods, awaited.
"""

from umavez._async.sweep import AsyncSweeper
from umavez._sync.sweep import Sweeper
from umavez.core.sweeping import KEEP_24_HOURS, KEEP_30_DAYS, Swept

__all__ = ["KEEP_24_HOURS", "KEEP_30_DAYS", "AsyncSweeper", "Sweeper", "Swept"]
