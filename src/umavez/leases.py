"""Named leases: one holder at a time, across processes.

    leases = Leases(once)
    with leases.hold("nightly-report", lease=30) as held:
        send(report, fence=held.fence)

AsyncLeases has the same methods, awaited.
"""

from umavez._async.leases import AsyncHeld, AsyncLeases
from umavez._sync.leases import Held, Leases

__all__ = ["AsyncHeld", "AsyncLeases", "Held", "Leases"]
