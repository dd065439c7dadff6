"""Four eyes: what one person proposes about an operation that declares `four_eyes=True`, and another agrees to in time.

A proposal is a decision like any other, under a key made of the record's digest, its stamp and the quarter of an hour:
whoever looks at the record finds it without a search, and for one version of a record there is one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from umavez.console.books import Books
from umavez.console.decisions import Deed, told_by
from umavez.console.orders.choosing import mark_of, takes_two
from umavez.core.record import Instant, Millis, Record

IN_TIME: Millis = 15 * 60_000
"""How long a proposal waits for a second person."""

__all__ = ["IN_TIME", "Proposal", "proposal_of", "proposing", "takes_two"]


class Proposal(NamedTuple):
    """What somebody proposes: `action` with what the form `says`; `override` where the record has an outcome."""

    who: str
    action: str
    reason: str
    says: Mapping[str, str]
    override: bool
    at: Instant

    def left(self, now: Instant) -> Millis:
        """How long a second person has."""
        return self.at + IN_TIME - now


def proposing(deed: Deed, record: Record, now: Instant, *, override: bool) -> Deed:
    """The deed of proposing what `deed` would do, to be kept once."""
    said = {"proposes": deed.action, "says": dict(deed.means), "override": override, "at": now}
    return deed._replace(action="propose", form=_name(record, now // IN_TIME), order=said)


def proposal_of(books: Books, record: Record, now: Instant) -> Proposal | None:
    """What was proposed about the record as it stands, and can still be agreed to."""
    if not takes_two(books, record):
        return None
    for slot in (now // IN_TIME, now // IN_TIME - 1):
        told = told_by(books, _name(record, slot))
        found = None if told is None else _read(told)
        if found is not None and found.left(now) > 0:
            return found
    return None


def _read(told: Mapping[str, Any]) -> Proposal | None:
    order = told.get("order", {})
    if "proposes" not in order:
        return None
    return Proposal(told["who"], order["proposes"], told["reason"], order["says"], order["override"], order["at"])


def _name(record: Record, slot: int) -> str:
    return f"two.{record.key.digest.hex()[:40]}.{mark_of(record).hex()}.{slot}"
