"""What sweepers share: how often, under which name, and what one pass did."""

from __future__ import annotations

from typing import NamedTuple

KEEP_24_HOURS = 24 * 3600.0
KEEP_30_DAYS = 30 * 24 * 3600.0
HOUR = 3600.0
KIND = "umavez"
"""The scope of the sweepers' lease: one for the whole store, whatever the engines' scopes are."""


class Swept(NamedTuple):
    """What one pass did: how many it deleted, in how many batches, and why it stopped early if it did."""

    deleted: int
    batches: int
    stopped: str = ""
