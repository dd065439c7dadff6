"""Row leases: one worker at a time on a row of the caller's own table.

    mailings = RowLease(LeasedTable("mailings"))
    claim = mailings.acquire(connection, mailing_id)   # None: another worker has it
    claim.finish(connection, sent_at=moment)           # ClaimLost: it was taken over; nothing was written

AsyncRowLease has the same methods, awaited.
"""

from umavez._async.row_leases import AsyncRowClaim, AsyncRowLease
from umavez._sync.row_leases import RowClaim, RowLease
from umavez.sql.row_lease import LeasedTable

__all__ = ["AsyncRowClaim", "AsyncRowLease", "LeasedTable", "RowClaim", "RowLease"]
