"""Tokens, leases, reconciliation and sweep for tasks differ from the others by `await` only."""

from __future__ import annotations

import pytest

from tests.test_architecture import SOURCE, plain_functions

PAIRS = ["tokens", "leases", "row_leases", "reconcile", "sweep"]
OWN_WAYS = {"_sql"}
"""How a connection is unwrapped: SQLAlchemy's for tasks must be awaited."""


@pytest.mark.parametrize("name", PAIRS)
def test_twins_differ_by_await_only(name: str) -> None:
    sync, tasks = (plain_functions(SOURCE / f"{prefix}{name}.py") for prefix in ("", "aio_"))
    for own in OWN_WAYS:
        sync.pop(own, None)
        tasks.pop(own, None)
    assert sync == tasks
