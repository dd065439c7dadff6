"""Reconciliation: asks the far side about outcomes that nobody knows.

    Reconciler(once).run()            # one pass
    Reconciler(once).serve(stop)      # a pass a minute, until `stop` is set

AsyncReconciler has the same methods, awaited.
"""

from umavez._async.reconcile import AsyncReconciler
from umavez._sync.reconcile import Reconciler
from umavez.core.reconciliation import Pace, Report

__all__ = ["AsyncReconciler", "Pace", "Reconciler", "Report"]
